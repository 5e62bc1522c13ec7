//! A submit that was to replace the input of the task that holds its key, or to postpone it, and was acknowledged, has done so.
//!
//! The reply shows a revision of that task. If the task had not started then, it was amended, or nothing was left to change: that revision has
//! the input of the submit, and is not due before its time, less what the clocks of two processes may differ. A task that was moved out of the queue
//! in which the key holds is not amended.

use std::collections::BTreeMap;

use qo_core::{Json, Payload, Task, TaskId};

use crate::call::{Asked, Call, CallKind, Reply, TaskView};
use crate::life::Life;
use crate::promise::{Breaches, Promise};

/// Checks all submits that found their key held.
pub(crate) fn check(
    calls: &[Call],
    lives: &BTreeMap<TaskId, Life>,
    clock_difference_ms: u64,
    breaches: &mut Breaches,
) {
    for call in calls.iter().filter(|call| call.kind == CallKind::Submit) {
        let (Reply::Duplicate(view), Some(asked), Some(id)) = (&call.reply, &call.asked, call.task)
        else {
            continue;
        };
        // A repeated submit finds its own task and changes nothing.
        let holder = lives.get(&id).filter(|_| asked.id != Some(id));
        let Some(task) = holder.and_then(|life| stored_as(life, *view)) else {
            continue;
        };
        if let Some(wrong) = problem(asked, task, clock_difference_ms) {
            let text = format!(
                "task {id}: a submit with its key was acknowledged with revision {}, which {wrong}",
                view.revision
            );
            breaches.add(Promise::NothingLost, text);
        }
    }
}

/// The stored task that a reply shows. Of several changes in one write, only the last is known exactly.
fn stored_as(life: &Life, view: TaskView) -> Option<&Task> {
    let position = life.changes.iter().position(|change| {
        let task = change.after.as_deref();
        task.is_some_and(|task| TaskView::of(task) == view)
    })?;
    let change = &life.changes[position];
    let is_last = (life.changes.get(position + 1)).is_none_or(|next| next.tick != change.tick);
    change.after.as_deref().filter(|_| is_last)
}

fn problem(asked: &Asked, task: &Task, clock_difference_ms: u64) -> Option<&'static str> {
    // The submitters of a key have no say in the queue to which its task was moved.
    if !task.has_not_started() || task.idempotency_queue.is_some() {
        return None;
    }
    if asked.on_conflict.replaces() && !is_input(&task.input(), &asked.input) {
        return Some("has another input");
    }
    let due = asked.due.minus_millis(clock_difference_ms);
    // A task that expires before the new time may have been left as it was.
    let expires = task.pending_until().is_some_and(|until| until <= asked.due);
    let is_early = task.available_at < due && !expires;
    (asked.on_conflict.postpones() && is_early).then_some("is due earlier")
}

fn is_input(stored: &Payload, input: &Json) -> bool {
    match stored {
        Payload::Inline(json) => json == input,
        Payload::Stored(reference) => {
            reference.sha256 == qo_engine::payload::digest(input.as_str().as_bytes())
        }
    }
}
