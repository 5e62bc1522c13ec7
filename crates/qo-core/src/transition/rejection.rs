//! Reasons for rejecting a command.

use thiserror::Error;

use crate::id::{LeaseId, TaskId};
use crate::names::QueueName;
use crate::retry::InvalidRetryPolicy;
use crate::task::Status;
use crate::time::Timestamp;

/// Why a command was rejected. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The task does not exist.
    #[error("there is no task {id}")]
    NotFound {
        /// The requested id.
        id: TaskId,
    },
    /// The presented lease is not the current one: it expired, and the task has changed since.
    #[error("lease {presented} is lost: the task is {status}, attempt {attempt}")]
    LeaseLost {
        /// The presented lease.
        presented: LeaseId,
        /// The task's status.
        status: Status,
        /// The task's newest attempt.
        attempt: u32,
    },
    /// The task's status does not allow the action.
    #[error("cannot {action} a task that is {status}")]
    WrongStatus {
        /// The rejected action.
        action: &'static str,
        /// The task's status.
        status: Status,
    },
    /// The task is not due yet.
    #[error("the task is not due until {available_at}")]
    NotDue {
        /// When it becomes due.
        available_at: Timestamp,
    },
    /// The task is already due.
    #[error("the task has been due since {available_at}")]
    AlreadyDue {
        /// When it became due.
        available_at: Timestamp,
    },
    /// The task has expired.
    #[error("the task expired at {expires_at}")]
    Expired {
        /// When it expired.
        expires_at: Timestamp,
    },
    /// The task has not expired.
    #[error("the task has not expired")]
    NotExpired {
        /// When it expires, if ever.
        expires_at: Option<Timestamp>,
    },
    /// The lease of the current attempt has not expired.
    #[error("the lease is valid until {lease_expires_at}")]
    LeaseHolds {
        /// When it expires.
        lease_expires_at: Timestamp,
    },
    /// A cancel of the running attempt was already requested.
    #[error("a cancel was already requested")]
    CancelAlreadyRequested,
    /// The task has reached the maximum number of claims, so there is no further fencing token.
    #[error("the task has reached the maximum number of claims")]
    AttemptsUsedUp,
    /// A payload exceeds its size limit.
    #[error("the {field} has {size} bytes; at most {limit} are allowed here")]
    PayloadTooLarge {
        /// `input` or `output`.
        field: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A value is out of range.
    #[error("{field} must be {allowed}")]
    OutOfBounds {
        /// The field.
        field: &'static str,
        /// The allowed values.
        allowed: &'static str,
    },
    /// The task has failed and stops its ordering key, so it cannot be put away.
    #[error(
        "cannot {action} a task that stops its ordering key: replay it, or cancel it to let the next task run"
    )]
    StopsLine {
        /// The rejected action.
        action: &'static str,
    },
    /// The task has an ordering key, so its line belongs to its queue.
    #[error("cannot {action} a task with an ordering key: its line belongs to its queue")]
    InLine {
        /// The rejected action.
        action: &'static str,
    },
    /// The task is in this queue already.
    #[error("the task is already in the queue {queue}")]
    AlreadyInQueue {
        /// The queue.
        queue: QueueName,
    },
    /// Too many tasks with this ordering key wait.
    #[error(
        "{limit} tasks with this ordering key are already waiting; submit the task again when some have finished"
    )]
    LineFull {
        /// The most tasks that may wait.
        limit: u64,
    },
    /// As many tasks wait in the queue as its settings allow.
    #[error(
        "the queue {queue} is full: {limit} tasks are waiting, which is its maximum; submit the task again when some have started"
    )]
    QueueFull {
        /// The queue.
        queue: QueueName,
        /// The most tasks that may wait.
        limit: u64,
    },
    /// The retry policy is invalid.
    #[error("invalid retry policy: {0}")]
    RetryPolicy(#[from] InvalidRetryPolicy),
}
