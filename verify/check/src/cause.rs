//! Why an attempt, or a pending task, ended: read from the event that it left.

use qo_core::Status;
use qo_core::task::Event;

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
    /// Somebody requested it: a failure, a completion or a cancellation.
    Requested,
}

impl Cause {
    /// Whether the end counts as a retry if the task is pending again.
    pub fn counts_as_retry(self) -> bool {
        !matches!(self, Self::Released | Self::Snoozed)
    }
}

/// The cause that an event records. This is the only place that reads an event's text.
pub fn cause_of(event: &Event) -> Cause {
    let text = event.error.as_deref().unwrap_or_default();
    match event.from {
        Some(Status::Pending) if event.to == Status::Cancelled && text.starts_with("expired") => {
            Cause::TaskExpired
        }
        Some(Status::Running) if text.starts_with("the lease ran out") => Cause::LeaseExpired,
        Some(Status::Running) if text.starts_with("released") => Cause::Released,
        Some(Status::Running) if text.starts_with("snoozed") => Cause::Snoozed,
        _ => Cause::Requested,
    }
}
