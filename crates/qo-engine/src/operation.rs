//! What a caller can do with one task.

use qo_core::transition::{Failure, ProgressReport};
use qo_core::{Action, Jitter, Json, LeaseId, Payload};

/// One operation on one task.
///
/// Workers present the lease of their claim; an operation with a lease that is no longer current is rejected with
/// [`LeaseLost`](qo_core::Rejection::LeaseLost) and changes nothing. Operators present nothing.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// Extends the lease. The returned task says whether a cancel was requested.
    Renew {
        /// The lease.
        lease: LeaseId,
        /// How long it holds from now on; the engine's default, if absent.
        lease_ms: Option<u64>,
    },
    /// Reports the progress of an attempt.
    Progress {
        /// The lease.
        lease: LeaseId,
        /// The progress.
        report: ProgressReport,
    },
    /// Ends the attempt and the task with success.
    Complete {
        /// The lease.
        lease: LeaseId,
        /// The output.
        output: Option<Json>,
    },
    /// Ends the attempt without success.
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
        /// For how long.
        delay_ms: u64,
    },
    /// Cancels the task: a pending one at once, a running one by asking its worker to stop.
    Cancel {
        /// Why, for a person to read.
        reason: Option<String>,
    },
    /// Makes a pending task due at once.
    RunNow,
    /// Starts a finished task over.
    Replay,
    /// Archives a finished task.
    Archive,
    /// Undoes an archive.
    Unarchive,
}

impl Operation {
    /// Its name in paths, logs and documents.
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

    /// Whether it ends the attempt of its lease.
    pub fn ends_attempt(&self) -> bool {
        self.lease().is_some() && !matches!(self, Self::Renew { .. } | Self::Progress { .. })
    }

    /// The output of a completion, which an engine stores before it completes the task.
    pub fn output(&self) -> Option<&Json> {
        match self {
            Self::Complete { output, .. } => output.as_ref(),
            _ => None,
        }
    }

    /// The core's form of the operation. The engine adds how long a renewed lease holds by default, where the output of a completion
    /// is stored, and the jitter that spreads the wait before the next attempt.
    pub fn into_action(
        self,
        lease_ms: u64,
        stored_output: Option<Payload>,
        jitter: impl FnOnce() -> Jitter,
    ) -> Action {
        match self {
            Self::Renew {
                lease,
                lease_ms: wanted_ms,
            } => Action::Renew {
                lease,
                lease_ms: wanted_ms.unwrap_or(lease_ms),
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
