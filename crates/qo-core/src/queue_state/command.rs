//! The commands to a queue space and their outcomes.

use crate::document::{DocumentChange, DocumentId, DocumentRejection};
use crate::id::{LeaseId, OpId, TaskId};
use crate::names::{QueueName, TaskType, WorkerId};
use crate::pause::{PauseNote, PauseTarget};
use crate::retry::Jitter;
use crate::transition::{Action, Rejection, Submission};

/// A request to change the queue space.
#[derive(Debug, Clone, PartialEq)]
pub struct StateCommand {
    /// The operation id of the changed records.
    pub op: OpId,
    /// The requested change.
    pub request: Request,
}

/// A change of the queue space.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Adds a task.
    Submit(Box<Submission>),
    /// Claims due tasks.
    Claim(Claim),
    /// Changes one task.
    Task {
        /// The task.
        id: TaskId,
        /// The change.
        action: Action,
    },
    /// Ends the attempts whose leases have expired, and cancels the pending tasks that have expired.
    ExpireLeases {
        /// The maximum number of tasks to change.
        limit: usize,
        /// The time that must pass after a lease's end before it is expired, to allow for clock errors.
        lease_margin_ms: u64,
        /// Spreads the delays before the next attempts.
        jitter: Jitter,
    },
    /// Makes claims skip a queue or a type.
    Pause(PauseTarget, PauseNote),
    /// Makes claims serve a queue or a type again.
    Resume(PauseTarget),
    /// Removes a finished task.
    Purge(TaskId),
    /// Changes a document. The operation id of the command does not matter.
    Document(DocumentId, DocumentChange),
}

/// A claim request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The worker that claims.
    pub worker: WorkerId,
    /// The queues to claim from; empty means all.
    pub queues: Vec<QueueName>,
    /// The task types to claim; empty means all.
    pub types: Vec<TaskType>,
    /// One new lease id for each requested task.
    pub leases: Vec<LeaseId>,
    /// The duration of the leases without a renewal.
    pub lease_ms: u64,
}

/// A claimed task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimed {
    /// The task.
    pub id: TaskId,
    /// Its lease.
    pub lease: LeaseId,
}

/// The outcome of a command.
#[derive(Debug, Clone, PartialEq)]
pub enum CommandOutcome {
    /// The task exists.
    Submitted {
        /// Its id: that of the first task, if this submit was a duplicate.
        id: TaskId,
        /// Whether it existed before.
        duplicate: bool,
    },
    /// The claimed tasks, most urgent first; empty if none is due.
    Claimed(Vec<Claimed>),
    /// The task was changed.
    Applied {
        /// The task.
        id: TaskId,
    },
    /// The attempts of these tasks have ended, or these pending tasks were cancelled.
    Expired(Vec<TaskId>),
    /// The queue or type is paused or resumed, as requested.
    PauseSet {
        /// Whether it was not before.
        changed: bool,
    },
    /// The task was removed.
    Purged {
        /// The task.
        id: TaskId,
    },
    /// Nothing changed, for this reason.
    Rejected(Rejection),
    /// The document is as requested. `false` if it was so before.
    DocumentSet {
        /// Whether it was not before.
        changed: bool,
    },
    /// The document was not changed, for this reason.
    DocumentRejected(DocumentRejection),
}

/// The changes of a command, which an engine must make durable before it replies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// New and changed tasks.
    pub tasks: Vec<TaskId>,
    /// Removed tasks.
    pub removed: Vec<TaskId>,
    /// Queues and types that were paused or resumed, or whose reason has changed.
    pub pauses: Vec<PauseTarget>,
    /// Documents that were written or removed.
    pub documents: Vec<DocumentId>,
    /// Those of the changed tasks whose input was replaced.
    pub inputs: Vec<TaskId>,
    /// New tasks that notify webhooks of the end of the changed ones. They are not among those.
    pub deliveries: Vec<TaskId>,
}

impl Changes {
    /// Whether there is nothing to make durable.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
            && self.removed.is_empty()
            && self.pauses.is_empty()
            && self.documents.is_empty()
    }
}

/// The task that keeps a pending one from running: the head of its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitsBehind {
    /// The head of the line.
    pub head: TaskId,
    /// The number of tasks before the waiting one, counted up to 10,000.
    pub ahead: u64,
    /// Whether the head has failed and stops the line.
    pub is_stopped: bool,
}
