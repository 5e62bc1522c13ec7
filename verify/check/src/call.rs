//! One call of an engine, and its reply.

use qo_core::{IdempotencyKey, LeaseId, Rejection, Status, Task, TaskId};
use qo_engine::EngineError;
use qo_engine::api::Submitted;
use qo_store::StoreError;

/// Identifies the process that made a call.
pub type CallerId = u32;

/// The operation that was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallKind {
    /// Submit a task.
    Submit,
    /// Claim any task.
    Claim,
    /// Renew a lease or report progress.
    Renew,
    /// End an attempt with success.
    Complete,
    /// End an attempt with a failure.
    Fail,
    /// Return a task without counting the attempt as a retry.
    Release,
    /// Return a task until later without counting the attempt as a retry.
    Snooze,
    /// Cancel a task.
    Cancel,
    /// Start a finished task over.
    Replay,
    /// Move a waiting or failed task to another queue.
    Redrive,
    /// Archive a finished task.
    Archive,
    /// Take a task out of the archive.
    Unarchive,
    /// Remove a task.
    Purge,
    /// Read a task.
    Get,
}

/// The part of a task that replies are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskView {
    /// Its status.
    pub status: Status,
    /// The number of its attempts.
    pub attempt: u32,
    /// Its revision.
    pub revision: u64,
    /// The lease of the current attempt.
    pub lease: Option<LeaseId>,
}

impl TaskView {
    /// The view of a task.
    pub fn of(task: &Task) -> Self {
        Self {
            status: task.status,
            attempt: task.attempt,
            revision: task.revision,
            lease: task.lease_id,
        }
    }
}

/// The reply to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// None, or one that leaves open whether the call took effect.
    Unknown,
    /// Success, with the task after it.
    Done(Option<TaskView>),
    /// The submitted task existed before.
    Duplicate(TaskView),
    /// The rules refused the call. Nothing changed.
    Rejected(Rejection),
    /// The call failed for another reason. Nothing changed.
    Failed(String),
}

impl Reply {
    /// The reply to a submit.
    pub fn to_submit(submitted: &Submitted) -> Self {
        let view = TaskView::of(&submitted.task);
        if submitted.duplicate {
            Self::Duplicate(view)
        } else {
            Self::Done(Some(view))
        }
    }
}

/// The reply that an engine's result stands for.
pub fn reply_to<T>(result: &Result<T, EngineError>, success: impl FnOnce(&T) -> Reply) -> Reply {
    match result {
        Ok(value) => success(value),
        Err(EngineError::Rejected(rejection)) => Reply::Rejected(rejection.clone()),
        // A broker that is replaced or closed does not know the fate of the writes in flight.
        Err(
            EngineError::NotLeader
            | EngineError::Closed
            | EngineError::Store(StoreError::Unavailable { in_doubt: true, .. }),
        ) => Reply::Unknown,
        Err(error) => Reply::Failed(error.to_string()),
    }
}

/// One recorded call.
#[derive(Debug, Clone)]
pub struct Call {
    /// The process that made it.
    pub caller: CallerId,
    /// The operation.
    pub kind: CallKind,
    /// The task that the call named, or that its reply handed out or created instead.
    pub task: Option<TaskId>,
    /// The lease that the call presented.
    pub lease: Option<LeaseId>,
    /// The idempotency key that the call presented.
    pub key: Option<IdempotencyKey>,
    /// When it was made, as a position in the order of all recorded events.
    pub called: u64,
    /// When it was answered, if it was.
    pub answered: Option<u64>,
    /// Its reply.
    pub reply: Reply,
}
