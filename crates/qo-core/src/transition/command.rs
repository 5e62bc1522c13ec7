//! Commands that change a task.

use serde::{Deserialize, Serialize};

use crate::id::{LeaseId, OpId};
use crate::names::{Actor, QueueName, WorkerId};
use crate::payload::Payload;
use crate::retry::Jitter;
use crate::task::{EventAction, Status};
use crate::time::Timestamp;

/// A request to change a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Identifies the change, so that its author recognises it in the stored record.
    pub op: OpId,
    /// The requested change.
    pub action: Action,
}

/// A change of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Starts an attempt. The attempt counts even if its worker dies at once.
    Claim {
        /// The worker that runs the attempt.
        worker: WorkerId,
        /// The id of the new lease.
        lease: LeaseId,
        /// The duration of the lease without a renewal.
        lease_ms: u64,
    },
    /// Extends the lease of an attempt.
    Renew {
        /// The lease of the attempt.
        lease: LeaseId,
        /// The new duration of the lease, counted from now.
        lease_ms: u64,
    },
    /// Reports the progress of an attempt.
    Progress {
        /// The lease of the attempt.
        lease: LeaseId,
        /// The reported progress.
        report: ProgressReport,
    },
    /// Completes the attempt and the task.
    Complete {
        /// The lease of the attempt.
        lease: LeaseId,
        /// The output of the attempt.
        output: Option<Payload>,
    },
    /// Fails the attempt.
    Fail {
        /// The lease of the attempt.
        lease: LeaseId,
        /// The error and its kind.
        failure: Failure,
        /// Spreads the delay before the next attempt.
        jitter: Jitter,
    },
    /// Returns the task to the queue at once because its worker stops. It does not count as a retry.
    Release {
        /// The lease of the attempt.
        lease: LeaseId,
    },
    /// Delays the task. It does not count as a retry.
    Snooze {
        /// The lease of the attempt.
        lease: LeaseId,
        /// The delay.
        delay_ms: u64,
    },
    /// Ends an attempt whose lease has expired.
    ExpireLease {
        /// Spreads the delay before the next attempt.
        jitter: Jitter,
    },
    /// Cancels a pending task that has expired.
    Expire,
    /// Cancels a pending task at once, or requests that the worker of a running task stops.
    Cancel {
        /// The reason.
        reason: Option<Box<str>>,
    },
    /// Makes a scheduled task due now.
    RunNow,
    /// Changes a task that waits for its first attempt.
    Amend {
        /// Its new input.
        input: Option<Payload>,
        /// Its new due time, if that is later.
        available_at: Option<Timestamp>,
    },
    /// Makes a claim of a pending task fail that read the task before this change. Nothing else changes. Direct mode takes the slot of a limit
    /// from a claimer that may have died.
    Fence,
    /// Starts a finished task over.
    Replay,
    /// Moves a pending task to another queue, or starts a failed one over there.
    Redrive {
        /// The queue.
        to: QueueName,
    },
    /// Archives a finished task.
    Archive,
    /// Undoes an archive.
    Unarchive,
    /// The end of an attempt, with the end of what its handler printed.
    Logged {
        /// The log. Only its end is kept if it is long.
        log: Box<str>,
        /// How the attempt ends.
        action: Box<Action>,
    },
    /// Any of these, requested by someone whom the history names.
    By {
        /// Who requested it.
        actor: Actor,
        /// The change.
        action: Box<Action>,
    },
}

impl Action {
    /// The change itself, and who requested it.
    pub(super) fn split(self) -> (Self, Option<Actor>) {
        match self {
            Self::By { actor, action } => (action.split().0, Some(actor)),
            action => (action, None),
        }
    }

    /// The change itself, and the log of the attempt that it ends.
    pub(super) fn split_log(self) -> (Self, Option<Box<str>>) {
        match self {
            Self::Logged { log, action } => (action.split_log().0, Some(log)),
            action => (action, None),
        }
    }

    /// The action that the history records for a task with this status. Renewals, progress reports and fences are not recorded.
    pub(super) fn event_action(&self, status: Status) -> EventAction {
        match self {
            Self::Claim { .. } | Self::Renew { .. } | Self::Progress { .. } | Self::Fence => {
                EventAction::Claimed
            }
            Self::Complete { .. } => EventAction::Completed,
            Self::Fail { .. } => EventAction::Failed,
            Self::Release { .. } => EventAction::Released,
            Self::Snooze { .. } => EventAction::Snoozed,
            Self::ExpireLease { .. } => EventAction::LeaseExpired,
            Self::Expire => EventAction::Expired,
            Self::Cancel { .. } if status == Status::Running => EventAction::CancelRequested,
            Self::Cancel { .. } => EventAction::Cancelled,
            Self::RunNow => EventAction::RunNow,
            Self::Amend { .. } => EventAction::Amended,
            Self::Replay => EventAction::Replayed,
            Self::Redrive { .. } => EventAction::Redriven,
            Self::Archive => EventAction::Archived,
            Self::Unarchive => EventAction::Unarchived,
            Self::By { action, .. } | Self::Logged { action, .. } => action.event_action(status),
        }
    }

    /// The action's name in messages and documents.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Claim { .. } => "claim",
            Self::Renew { .. } => "renew",
            Self::Progress { .. } => "progress",
            Self::Complete { .. } => "complete",
            Self::Fail { .. } => "fail",
            Self::Release { .. } => "release",
            Self::Snooze { .. } => "snooze",
            Self::ExpireLease { .. } => "expire lease",
            Self::Expire => "expire",
            Self::Cancel { .. } => "cancel",
            Self::RunNow => "run now",
            Self::Amend { .. } => "amend",
            Self::Fence => "fence",
            Self::Replay => "replay",
            Self::Redrive { .. } => "redrive",
            Self::Archive => "archive",
            Self::Unarchive => "unarchive",
            Self::By { action, .. } | Self::Logged { action, .. } => action.name(),
        }
    }
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Decides whether the task is retried.
    pub kind: FailureKind,
    /// The error message; truncated at 4 KiB.
    pub error: Box<str>,
}

/// The kind of a failure. It decides whether the task is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// A retry may succeed.
    #[default]
    Retryable,
    /// No retry can succeed.
    Permanent,
    /// The attempt took too long. A retry may succeed.
    Timeout,
    /// The handler stopped because the task was cancelled.
    Cancelled,
}

/// The progress of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressReport {
    /// From 0 to 100.
    pub percent: f64,
    /// What the attempt is doing; truncated at 256 bytes.
    pub message: Option<Box<str>>,
}
