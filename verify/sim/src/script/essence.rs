//! What must be the same of a task and of a refusal, wherever a script was played.

use qo_core::task::{Event, EventAction};
use qo_core::{LeaseId, Task, Timestamp};
use qo_engine::EngineError;

use super::steps::STEP;
use crate::sched::BEGIN_MS;

/// Everything of a task that every engine must agree on.
pub(super) fn essence(task: &Task) -> String {
    // Whatever came by itself came at another moment, and what it has set comes from that.
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

/// A refusal without the lease that it names, which is another one everywhere.
pub(super) fn refusal(error: &EngineError, lease: LeaseId) -> String {
    error.to_string().replace(&lease.to_string(), "the lease")
}

fn is_by_itself(event: &Event) -> bool {
    matches!(
        event.action,
        Some(EventAction::LeaseExpired | EventAction::Expired)
    )
}

/// The step in which something happened.
fn step_of(at: Timestamp) -> i64 {
    let step_ms = i64::try_from(STEP.as_millis()).unwrap_or(1);
    (at.as_millis() - BEGIN_MS).div_euclid(step_ms)
}
