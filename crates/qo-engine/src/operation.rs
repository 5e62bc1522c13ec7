//! Operations on one task.

use qo_core::transition::{Failure, ProgressReport};
use qo_core::{Action, Jitter, Json, LeaseId, Payload};

/// One operation on one task.
///
/// Workers present the lease of their claim. An operation with a lease that is no longer current is rejected with
/// [`LeaseLost`](qo_core::Rejection::LeaseLost) and changes nothing. Operators present no lease.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// Extends the lease. The returned task shows whether a cancel was requested.
    Renew {
        /// The lease.
        lease: LeaseId,
        /// The new duration from now; the engine's default if absent.
        lease_ms: Option<u64>,
    },
    /// Reports the progress of an attempt.
    Progress {
        /// The lease.
        lease: LeaseId,
        /// The progress.
        report: ProgressReport,
    },
    /// Ends the attempt successfully and completes the task.
    Complete {
        /// The lease.
        lease: LeaseId,
        /// The output.
        output: Option<Json>,
    },
    /// Ends the attempt with an error.
    Fail {
        /// The lease.
        lease: LeaseId,
        /// What went wrong.
        failure: Failure,
    },
    /// Gives the task back. This does not count against its retries.
    Release {
        /// The lease.
        lease: LeaseId,
    },
    /// Postpones the task. This does not count against its retries.
    Snooze {
        /// The lease.
        lease: LeaseId,
        /// How long.
        delay_ms: u64,
    },
    /// Cancels the task: a pending one immediately, a running one by requesting that its worker stop.
    Cancel {
        /// The reason, for people to read.
        reason: Option<String>,
    },
    /// Makes a pending task due now.
    RunNow,
    /// Runs a finished task again.
    Replay,
    /// Archives a finished task.
    Archive,
    /// Restores an archived task to its previous status.
    Unarchive,
}

impl Operation {
    /// The operation's name in paths, logs and JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Renew { .. } => "renew",
            Self::Progress { .. } => "progress",
            Self::Complete { .. } => "complete",
            Self::Fail { .. } => "fail",
            Self::Release { .. } => "release",
            Self::Snooze { .. } => "snooze",
            Self::Cancel { .. } => "cancel",
            Self::RunNow => "run_now",
            Self::Replay => "replay",
            Self::Archive => "archive",
            Self::Unarchive => "unarchive",
        }
    }

    /// The lease that a worker presents; none for an operator.
    pub fn lease(&self) -> Option<LeaseId> {
        match self {
            Self::Renew { lease, .. }
            | Self::Progress { lease, .. }
            | Self::Complete { lease, .. }
            | Self::Fail { lease, .. }
            | Self::Release { lease }
            | Self::Snooze { lease, .. } => Some(*lease),
            Self::Cancel { .. } | Self::RunNow | Self::Replay | Self::Archive | Self::Unarchive => {
                None
            }
        }
    }

    /// Whether the operation ends the attempt of its lease.
    pub fn ends_attempt(&self) -> bool {
        self.lease().is_some() && !matches!(self, Self::Renew { .. } | Self::Progress { .. })
    }

    /// The output of a completion. The engine stores it before it completes the task.
    pub fn output(&self) -> Option<&Json> {
        match self {
            Self::Complete { output, .. } => output.as_ref(),
            _ => None,
        }
    }

    /// Converts the operation to the core's action. The engine supplies the default lease duration, the place where the output is
    /// stored, and the jitter of the retry delay.
    pub fn into_action(
        self,
        lease_ms: u64,
        stored_output: Option<Payload>,
        jitter: impl FnOnce() -> Jitter,
    ) -> Action {
        match self {
            Self::Renew {
                lease,
                lease_ms: requested_ms,
            } => Action::Renew {
                lease,
                lease_ms: requested_ms.unwrap_or(lease_ms),
            },
            Self::Progress { lease, report } => Action::Progress { lease, report },
            Self::Complete { lease, .. } => Action::Complete {
                lease,
                output: stored_output,
            },
            Self::Fail { lease, failure } => Action::Fail {
                lease,
                failure,
                jitter: jitter(),
            },
            Self::Release { lease } => Action::Release { lease },
            Self::Snooze { lease, delay_ms } => Action::Snooze { lease, delay_ms },
            Self::Cancel { reason } => Action::Cancel {
                reason: reason.map(String::into_boxed_str),
            },
            Self::RunNow => Action::RunNow,
            Self::Replay => Action::Replay,
            Self::Archive => Action::Archive,
            Self::Unarchive => Action::Unarchive,
        }
    }
}
