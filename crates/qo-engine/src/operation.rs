//! Operations on one task.

use qo_core::transition::{Failure, ProgressReport};
use qo_core::{Action, Actor, Jitter, Json, LeaseId, Payload, QueueName};

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
    /// Moves a pending task to another queue, or runs a failed one again there.
    Redrive {
        /// The queue.
        to: QueueName,
    },
    /// Archives a finished task.
    Archive,
    /// Restores an archived task to its previous status.
    Unarchive,
    /// The end of an attempt, with the end of what its handler printed.
    Logged {
        /// The log. Only its end is kept if it is long.
        log: Box<str>,
        /// How the attempt ends.
        operation: Box<Operation>,
    },
    /// An operation whose author the task's history names.
    By {
        /// Who requests it.
        actor: Actor,
        /// What is requested.
        operation: Box<Operation>,
    },
}

impl Operation {
    /// The operation in the name of an actor, if there is one.
    #[must_use]
    pub fn by(self, actor: Option<&Actor>) -> Self {
        match actor {
            None => self,
            Some(actor) => Self::By {
                actor: actor.clone(),
                operation: Box::new(self),
            },
        }
    }

    /// The operation with the log of the attempt that it ends, if there is one.
    #[must_use]
    pub fn logged(self, log: Option<&str>) -> Self {
        match log.filter(|log| !log.is_empty()) {
            None => self,
            Some(log) => Self::Logged {
                log: log.into(),
                operation: Box::new(self),
            },
        }
    }

    /// The operation without its author, and the author.
    pub fn split(self) -> (Self, Option<Actor>) {
        match self {
            Self::By { actor, operation } => (operation.split().0, Some(actor)),
            operation => (operation, None),
        }
    }

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
            Self::Redrive { .. } => "redrive",
            Self::Archive => "archive",
            Self::Unarchive => "unarchive",
            Self::By { operation, .. } | Self::Logged { operation, .. } => operation.name(),
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
            Self::Cancel { .. }
            | Self::RunNow
            | Self::Replay
            | Self::Redrive { .. }
            | Self::Archive
            | Self::Unarchive => None,
            Self::By { operation, .. } | Self::Logged { operation, .. } => operation.lease(),
        }
    }

    /// Whether the operation ends the attempt of its lease.
    pub fn ends_attempt(&self) -> bool {
        match self {
            Self::By { operation, .. } | Self::Logged { operation, .. } => operation.ends_attempt(),
            Self::Renew { .. } | Self::Progress { .. } => false,
            operation => operation.lease().is_some(),
        }
    }

    /// The output of a completion. The engine stores it before it completes the task.
    pub fn output(&self) -> Option<&Json> {
        match self {
            Self::Complete { output, .. } => output.as_ref(),
            Self::By { operation, .. } | Self::Logged { operation, .. } => operation.output(),
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
            Self::Redrive { to } => Action::Redrive { to },
            Self::Archive => Action::Archive,
            Self::Unarchive => Action::Unarchive,
            Self::Logged { log, operation } => Action::Logged {
                log,
                action: Box::new(operation.into_action(lease_ms, stored_output, jitter)),
            },
            Self::By { actor, operation } => Action::By {
                actor,
                action: Box::new(operation.into_action(lease_ms, stored_output, jitter)),
            },
        }
    }
}
