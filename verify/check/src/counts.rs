//! Compares the stored changes with the replies: what was acknowledged happened once, what was refused did not happen, what is unknown may
//! have happened.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::TaskId;

use crate::call::{Call, CallKind, Reply};
use crate::life::{Life, Step};
use crate::promise::{Breaches, Promise};

/// Calls whose every effect leaves an event.
const COUNTED: [CallKind; 10] = [
    CallKind::Submit,
    CallKind::Complete,
    CallKind::Fail,
    CallKind::Release,
    CallKind::Snooze,
    CallKind::Cancel,
    CallKind::Replay,
    CallKind::Redrive,
    CallKind::Archive,
    CallKind::Unarchive,
];

/// How many calls were acknowledged, and how many may have taken effect beside those.
#[derive(Debug, Clone, Copy, Default)]
struct ReplyCount {
    done: usize,
    unknown: usize,
}

/// Counts every step of every task.
pub(crate) fn check(
    calls: &[Call],
    lives: &BTreeMap<TaskId, Life>,
    excluded: &BTreeSet<TaskId>,
    breaches: &mut Breaches,
) {
    let tallies = tally(calls);
    let none = Life::default();
    let named = tallies.keys().map(|(id, _)| *id);
    let tasks: BTreeSet<TaskId> = named.chain(lives.keys().copied()).collect();
    for id in tasks.difference(excluded) {
        let life = lives.get(id).unwrap_or(&none);
        for kind in COUNTED {
            let ReplyCount { done, unknown } =
                tallies.get(&(*id, kind)).copied().unwrap_or_default();
            let stored = life.count(Step::Call(kind));
            if !(done..=done + unknown).contains(&stored) {
                let promise = match kind {
                    CallKind::Submit => Promise::OneTask,
                    _ => Promise::OneAttempt,
                };
                breaches.add(promise, format!(
                    "task {id}: {kind:?} happened {stored} times, {done} calls were acknowledged and {unknown} may have taken effect"
                ));
            }
        }
        // A purge may be repeated, and so may a renewal that another write built on: they leave no event to recognise them by.
        for kind in [CallKind::Renew, CallKind::Purge] {
            let ReplyCount { done, unknown } =
                tallies.get(&(*id, kind)).copied().unwrap_or_default();
            let stored = life.count(Step::Call(kind));
            if stored < done.min(1) || (stored > 0 && done + unknown == 0) {
                breaches.add(Promise::OneAttempt, format!(
                    "task {id}: {kind:?} happened {stored} times, {done} calls were acknowledged and {unknown} may have taken effect"
                ));
            }
        }
    }
    check_acknowledged(calls, lives, excluded, breaches);
    for call in calls.iter().filter(|call| call.kind == CallKind::Submit) {
        if let (Some(task), Reply::Rejected(rejection)) = (call.task, &call.reply)
            && !excluded.contains(&task)
        {
            // Clients submit only valid requests.
            let text = format!("task {task}: its submit was rejected: {rejection}");
            breaches.add(Promise::NothingLost, text);
        }
    }
}

fn tally(calls: &[Call]) -> BTreeMap<(TaskId, CallKind), ReplyCount> {
    let mut tallies: BTreeMap<(TaskId, CallKind), ReplyCount> = BTreeMap::new();
    for call in calls {
        let Some(task) = call.task else { continue };
        if call.kind == CallKind::Purge {
            // A purge archives first, and leaves the task archived if it fails after that.
            tallies
                .entry((task, CallKind::Archive))
                .or_default()
                .unknown += 1;
        }
        let tally = tallies.entry((task, call.kind)).or_default();
        match call.reply {
            Reply::Done(_) => tally.done += 1,
            Reply::Unknown => tally.unknown += 1,
            Reply::Duplicate(_) | Reply::Rejected(_) | Reply::Failed(_) => {}
        }
        if call.kind == CallKind::Submit
            && call.key.is_some()
            && !matches!(call.reply, Reply::Done(_))
            && call.reply != Reply::Unknown
        {
            // It may have created the task of its key before it failed.
            tally.unknown += 1;
        }
    }
    // A submit with a key and an unknown reply may have created the task of the key instead of its own.
    let mut doubtful: BTreeMap<_, usize> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.kind == CallKind::Submit) {
        if let (Some(key), Reply::Unknown | Reply::Failed(_)) = (&call.key, &call.reply) {
            *doubtful.entry(key.clone()).or_default() += 1;
        }
    }
    let named: BTreeSet<_> = calls
        .iter()
        .filter_map(|call| Some((call.key.clone()?, call.task?)))
        .collect();
    for (key, task) in named {
        let count = doubtful.get(&key).copied().unwrap_or_default();
        tallies.entry((task, CallKind::Submit)).or_default().unknown += count;
    }
    tallies
}

/// An acknowledged submit is never lost, and one submit created the task.
fn check_acknowledged(
    calls: &[Call],
    lives: &BTreeMap<TaskId, Life>,
    excluded: &BTreeSet<TaskId>,
    breaches: &mut Breaches,
) {
    let none = Life::default();
    let mut made = BTreeSet::new();
    for call in calls.iter().filter(|call| call.kind == CallKind::Submit) {
        let (Some(task), Reply::Done(_) | Reply::Duplicate(_)) = (call.task, &call.reply) else {
            continue;
        };
        if excluded.contains(&task) {
            continue;
        }
        let life = lives.get(&task).unwrap_or(&none);
        let purged = life.count(Step::Call(CallKind::Purge)) > 0;
        if life.last.is_none() && !purged {
            breaches.add(
                Promise::NothingLost,
                format!("task {task} was acknowledged and is lost"),
            );
        }
        if matches!(call.reply, Reply::Done(_)) && !made.insert(task) && !purged {
            breaches.add(
                Promise::OneTask,
                format!("task {task} was acknowledged as new twice"),
            );
        }
    }
}
