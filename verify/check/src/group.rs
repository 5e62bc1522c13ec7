//! The single changes of a task that one write contains.
//!
//! An engine that commits in groups stores the result of a group, not every change in it. Each change except a renewal leaves an event, and
//! each change increments the revision. This module rebuilds the states in between from the events by the rules; the last one must be the
//! stored state.

use qo_core::task::{Event, EventAction};
use qo_core::webhook::is_end;
use qo_core::{Action, Command, Status, Task};

use crate::cause::cause_of;

/// The state after each change up to the stored one, each with the event that the change left.
pub(crate) fn unfold<'a>(
    last: Option<&Task>,
    stored: &'a Task,
) -> Result<Vec<(Option<&'a Event>, Task)>, String> {
    let (revision, known) = last.map_or((0, 0), |last| (last.revision, last.events.len()));
    let not_made_from = || {
        format!(
            "revision {} was not made from revision {revision}",
            stored.revision
        )
    };
    if last.is_some_and(|last| stored.events.get(..known) != Some(&last.events[..])) {
        return Err(not_made_from());
    }
    let events = stored.events.get(known..).unwrap_or_default();
    let changes = stored
        .revision
        .checked_sub(revision)
        .filter(|changes| *changes > 0)
        .ok_or_else(not_made_from)?;
    // Only the holder of a lease renews it, and a claim's reply waits until its group is durable. So renewals come before everything
    // but a request to cancel. They leave no event, so their place relative to such a request is unknown; here they come first.
    let renewals = changes
        .checked_sub(events.len() as u64)
        .ok_or_else(not_made_from)?;
    let mut states: Vec<(Option<&Event>, Task)> = Vec::new();
    for _ in 0..renewals {
        let before = states.last().map(|(_, task)| task).or(last);
        // A fence of a pending task leaves no event, either.
        let mut task = before
            .filter(|task| matches!(task.status, Status::Pending | Status::Running))
            .ok_or_else(not_made_from)?
            .clone();
        task.revision += 1;
        task.op_id = None;
        states.push((None, task));
    }
    for event in events {
        let before = states.last().map(|(_, task)| task).or(last);
        states.push((Some(event), after(before, event, stored)));
    }
    if let Some((_, task)) = states.last_mut() {
        *task = stored.clone();
    }
    Ok(states)
}

/// The state after a change that a later change of the same group hides.
fn after(before: Option<&Task>, event: &Event, stored: &Task) -> Task {
    let mut task = before.unwrap_or(stored).clone();
    if let (Some(EventAction::Amended), Some(op)) = (event.action, event.op_id) {
        // Of several amendments in a group, only the result of all is known.
        let action = Action::Amend {
            input: Some(stored.input()),
            available_at: Some(stored.available_at),
        };
        if task.apply(Command { op, action }, event.at).is_ok() {
            return task;
        }
    }
    let was = before.map(|before| before.status);
    task.status = event.to;
    task.op_id = event.op_id;
    if was.is_some_and(|was| is_end(was, event.to)) {
        task.completed_at = Some(event.at);
    }
    if event.action == Some(EventAction::Redriven) {
        task.queue.clone_from(&stored.queue);
        task.idempotency_queue.clone_from(&stored.idempotency_queue);
    }
    match (was, event.to) {
        (None, _) => {
            task.revision = 1;
            task.attempt = 0;
            task.retry_count = 0;
            task.lease_id = None;
            return task;
        }
        (Some(Status::Pending), Status::Running) => {
            // The attempt is the stored one: nobody can end it before its claim is durable.
            task.attempt += 1;
            task.lease_id = stored.lease_id;
            task.worker_id.clone_from(&stored.worker_id);
            task.started_at = stored.started_at;
            task.lease_expires_at = stored.lease_expires_at;
        }
        (Some(Status::Running), Status::Running) => task.cancel_requested = true,
        (Some(Status::Pending), Status::Pending) => {
            // It was moved, amended or made due.
            task.available_at = stored.available_at;
        }
        (Some(Status::Running), to) => {
            task.lease_id = None;
            task.lease_expires_at = None;
            task.cancel_requested &= to != Status::Pending;
            if to == Status::Pending && cause_of(event).counts_as_retry() {
                task.retry_count += 1;
            }
            task.available_at = stored.available_at;
        }
        (Some(_), Status::Pending) => {
            task.retry_count = 0;
            task.cancel_requested = false;
            task.available_at = stored.available_at;
            task.expires_at = stored.expires_at;
            task.max_wait_ms = stored.max_wait_ms;
        }
        _ => {}
    }
    task.revision += 1;
    task
}
