//! What was stored against what the callers were told: what was answered with success happened once, what was refused did not happen,
//! what nobody knows may have.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::TaskId;

use super::life::{Life, Step};
use super::{Found, Promise};
use crate::journal::{Asked, Call, Told};

/// Steps that callers ask for and that leave a trace each.
const COUNTED: [Asked; 9] = [
    Asked::Submit,
    Asked::Complete,
    Asked::Fail,
    Asked::Release,
    Asked::Snooze,
    Asked::Cancel,
    Asked::Replay,
    Asked::Archive,
    Asked::Unarchive,
];

/// How many callers were told that it was done, and how many may have done it.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    done: usize,
    unsure: usize,
}

/// Counts every step of every task.
pub(super) fn check(
    calls: &[Call],
    lives: &BTreeMap<TaskId, Life>,
    spoiled: &BTreeSet<TaskId>,
    found: &mut Found,
) {
    let tallies = tally(calls);
    let none = Life::default();
    let named = tallies.keys().map(|(id, _)| *id);
    let tasks: BTreeSet<TaskId> = named.chain(lives.keys().copied()).collect();
    for id in tasks.difference(spoiled) {
        let life = lives.get(id).unwrap_or(&none);
        for asked in COUNTED {
            let Tally { done, unsure } = tallies.get(&(*id, asked)).copied().unwrap_or_default();
            let stored = life.count(Step::Asked(asked));
            if !(done..=done + unsure).contains(&stored) {
                let promise = match asked {
                    Asked::Submit => Promise::OneTask,
                    _ => Promise::OneAttempt,
                };
                found.add(promise, format!(
                    "task {id}: {asked:?} happened {stored} times; {done} were told so, {unsure} may have been"
                ));
            }
        }
        // A purge may be repeated, and a renewal that somebody built upon too: they leave no trace to recognise.
        for asked in [Asked::Keep, Asked::Purge] {
            let Tally { done, unsure } = tallies.get(&(*id, asked)).copied().unwrap_or_default();
            let stored = life.count(Step::Asked(asked));
            if stored < done.min(1) || (stored > 0 && done + unsure == 0) {
                found.add(Promise::OneAttempt, format!(
                    "task {id}: {asked:?} happened {stored} times; {done} were told so, {unsure} may have been"
                ));
            }
        }
    }
    check_acknowledged(calls, lives, spoiled, found);
    for call in calls.iter().filter(|call| call.asked == Asked::Submit) {
        if let (Some(task), Told::Rejected(rejection)) = (call.task, &call.told)
            && !spoiled.contains(&task)
        {
            // Whatever the clients ask for is within the rules.
            let text = format!("task {task}: its submit was refused: {rejection}");
            found.add(Promise::NothingLost, text);
        }
    }
}

fn tally(calls: &[Call]) -> BTreeMap<(TaskId, Asked), Tally> {
    let mut tallies: BTreeMap<(TaskId, Asked), Tally> = BTreeMap::new();
    for call in calls {
        let Some(task) = call.task else { continue };
        if call.asked == Asked::Purge {
            // A purge archives first, and stays there if it cannot go on.
            tallies.entry((task, Asked::Archive)).or_default().unsure += 1;
        }
        let tally = tallies.entry((task, call.asked)).or_default();
        match call.told {
            Told::Done(_) => tally.done += 1,
            Told::Unsure => tally.unsure += 1,
            Told::Duplicate(_) | Told::Rejected(_) | Told::Failed(_) => {}
        }
        if call.asked == Asked::Submit
            && call.key.is_some()
            && !matches!(call.told, Told::Done(_))
            && call.told != Told::Unsure
        {
            // It may have created the task that its key names before it failed.
            tally.unsure += 1;
        }
    }
    // A submit with a key that nobody knows the fate of may have created the task that the key names, instead of its own.
    let mut doubtful: BTreeMap<_, usize> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.asked == Asked::Submit) {
        if let (Some(key), Told::Unsure | Told::Failed(_)) = (&call.key, &call.told) {
            *doubtful.entry(key.clone()).or_default() += 1;
        }
    }
    let named: BTreeSet<_> = calls
        .iter()
        .filter_map(|call| Some((call.key.clone()?, call.task?)))
        .collect();
    for (key, task) in named {
        let count = doubtful.get(&key).copied().unwrap_or_default();
        tallies.entry((task, Asked::Submit)).or_default().unsure += count;
    }
    tallies
}

/// An acknowledged submit is never lost, and of all submits of a task one has made it.
fn check_acknowledged(
    calls: &[Call],
    lives: &BTreeMap<TaskId, Life>,
    spoiled: &BTreeSet<TaskId>,
    found: &mut Found,
) {
    let none = Life::default();
    let mut made = BTreeSet::new();
    for call in calls.iter().filter(|call| call.asked == Asked::Submit) {
        let (Some(task), Told::Done(_) | Told::Duplicate(_)) = (call.task, &call.told) else {
            continue;
        };
        if spoiled.contains(&task) {
            continue;
        }
        let life = lives.get(&task).unwrap_or(&none);
        let purged = life.count(Step::Asked(Asked::Purge)) > 0;
        if life.last.is_none() && !purged {
            found.add(
                Promise::NothingLost,
                format!("task {task} was acknowledged and is lost"),
            );
        }
        if matches!(call.told, Told::Done(_)) && !made.insert(task) && !purged {
            found.add(
                Promise::OneTask,
                format!("task {task} was said to be new twice"),
            );
        }
    }
}

/// One task per key, at a time.
pub(super) fn check_keys(
    calls: &[Call],
    lives: &BTreeMap<TaskId, Life>,
    clocks_ms: u64,
    found: &mut Found,
) {
    let purging: BTreeSet<TaskId> = calls
        .iter()
        .filter(|call| call.asked == Asked::Purge)
        .filter_map(|call| call.task)
        .collect();
    let mut by_key: BTreeMap<String, Vec<&qo_core::Task>> = BTreeMap::new();
    for (id, life) in lives.iter().filter(|(id, _)| !purging.contains(id)) {
        if let Some(task) = &life.last
            && let Some(key) = &task.idempotency_key
        {
            debug_assert_eq!(task.id, *id);
            by_key.entry(key.to_string()).or_default().push(task);
        }
    }
    for (key, mut tasks) in by_key {
        tasks.sort_by_key(|task| task.created_at);
        for pair in tasks.windows(2) {
            let free = pair[0]
                .idempotency_until
                .is_some_and(|until| until <= pair[1].created_at.plus_millis(clocks_ms));
            if !free {
                found.add(
                    Promise::OneTask,
                    format!("key {key} has the tasks {} and {}", pair[0].id, pair[1].id),
                );
            }
        }
    }
}
