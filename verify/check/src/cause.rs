//! Why an attempt, or a pending task, ended: read from the event that it left.

use qo_core::task::{Event, EventAction};

/// The reason for a change that ended an attempt or a pending task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The lease expired.
    LeaseExpired,
    /// The worker released the task.
    Released,
    /// The worker snoozed the task.
    Snoozed,
    /// The task waited past its expiry.
    TaskExpired,
    /// A caller requested it: a failure, a completion or a cancellation.
    Requested,
}

impl Cause {
    /// Whether the end counts as a retry if the task is pending again.
    pub fn counts_as_retry(self) -> bool {
        !matches!(self, Self::Released | Self::Snoozed)
    }
}

/// The cause that an event records.
pub fn cause_of(event: &Event) -> Cause {
    match event.action {
        Some(EventAction::Expired) => Cause::TaskExpired,
        Some(EventAction::LeaseExpired) => Cause::LeaseExpired,
        Some(EventAction::Released) => Cause::Released,
        Some(EventAction::Snoozed) => Cause::Snoozed,
        _ => Cause::Requested,
    }
}
