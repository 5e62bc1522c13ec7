//! What can be asked of a task.

use serde::{Deserialize, Serialize};

use crate::id::{LeaseId, OpId};
use crate::names::WorkerId;
use crate::payload::Payload;
use crate::retry::Jitter;
use crate::task::{EventAction, Status};

/// A change that somebody asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Names the change, so that its author recognises it in the stored record.
    pub op: OpId,
    /// What to do.
    pub action: Action,
}

/// What to do with a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Start an attempt. The attempt counts from here on, whatever becomes of its worker.
    Claim {
        /// Who runs it.
        worker: WorkerId,
        /// The new claim.
        lease: LeaseId,
        /// How long the claim holds without a renewal.
        lease_ms: u64,
    },
    /// Keep an attempt alive.
    Renew {
        /// The claim.
        lease: LeaseId,
        /// How long it holds from now on.
        lease_ms: u64,
    },
    /// Say how far an attempt is.
    Progress {
        /// The claim.
        lease: LeaseId,
        /// How far it is.
        report: ProgressReport,
    },
    /// End an attempt, and the task, with success.
    Complete {
        /// The claim.
        lease: LeaseId,
        /// What came of it.
        output: Option<Payload>,
    },
    /// End an attempt without success.
    Fail {
        /// The claim.
        lease: LeaseId,
        /// What went wrong.
        failure: Failure,
        /// Spreads the wait before the next attempt.
        jitter: Jitter,
    },
    /// Give a task back because its worker stops: at once, and not counted against the retries.
    Release {
        /// The claim.
        lease: LeaseId,
    },
    /// Put a task off, not counted against the retries.
    Snooze {
        /// The claim.
        lease: LeaseId,
        /// For how long.
        delay_ms: u64,
    },
    /// End an attempt whose lease has run out.
    ExpireLease {
        /// Spreads the wait before the next attempt.
        jitter: Jitter,
    },
    /// Call off a pending task that waited longer than it is worth.
    Expire,
    /// Call a task off: a pending one at once, a running one by asking its worker.
    Cancel {
        /// Why.
        reason: Option<Box<str>>,
    },
    /// Make a pending task due that would be due later.
    RunNow,
    /// Start over a task that has come to its end.
    Replay,
    /// Put away a task that has come to its end.
    Archive,
    /// Undo an archive.
    Unarchive,
}

impl Action {
    /// What the history says of this action on a task of that status. Renewals and progress reports leave no event.
    pub(super) fn event_action(&self, status: Status) -> EventAction {
        match self {
            Self::Claim { .. } | Self::Renew { .. } | Self::Progress { .. } => EventAction::Claimed,
            Self::Complete { .. } => EventAction::Completed,
            Self::Fail { .. } => EventAction::Failed,
            Self::Release { .. } => EventAction::Released,
            Self::Snooze { .. } => EventAction::Snoozed,
            Self::ExpireLease { .. } => EventAction::LeaseExpired,
            Self::Expire => EventAction::Expired,
            Self::Cancel { .. } if status == Status::Running => EventAction::CancelRequested,
            Self::Cancel { .. } => EventAction::Cancelled,
            Self::RunNow => EventAction::RunNow,
            Self::Replay => EventAction::Replayed,
            Self::Archive => EventAction::Archived,
            Self::Unarchive => EventAction::Unarchived,
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
            Self::Replay => "replay",
            Self::Archive => "archive",
            Self::Unarchive => "unarchive",
        }
    }
}

/// What went wrong in an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What follows from it.
    pub kind: FailureKind,
    /// What to tell a person; cut at 4 KiB.
    pub error: Box<str>,
}

/// What follows from a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// It may go well next time.
    #[default]
    Retryable,
    /// It will never go well.
    Permanent,
    /// It took too long; it may go well next time.
    Timeout,
    /// The handler stopped because the task was called off.
    Cancelled,
}

/// How far an attempt is.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressReport {
    /// 0 to 100.
    pub percent: f64,
    /// What it is doing; cut at 256 bytes.
    pub message: Option<Box<str>>,
}
