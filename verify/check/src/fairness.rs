//! Groups are served in turn.
//!
//! While a group has a task that could be claimed, and is not served, no other group gets more than a few turns. At each claim, the waiting tasks
//! are looked at as they were stored before; the time is that of the process that claimed.
//!
//! The bound is meant for groups of weight 1. [`TURNS`] are within the rules, and one more for each process that begins a new round while the group
//! waits, because the turns are not stored.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::{FairnessGroup, QueueName, Status, Task, TaskId};

use crate::call::CallKind;
use crate::life::{Change, Life, Step};
use crate::promise::{Breaches, Promise};

/// The most turns of one group while another one waits, by the rules: one of a round in which the waiting group has had its own, and one of the
/// next.
pub const TURNS: u32 = 2;

/// How exactly an engine serves groups in turn.
#[derive(Debug, Clone, Copy)]
pub struct TurnBound<'a> {
    /// The most turns of one group while another one waits.
    pub turns_max: u32,
    /// When processes that count turns began, as positions in the order of all recorded events. Each begins a new round.
    pub new_rounds: &'a [u64],
}

/// The tasks whose groups take turns.
type Class = (QueueName, u8);
type Group = Option<FairnessGroup>;

/// The turns of the others while a group waits.
#[derive(Debug, Default)]
struct Wait {
    /// Since when.
    since: u64,
    taken: BTreeMap<Group, u32>,
}

/// Checks all queues in which tasks have groups. No task moves to another queue.
pub(crate) fn check(bound: TurnBound<'_>, lives: &BTreeMap<TaskId, Life>, breaches: &mut Breaches) {
    let mut classes: BTreeMap<Class, Vec<(TaskId, &Change)>> = BTreeMap::new();
    for (id, life) in lives {
        for change in &life.changes {
            if let Some(task) = change.after.as_deref().or(change.before.as_deref()) {
                let class = (task.queue.clone(), task.priority);
                classes.entry(class).or_default().push((*id, change));
            }
        }
    }
    for (class, mut changes) in classes {
        // The sort is stable: the changes of one task stay in their order.
        changes.sort_by_key(|(_, change)| change.tick);
        check_class(bound, &class, &changes, breaches);
    }
}

fn check_class(
    bound: TurnBound<'_>,
    class: &Class,
    changes: &[(TaskId, &Change)],
    breaches: &mut Breaches,
) {
    let mut waiting: BTreeMap<TaskId, &Task> = BTreeMap::new();
    let mut turns: BTreeMap<Group, Wait> = BTreeMap::new();
    let mut before = 0;
    // An engine that writes groups of changes stores several claims at one tick. Their order is unknown.
    for group in changes.chunk_by(|(_, one), (_, other)| one.tick == other.tick) {
        let claims = group.iter().filter_map(|(_, change)| {
            let is_claim = change.step == Step::Call(CallKind::Claim);
            change.after.as_deref().filter(|_| is_claim)
        });
        let claims: Vec<&Task> = claims.collect();
        let changed: BTreeSet<TaskId> = group.iter().map(|(id, _)| *id).collect();
        if let Some(now) = claims.iter().filter_map(|task| task.started_at).min() {
            let could_be_claimed = |task: &Task| {
                task.available_at <= now && task.expires_at.is_none() && task.max_wait_ms.is_none()
            };
            let still = waiting.iter().filter(|(id, _)| !changed.contains(id));
            let still: BTreeSet<Group> = still
                .filter(|(_, task)| could_be_claimed(task))
                .map(|(_, task)| task.fairness_group.clone())
                .collect();
            let served: BTreeSet<Group> =
                claims.iter().map(|it| it.fairness_group.clone()).collect();
            turns.retain(|of, _| still.contains(of) && !served.contains(of));
            let tick = group[0].1.tick;
            for of in still.difference(&served) {
                let wait = turns.entry(of.clone()).or_insert_with(|| Wait {
                    since: before,
                    ..Wait::default()
                });
                let rounds = bound.new_rounds.iter();
                let rounds = rounds.filter(|began| (wait.since..=tick).contains(began));
                let allowed = bound.turns_max + u32::try_from(rounds.count()).unwrap_or(u32::MAX);
                for task in &claims {
                    let other = &task.fairness_group;
                    let taken = wait.taken.entry(other.clone()).or_default();
                    *taken += 1;
                    if *taken == allowed + 1 {
                        let text = format!(
                            "{other:?} got more than {allowed} turns while {of:?} waited in {} at priority {}, until {now}",
                            class.0, class.1
                        );
                        breaches.add(Promise::InTurn, text);
                    }
                }
            }
            before = tick;
        }
        for (id, change) in group {
            let after = change.after.as_deref();
            match after.filter(|task| task.status == Status::Pending) {
                Some(task) => waiting.insert(*id, task),
                None => waiting.remove(id),
            };
        }
    }
}
