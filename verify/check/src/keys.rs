//! One task per idempotency key at a time.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::{Task, TaskId};

use crate::call::{Call, CallKind, Reply};
use crate::life::{Life, Step};
use crate::promise::{Breaches, Promise};

/// Checks the idempotency keys of all tasks that are not purged.
pub(crate) fn check(
    calls: &[Call],
    lives: &BTreeMap<TaskId, Life>,
    clock_difference_ms: u64,
    breaches: &mut Breaches,
) {
    let purging: BTreeSet<TaskId> = calls
        .iter()
        .filter(|call| call.kind == CallKind::Purge)
        .filter_map(|call| call.task)
        .collect();
    let mut by_key: BTreeMap<String, Vec<&Task>> = BTreeMap::new();
    let kept = lives.iter().filter(|(id, _)| !purging.contains(id));
    for task in kept.filter_map(|(_, life)| life.last.as_ref()) {
        if let Some(key) = &task.idempotency_key {
            by_key.entry(key.to_string()).or_default().push(task);
        }
    }
    for (key, mut tasks) in by_key {
        tasks.sort_by_key(|task| task.created_at);
        for pair in tasks.windows(2) {
            let is_free = pair[0]
                .idempotency_until
                .is_some_and(|until| until <= pair[1].created_at.plus_millis(clock_difference_ms));
            if !is_free {
                let text = format!("key {key} has tasks {} and {}", pair[0].id, pair[1].id);
                breaches.add(Promise::OneTask, text);
            }
        }
    }
    for call in calls.iter().filter(|call| call.kind == CallKind::Submit) {
        let (Some(key), Some(id), Reply::Done(_) | Reply::Duplicate(_)) =
            (&call.key, call.task, &call.reply)
        else {
            continue;
        };
        let life = lives
            .get(&id)
            .filter(|life| life.count(Step::Call(CallKind::Purge)) == 0);
        let stored = life.and_then(|life| life.last.as_ref());
        if stored.is_some_and(|task| task.idempotency_key.as_ref() != Some(key)) {
            let text = format!(
                "a submit with key {key} was acknowledged as task {id}, which has another key"
            );
            breaches.add(Promise::OneTask, text);
        }
    }
}
