//! Tasks with one ordering key run one at a time, in submit order.
//!
//! At each claim of a task, the other tasks of its line are looked at as they were stored then:
//!
//! - none is running;
//! - none has failed and stops the line;
//! - none waits that was submitted before: its submit was acknowledged before the submit of the claimed task was called. A task that was
//!   replayed has joined the line again, and is not compared any more.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::task::OrderingLine;
use qo_core::{Status, Task, TaskId};

use crate::call::{Call, CallKind, Reply};
use crate::life::{Change, Life, Step};
use crate::promise::{Breaches, Promise};

/// When a task was submitted, in ticks.
#[derive(Debug, Clone, Copy, Default)]
struct SubmitTime {
    first_called: Option<u64>,
    first_acknowledged: Option<u64>,
}

/// A task of a line as it was stored last.
struct Member<'a> {
    task: &'a Task,
    is_replayed: bool,
}

/// Checks all lines.
pub(crate) fn check(calls: &[Call], lives: &BTreeMap<TaskId, Life>, breaches: &mut Breaches) {
    let mut lines: BTreeMap<OrderingLine, Vec<(TaskId, &Change)>> = BTreeMap::new();
    for (id, life) in lives {
        for change in &life.changes {
            let task = change.after.as_deref().or(change.before.as_deref());
            if let Some(line) = task.and_then(Task::ordering_line) {
                lines.entry(line).or_default().push((*id, change));
            }
        }
    }
    if lines.is_empty() {
        return;
    }
    let submits = submit_times(calls);
    for (line, mut changes) in lines {
        // The sort is stable: the changes of one task stay in their order.
        changes.sort_by_key(|(_, change)| change.tick);
        check_line(&line, &changes, &submits, breaches);
    }
}

fn submit_times(calls: &[Call]) -> BTreeMap<TaskId, SubmitTime> {
    let mut times: BTreeMap<TaskId, SubmitTime> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.kind == CallKind::Submit) {
        let Some(id) = call.task else { continue };
        let time = times.entry(id).or_default();
        let earliest = |known: Option<u64>, tick| Some(known.map_or(tick, |known| known.min(tick)));
        time.first_called = earliest(time.first_called, call.called);
        if let (Reply::Done(_) | Reply::Duplicate(_), Some(answered)) = (&call.reply, call.answered)
        {
            time.first_acknowledged = earliest(time.first_acknowledged, answered);
        }
    }
    times
}

fn check_line(
    line: &OrderingLine,
    changes: &[(TaskId, &Change)],
    submits: &BTreeMap<TaskId, SubmitTime>,
    breaches: &mut Breaches,
) {
    let mut members: BTreeMap<TaskId, Member<'_>> = BTreeMap::new();
    // An engine that writes groups stores several changes at one tick. Their order is unknown, so all are applied before any is checked. A
    // claimed task whose attempt has ended in the same group, as happens in an outage, may have run before or after the others.
    for group in changes.chunk_by(|(_, one), (_, other)| one.tick == other.tick) {
        let mut claimed = BTreeSet::new();
        let changed = group
            .iter()
            .filter(|(_, change)| change.step != Step::Call(CallKind::Renew));
        let changed: BTreeSet<TaskId> = changed.map(|(id, _)| *id).collect();
        for (id, change) in group {
            match change.after.as_deref() {
                None => {
                    members.remove(id);
                }
                Some(task) => {
                    let was_replayed = members.get(id).is_some_and(|member| member.is_replayed);
                    let is_replayed = was_replayed || change.step == Step::Call(CallKind::Replay);
                    members.insert(*id, Member { task, is_replayed });
                }
            }
            if change.step == Step::Call(CallKind::Claim) {
                claimed.insert(*id);
            }
        }
        for id in claimed {
            let member = members.get(&id);
            let runs = member.is_some_and(|member| member.task.status == Status::Running);
            let overlaps = |other: &TaskId| runs || !changed.contains(other);
            check_claim(line, id, &members, overlaps, submits, breaches);
        }
    }
}

fn check_claim(
    line: &OrderingLine,
    id: TaskId,
    members: &BTreeMap<TaskId, Member<'_>>,
    overlaps: impl Fn(&TaskId) -> bool,
    submits: &BTreeMap<TaskId, SubmitTime>,
    breaches: &mut Breaches,
) {
    let key = line.canonical();
    let time_of = |id: TaskId| submits.get(&id).copied().unwrap_or_default();
    let is_replayed = members.get(&id).is_none_or(|member| member.is_replayed);
    for (other, member) in members.iter().filter(|(other, _)| **other != id) {
        let wrong = if member.task.status == Status::Running && overlaps(other) {
            "runs"
        } else if member.task.stops_line() {
            "stops the key"
        } else if member.task.status == Status::Pending
            && !member.is_replayed
            && !is_replayed
            && time_of(*other)
                .first_acknowledged
                .zip(time_of(id).first_called)
                .is_some_and(|(acknowledged, called)| acknowledged < called)
        {
            "was submitted before it and waits"
        } else {
            continue;
        };
        let text = format!("key {key}: task {id} was claimed while {other} {wrong}");
        breaches.add(Promise::Ordered, text);
    }
}
