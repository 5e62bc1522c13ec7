//! No limit is exceeded at any time.
//!
//! - **Concurrent tasks**: after each write, the tasks of the limit that are stored as running are counted.
//! - **Starts**: of the attempts of the limit, ordered by when they started, each must have started later than the one `max` before it by the
//!   window, less what the clocks of two processes may differ.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::{DocumentName, Limit, Status, Task, TaskId, Timestamp};

use crate::call::CallKind;
use crate::life::{Change, Life, Step};
use crate::promise::{Breaches, Promise};

/// Checks all limits.
pub(crate) fn check(
    limits: &[(DocumentName, Limit)],
    lives: &BTreeMap<TaskId, Life>,
    clock_difference_ms: u64,
    breaches: &mut Breaches,
) {
    for (name, limit) in limits {
        let mut changes: Vec<(TaskId, &Change)> = Vec::new();
        for (id, life) in lives {
            let of_limit = life.changes.iter().filter(|change| {
                let task = change.after.as_deref().or(change.before.as_deref());
                task.is_some_and(|task| limit.applies_to_task(task))
            });
            changes.extend(of_limit.map(|change| (*id, change)));
        }
        // The sort is stable: the changes of one task stay in their order.
        changes.sort_by_key(|(_, change)| change.tick);
        check_running(name, limit, &changes, breaches);
        check_starts(name, limit, &changes, clock_difference_ms, breaches);
    }
}

fn check_running(
    name: &DocumentName,
    limit: &Limit,
    changes: &[(TaskId, &Change)],
    breaches: &mut Breaches,
) {
    let Some(max) = limit.concurrent else { return };
    let mut running = BTreeSet::new();
    // An engine that writes groups stores several changes at one tick, and only the result of all of them.
    for group in changes.chunk_by(|(_, one), (_, other)| one.tick == other.tick) {
        for (id, change) in group {
            let is_running = |task: &Task| task.status == Status::Running;
            if change.after.as_deref().is_some_and(is_running) {
                running.insert(*id);
            } else {
                running.remove(id);
            }
        }
        let started = group.iter().any(|(_, change)| is_start(change));
        if started && running.len() > max as usize {
            let text = format!(
                "limit {name}: {} of {max} running: {running:?}",
                running.len()
            );
            breaches.add(Promise::Limited, text);
        }
    }
}

fn check_starts(
    name: &DocumentName,
    limit: &Limit,
    changes: &[(TaskId, &Change)],
    clock_difference_ms: u64,
    breaches: &mut Breaches,
) {
    let Some(starts) = limit.starts else { return };
    let started = changes.iter().filter(|(_, change)| is_start(change));
    let mut times: Vec<Timestamp> = started
        .filter_map(|(_, change)| change.after.as_deref()?.started_at)
        .collect();
    times.sort();
    let shortest_ms = starts.window_ms.saturating_sub(clock_difference_ms);
    for (first, last) in times.iter().zip(times.iter().skip(starts.max as usize)) {
        if *last < first.plus_millis(shortest_ms) {
            let text = format!(
                "limit {name}: more than {} attempts started from {first} to {last}",
                starts.max
            );
            breaches.add(Promise::Limited, text);
        }
    }
}

fn is_start(change: &Change) -> bool {
    change.step == Step::Call(CallKind::Claim)
}
