//! The parts of a task and of an error that must be equal on every engine.

use qo_core::task::{Event, EventAction};
use qo_core::{LeaseId, Task, Timestamp};
use qo_engine::EngineError;

use super::steps::STEP;
use crate::sched::BEGIN_MS;

/// Every part of a task that all engines must agree on.
pub(super) fn essence(task: &Task) -> String {
    // Expiries happen at different times on different engines, and so do their effects.
    let is_last = task.events.last().is_some_and(is_by_itself);
    let is_among = task.events.iter().any(is_by_itself);
    let unless = |by_itself: bool, at: Timestamp| (!by_itself).then(|| step_of(at));
    let events: Vec<_> = task
        .events
        .iter()
        .map(|event| {
            let at = (!is_by_itself(event)).then(|| step_of(event.at));
            let worker = event.worker.as_ref().map(ToString::to_string);
            (
                at,
                event.from,
                event.to,
                event.attempt,
                worker,
                &event.error,
            )
        })
        .collect();
    format!(
        "{} {} queue {} priority {} revision {} attempt {} retries {} of {} | error {:?} input {:?} output {:?} worker {:?} cancel {} progress {:?} | created {} available {:?} expires {:?} started {:?} lease {:?} updated {:?} completed {:?} | {events:?}",
        task.id,
        task.status,
        task.queue,
        task.priority,
        task.revision,
        task.attempt,
        task.retry_count,
        task.max_retries,
        task.last_error,
        task.input(),
        task.output(),
        task.worker_id,
        task.cancel_requested,
        task.progress
            .as_ref()
            .map(|progress| (progress.percent, step_of(progress.at))),
        step_of(task.created_at),
        unless(is_among, task.available_at),
        task.expires_at.map(step_of),
        task.started_at.map(step_of),
        task.lease_expires_at.map(step_of),
        unless(is_last, task.updated_at),
        task.completed_at.map(|at| unless(is_among, at)),
    )
}

/// An error without its lease id, which differs between engines.
pub(super) fn refusal(error: &EngineError, lease: LeaseId) -> String {
    error.to_string().replace(&lease.to_string(), "the lease")
}

fn is_by_itself(event: &Event) -> bool {
    matches!(
        event.action,
        Some(EventAction::LeaseExpired | EventAction::Expired)
    )
}

/// The number of the step at this time.
fn step_of(at: Timestamp) -> i64 {
    let step_ms = i64::try_from(STEP.as_millis()).unwrap_or(1);
    (at.as_millis() - BEGIN_MS).div_euclid(step_ms)
}
