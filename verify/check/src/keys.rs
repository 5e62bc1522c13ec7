//! One task per idempotency key at a time.

use std::collections::BTreeMap;

use qo_core::task::KeyHold;
use qo_core::{IdempotencyKey, Task, TaskId, Timestamp};

use crate::call::{Call, CallKind, Reply};
use crate::life::{Life, Step};
use crate::promise::{Breaches, Promise};

/// A task's hold of its key. A task that is submitted again after a purge holds its key again.
#[derive(Debug)]
struct Hold<'a> {
    task: &'a Task,
    created_tick: u64,
    /// When the first purge was called that may have freed the key.
    purged_tick: Option<u64>,
    /// When the task was started or finished, if that frees the key.
    released_tick: Option<u64>,
}

impl Hold<'_> {
    /// Whether the key may be free when another task is created.
    fn may_be_over(&self, other: &Hold<'_>, clock_difference_ms: u64) -> bool {
        let created_at = other.task.created_at.plus_millis(clock_difference_ms);
        self.until().is_some_and(|until| until <= created_at)
            || (self.purged_tick).is_some_and(|purged| purged < other.created_tick)
            // The order of the changes of one write is unknown.
            || (self.released_tick).is_some_and(|released| released <= other.created_tick)
    }

    fn until(&self) -> Option<Timestamp> {
        self.task.idempotency_until
    }
}

/// Checks the idempotency keys of all tasks, including those that were purged.
pub(crate) fn check(
    calls: &[Call],
    lives: &BTreeMap<TaskId, Life>,
    clock_difference_ms: u64,
    breaches: &mut Breaches,
) {
    let mut by_key: BTreeMap<&IdempotencyKey, Vec<Hold<'_>>> = BTreeMap::new();
    for (id, life) in lives {
        for (key, hold) in holds(*id, life, calls) {
            by_key.entry(key).or_default().push(hold);
        }
    }
    for (key, mut holds) in by_key {
        holds.sort_by_key(|hold| hold.created_tick);
        for (place, later) in holds.iter().enumerate() {
            for earlier in &holds[..place] {
                // A task that was created late may have held its key before the other one, too.
                if !earlier.may_be_over(later, clock_difference_ms)
                    && !later.may_be_over(earlier, clock_difference_ms)
                {
                    let (one, two) = (earlier.task.id, later.task.id);
                    let text = format!("key {key} has tasks {one} and {two}");
                    breaches.add(Promise::OneTask, text);
                }
            }
        }
    }
    check_purged(calls, breaches);
    for call in calls.iter().filter(|call| call.kind == CallKind::Submit) {
        let (Some(key), Some(id), Reply::Done(_) | Reply::Duplicate(_)) =
            (&call.key, call.task, &call.reply)
        else {
            continue;
        };
        let Some(life) = lives.get(&id).filter(|life| !life.changes.is_empty()) else {
            continue;
        };
        let mut known = life
            .changes
            .iter()
            .filter_map(|change| change.after.as_ref());
        if !known.any(|task| task.idempotency_key.as_ref() == Some(key)) {
            let text = format!(
                "a submit with key {key} was acknowledged as task {id}, which has another key"
            );
            breaches.add(Promise::OneTask, text);
        }
    }
}

/// A purged task does not hold its key: no later submit that asks for another id gets its id.
fn check_purged(calls: &[Call], breaches: &mut Breaches) {
    for purge in calls.iter().filter(|call| call.kind == CallKind::Purge) {
        let (Some(id), Reply::Done(_), Some(purged)) = (purge.task, &purge.reply, purge.answered)
        else {
            continue;
        };
        let mut submits = calls.iter().filter(|call| call.kind == CallKind::Submit);
        // Somebody may use the id again.
        let is_reused = submits.clone().any(|call| {
            let asks_for = call
                .asked
                .as_ref()
                .is_some_and(|asked| asked.id == Some(id));
            asks_for && call.answered.is_none_or(|answered| answered > purge.called)
        });
        let is_stuck = |call: &Call| {
            call.task == Some(id)
                && call.called > purged
                && matches!(call.reply, Reply::Done(_) | Reply::Duplicate(_))
        };
        if !is_reused && let Some(call) = submits.find(|call| is_stuck(call)) {
            let key = call.key.as_ref().map(ToString::to_string);
            let key = key.unwrap_or_default();
            let text = format!("key {key} leads to task {id}, which was purged");
            breaches.add(Promise::OneTask, text);
        }
    }
}

/// The holds of one task, with their key.
fn holds<'a>(
    id: TaskId,
    life: &'a Life,
    calls: &'a [Call],
) -> impl Iterator<Item = (&'a IdempotencyKey, Hold<'a>)> {
    let submits = life.changes.iter().filter_map(|change| {
        let is_submit = change.step == Step::Call(CallKind::Submit);
        let task = change.after.as_deref().filter(|_| is_submit)?;
        Some((change.tick, task, task.idempotency_key.as_ref()?))
    });
    submits.map(move |(created_tick, task, key)| {
        let purges = calls.iter().filter(|call| {
            call.kind == CallKind::Purge
                && call.task == Some(id)
                && call.answered.is_none_or(|answered| answered > created_tick)
        });
        let mut later = life
            .changes
            .iter()
            .filter(|change| change.tick >= created_tick);
        let frees = |task: &Task| match task.idempotency_hold {
            KeyHold::Kept => false,
            KeyHold::Unfinished => task.status.is_terminal(),
            KeyHold::Waiting => !task.has_not_started(),
        };
        let released = later.find(|change| change.after.as_deref().is_some_and(frees));
        let hold = Hold {
            task,
            created_tick,
            purged_tick: purges.map(|call| call.called).min(),
            released_tick: released.map(|change| change.tick),
        };
        (key, hold)
    })
}
