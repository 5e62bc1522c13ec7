//! What can be asked of a queue space, and what comes of it.

use crate::id::{LeaseId, OpId, TaskId};
use crate::names::{QueueName, TaskType, WorkerId};
use crate::retry::Jitter;
use crate::transition::{Action, Rejection, Submission};

/// A change that somebody asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct StateCommand {
    /// The operation id that the changed records carry.
    pub op: OpId,
    /// What to do.
    pub request: Request,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Add a task.
    Submit(Box<Submission>),
    /// Hand out tasks that are due.
    Claim(Claim),
    /// Do something with one task.
    Task {
        /// The task.
        id: TaskId,
        /// What to do with it.
        action: Action,
    },
    /// End the attempts whose leases have run out, and the pending tasks that have expired.
    ExpireLeases {
        /// How many at the most.
        limit: usize,
        /// How much later than its time a lease is ended, against clocks that are read wrongly.
        lease_margin_ms: u64,
        /// Spreads the waits before the next attempts.
        jitter: Jitter,
    },
    /// Let claims pass a queue by.
    Pause(QueueName),
    /// Let claims serve a queue again.
    Resume(QueueName),
    /// Remove a task that has come to its end.
    Purge(TaskId),
}

/// A wish for work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Who will do it.
    pub worker: WorkerId,
    /// The queues to take from; all of them, if empty.
    pub queues: Vec<QueueName>,
    /// The types to take; all of them, if empty.
    pub types: Vec<TaskType>,
    /// One new lease id for each task that is wanted.
    pub leases: Vec<LeaseId>,
    /// How long the leases hold without a renewal.
    pub lease_ms: u64,
}

/// A task that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimed {
    /// The task.
    pub id: TaskId,
    /// Its lease.
    pub lease: LeaseId,
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The task is there.
    Submitted {
        /// Its id: that of the first task, if this one is a second copy.
        id: TaskId,
        /// Whether it was there before.
        duplicate: bool,
    },
    /// These were handed out, the most urgent first; none, if none is due.
    Claimed(Vec<Claimed>),
    /// The task was changed.
    Applied {
        /// The task.
        id: TaskId,
    },
    /// The attempts of these tasks, or the tasks themselves, were ended.
    Expired(Vec<TaskId>),
    /// The queue is as asked.
    QueueSet {
        /// Whether it was not before.
        changed: bool,
    },
    /// The task is gone.
    Purged {
        /// The task.
        id: TaskId,
    },
    /// Nothing changed, and this is why.
    Rejected(Rejection),
}

/// What a command changed, and so what an engine must make durable before it answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Tasks that are new or different.
    pub tasks: Vec<TaskId>,
    /// Tasks that are gone.
    pub removed: Vec<TaskId>,
    /// Queues that were paused or resumed.
    pub queues: Vec<QueueName>,
}

impl Changes {
    /// Whether there is nothing to make durable.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.removed.is_empty() && self.queues.is_empty()
    }
}
