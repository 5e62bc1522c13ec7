//! The settings of a queue apply to its tasks.
//!
//! - A new task has the defaults and the maximum wait of its queue. That nobody claims it after its maximum wait is checked for each claim
//!   ([`crate::life`]).
//! - A submit adds no task to a queue in which as many wait as the settings allow, where the engine counts them exactly.
//! - A submit is told that the queue is full only if it may have been.

use std::collections::BTreeMap;

use qo_core::{QueueSettings, Rejection, Status, Task, TaskId};

use crate::call::{Call, CallKind, Reply};
use crate::life::{Change, Life, Step};
use crate::promise::{Breaches, Promise};

/// Checks a queue that all tasks are in.
pub(crate) fn check(
    settings: &QueueSettings,
    is_exact: bool,
    calls: &[Call],
    lives: &BTreeMap<TaskId, Life>,
    breaches: &mut Breaches,
) {
    for (id, life) in lives {
        for change in life.changes.iter().filter(|change| is_submit(change)) {
            let Some(task) = change.after.as_deref() else {
                continue;
            };
            let timeout = settings.timeout_seconds.unwrap_or(task.timeout_seconds);
            if task.max_wait_ms != settings.max_wait_ms || task.timeout_seconds != timeout {
                let text = format!("task {id} does not have the settings of its queue");
                breaches.add(Promise::Settings, text);
            }
        }
    }
    if let Some(max) = settings.max_waiting.filter(|_| is_exact) {
        check_waiting(max, calls, lives, breaches);
    }
}

/// How many tasks wait after a write.
struct Waiting {
    tick: u64,
    /// The tasks that are stored as pending.
    stored: u64,
    /// The most that may have waited between the changes of the write.
    at_most: u64,
}

fn check_waiting(
    max: u64,
    calls: &[Call],
    lives: &BTreeMap<TaskId, Life>,
    breaches: &mut Breaches,
) {
    // Deliveries are in a queue of their own.
    let is_delivery = |life: &&Life| {
        let first = life.changes.first();
        first.is_some_and(|change| change.step == Step::Delivered)
    };
    let in_queue = lives.values().filter(|life| !is_delivery(life));
    let mut changes: Vec<&Change> = in_queue.flat_map(|life| &life.changes).collect();
    changes.sort_by_key(|change| change.tick);
    let mut history = vec![Waiting {
        tick: 0,
        stored: 0,
        at_most: 0,
    }];
    let mut waiting = 0_u64;
    for group in changes.chunk_by(|one, other| one.tick == other.tick) {
        let before = waiting;
        let (mut joined, mut returned) = (0, 0);
        for change in group {
            let is_waiting = change.after.as_deref().is_some_and(is_pending);
            let was_waiting = change.before.as_deref().is_some_and(is_pending);
            waiting = waiting + u64::from(is_waiting) - u64::from(was_waiting).min(waiting);
            joined += u64::from(is_waiting && is_submit(change));
            returned += u64::from(is_waiting && !was_waiting && !is_submit(change));
        }
        // Tasks that are retried, released or replayed need no room, and may have come after the submits.
        if joined > 0 && waiting.saturating_sub(returned) > max {
            let text = format!("{waiting} tasks wait after a submit, {max} are allowed");
            breaches.add(Promise::Settings, text);
        }
        history.push(Waiting {
            tick: group[0].tick,
            stored: waiting,
            at_most: before + joined + returned,
        });
    }
    for call in calls.iter().filter(|call| call.kind == CallKind::Submit) {
        let (Reply::Rejected(Rejection::QueueFull { .. }), Some(answered)) =
            (&call.reply, call.answered)
        else {
            continue;
        };
        let first = history.partition_point(|one| one.tick <= call.called);
        let during = (history[first..].iter()).take_while(|one| one.tick <= answered);
        let most = during.map(|one| one.at_most.max(one.stored)).max();
        let at_call = history[first - 1].stored;
        if at_call.max(most.unwrap_or_default()) < max {
            let text = format!("a submit was refused although only {at_call} tasks waited");
            breaches.add(Promise::Settings, text);
        }
    }
}

fn is_pending(task: &Task) -> bool {
    task.status == Status::Pending
}

fn is_submit(change: &Change) -> bool {
    change.step == Step::Call(CallKind::Submit)
}
