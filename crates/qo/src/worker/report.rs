//! Outcomes of attempts, and their counts.

use std::sync::Mutex;

use qo_core::{Status, Task, Timestamp};

use crate::lock;

/// Outcome of an attempt, as stored in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// The task completed.
    Completed,
    /// The attempt failed, and the task will be retried.
    Retried {
        /// When the retry is due.
        at: Timestamp,
    },
    /// The task failed permanently.
    Failed,
    /// The task was cancelled.
    Cancelled,
    /// The task was snoozed.
    Snoozed {
        /// When it is due again.
        until: Timestamp,
    },
    /// The task was released because the worker stopped.
    Released,
    /// Nothing was stored: the attempt was no longer current.
    Lost,
    /// Nothing was stored: the worker stopped immediately, or the store was unavailable for too long. The task is retried when its
    /// lease expires.
    Abandoned,
}

impl AttemptOutcome {
    /// The outcome of a failed attempt, from the task after it.
    pub(super) fn of_failure(task: &Task) -> Self {
        match task.status {
            Status::Pending => Self::Retried {
                at: task.available_at,
            },
            Status::Cancelled => Self::Cancelled,
            _ => Self::Failed,
        }
    }
}

/// Number of attempts by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WorkerReport {
    /// Completed.
    pub completed: u64,
    /// Failed, and will be retried.
    pub retried: u64,
    /// Failed permanently.
    pub failed: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Snoozed.
    pub snoozed: u64,
    /// Released.
    pub released: u64,
    /// No longer current at their end.
    pub lost: u64,
    /// Abandoned, and retried when their leases expire.
    pub abandoned: u64,
}

/// Report of [`Worker::drain`](super::Worker::drain).
pub type DrainReport = WorkerReport;

impl WorkerReport {
    /// Total number of attempts.
    pub fn attempts(&self) -> u64 {
        self.completed
            + self.retried
            + self.failed
            + self.cancelled
            + self.snoozed
            + self.released
            + self.lost
            + self.abandoned
    }

    /// Number of failed attempts, retried or not.
    pub fn failures(&self) -> u64 {
        self.retried + self.failed
    }
}

/// Counts outcomes.
#[derive(Default)]
pub(super) struct OutcomeCounters(Mutex<WorkerReport>);

impl OutcomeCounters {
    pub(super) fn count(&self, outcome: AttemptOutcome) {
        let mut report = lock(&self.0);
        let number = match outcome {
            AttemptOutcome::Completed => &mut report.completed,
            AttemptOutcome::Retried { .. } => &mut report.retried,
            AttemptOutcome::Failed => &mut report.failed,
            AttemptOutcome::Cancelled => &mut report.cancelled,
            AttemptOutcome::Snoozed { .. } => &mut report.snoozed,
            AttemptOutcome::Released => &mut report.released,
            AttemptOutcome::Lost => &mut report.lost,
            AttemptOutcome::Abandoned => &mut report.abandoned,
        };
        *number += 1;
    }

    pub(super) fn report(&self) -> WorkerReport {
        *lock(&self.0)
    }
}
