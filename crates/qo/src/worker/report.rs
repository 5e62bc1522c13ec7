//! What came of attempts, one by one and all together.

use std::sync::Mutex;

use qo_core::{Status, Task, Timestamp};

use crate::lock;

/// What became of a task by an attempt, as it is written in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It is done.
    Completed,
    /// The attempt failed, and the task comes back.
    Retried {
        /// When.
        at: Timestamp,
    },
    /// It has failed, for good.
    Failed,
    /// It was called off.
    Cancelled,
    /// It was put off.
    Snoozed {
        /// Until then.
        until: Timestamp,
    },
    /// It was given back, because the worker stops.
    Released,
    /// Nothing was written: the attempt was no longer the current one.
    Lost,
    /// Nothing was written: the worker stopped at once, or the store did not take it for too long. The lease runs out by itself.
    Abandoned,
}

impl Outcome {
    /// What a failure has made of its task.
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

/// How many attempts came to which end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WorkerReport {
    /// Done.
    pub completed: u64,
    /// Failed, to be retried.
    pub retried: u64,
    /// Failed for good.
    pub failed: u64,
    /// Called off.
    pub cancelled: u64,
    /// Put off.
    pub snoozed: u64,
    /// Given back.
    pub released: u64,
    /// No longer the current attempt when they ended.
    pub lost: u64,
    /// Left alone: their leases run out by themselves.
    pub abandoned: u64,
}

/// What [`Worker::drain`](super::Worker::drain) has done.
pub type DrainReport = WorkerReport;

impl WorkerReport {
    /// How many attempts there were.
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

    /// How many attempts failed, for good or not.
    pub fn failures(&self) -> u64 {
        self.retried + self.failed
    }
}

/// Counts outcomes.
#[derive(Default)]
pub(super) struct Counters(Mutex<WorkerReport>);

impl Counters {
    pub(super) fn count(&self, outcome: Outcome) {
        let mut report = lock(&self.0);
        let number = match outcome {
            Outcome::Completed => &mut report.completed,
            Outcome::Retried { .. } => &mut report.retried,
            Outcome::Failed => &mut report.failed,
            Outcome::Cancelled => &mut report.cancelled,
            Outcome::Snoozed { .. } => &mut report.snoozed,
            Outcome::Released => &mut report.released,
            Outcome::Lost => &mut report.lost,
            Outcome::Abandoned => &mut report.abandoned,
        };
        *number += 1;
    }

    pub(super) fn report(&self) -> WorkerReport {
        *lock(&self.0)
    }
}
