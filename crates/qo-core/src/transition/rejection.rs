//! Why a command was not carried out.

use thiserror::Error;

use crate::id::{LeaseId, TaskId};
use crate::retry::InvalidRetryPolicy;
use crate::task::Status;
use crate::time::Timestamp;

/// Why a command was not carried out. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Rejection {
    /// There is no such task.
    #[error("there is no task {id}")]
    NotFound {
        /// The id that was asked for.
        id: TaskId,
    },
    /// The presented claim is not the current one: the lease ran out and the task has moved on.
    #[error("lease {presented} is lost: the task is {status}, attempt {attempt}")]
    LeaseLost {
        /// The claim that was presented.
        presented: LeaseId,
        /// What the task is now.
        status: Status,
        /// Its newest attempt.
        attempt: u32,
    },
    /// The task is in a status in which this cannot be done.
    #[error("cannot {action} a task that is {status}")]
    WrongStatus {
        /// What was asked.
        action: &'static str,
        /// What the task is.
        status: Status,
    },
    /// The task cannot be claimed yet.
    #[error("the task is not due before {available_at}")]
    NotDue {
        /// When it can.
        available_at: Timestamp,
    },
    /// The task can be claimed already.
    #[error("the task is due since {available_at}")]
    AlreadyDue {
        /// Since when it can.
        available_at: Timestamp,
    },
    /// The task waited longer than it is worth.
    #[error("the task expired at {expires_at}")]
    Expired {
        /// When it did.
        expires_at: Timestamp,
    },
    /// The task has not waited that long yet.
    #[error("the task has not expired")]
    NotExpired {
        /// When it will, if ever.
        expires_at: Option<Timestamp>,
    },
    /// The current attempt still has time.
    #[error("the lease holds until {lease_expires_at}")]
    LeaseHolds {
        /// When it runs out.
        lease_expires_at: Timestamp,
    },
    /// The running attempt was already asked to stop.
    #[error("a cancel was already requested")]
    CancelAlreadyRequested,
    /// The fencing token cannot go any higher.
    #[error("the task was claimed too often to be claimed again")]
    AttemptsUsedUp,
    /// A payload is too large to be kept inside the record.
    #[error("the {field} has {size} bytes; at most {limit} are allowed here")]
    PayloadTooLarge {
        /// `input` or `output`.
        field: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A value is outside of its bounds.
    #[error("{field} must be {allowed}")]
    OutOfBounds {
        /// The field.
        field: &'static str,
        /// What it may be.
        allowed: &'static str,
    },
    /// The retry policy makes no sense.
    #[error("the retry policy makes no sense: {0}")]
    RetryPolicy(#[from] InvalidRetryPolicy),
}
