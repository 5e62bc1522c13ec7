//! Errors of engine operations.

use qo_core::pause::StoppedClaim;
use qo_core::{DocumentId, QueueName, Rejection, TaskId, TaskType, WorkerId};
use qo_store::StoreError;
use thiserror::Error;

/// Why an engine operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The queue's rules reject the operation. Nothing has changed.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// A request to the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A task's stored record cannot be parsed.
    #[error("the record of task {id} cannot be read: {detail}")]
    Unreadable {
        /// The task.
        id: TaskId,
        /// What is wrong with the record.
        detail: String,
    },
    /// Every attempt to change the task lost the race against another writer.
    #[error("task {id} keeps being changed by other writers; try again")]
    Contended {
        /// The task.
        id: TaskId,
    },
    /// A payload is larger than this engine accepts.
    #[error("the {field} has {size} bytes; the limit is {limit}")]
    PayloadTooLarge {
        /// `input` or `output`.
        field: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The request is invalid.
    #[error("{0}")]
    BadRequest(String),
    /// All queues, or all types, of a claim are paused.
    #[error(
        "nothing to claim: {} paused; resume it, or claim from another queue or type",
        describe(queues, types)
    )]
    QueuePaused {
        /// The queues, if all of them are paused.
        queues: Vec<QueueName>,
        /// The types, if all of them are paused.
        types: Vec<TaskType>,
    },
    /// Versions were requested from a store that keeps none.
    #[error(
        "this bucket keeps no versions; turn on versioning with `qo init`, or request the history without versions"
    )]
    NotVersioned,
    /// Another process has taken over the queue, so this one no longer serves it.
    #[error(
        "another broker has taken over this queue; connect to that one, or open the queue again"
    )]
    NotLeader,
    /// The object that stores the queue has reached its size limit.
    #[error(
        "the queue's object would have {size} bytes, and the limit is {limit}: finish or purge tasks, or use the engine for larger queues with ?engine=slate in the store URL"
    )]
    ObjectFull {
        /// The size that the object would reach, in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The queue has more to write than it can, or other processes do not let it write. Nothing has changed.
    #[error("the queue is overloaded: {detail}; nothing was changed, try again in a second")]
    Overloaded {
        /// What has to be written first.
        detail: String,
    },
    /// A document was changed by somebody else since it was read. Nothing has changed.
    #[error("{id} has changed since it was read; read it again and retry")]
    DocumentConflict {
        /// The document.
        id: DocumentId,
    },
    /// No worker of this name is registered.
    #[error("there is no worker {worker}")]
    WorkerNotFound {
        /// The requested worker.
        worker: WorkerId,
    },
    /// The engine was closed.
    #[error("the queue was closed; open it again")]
    Closed,
}

/// Names the queues as the subject of a sentence.
fn describe(queues: &[QueueName], types: &[TaskType]) -> String {
    let (noun, names): (_, Vec<_>) = if queues.is_empty() {
        ("type", types.iter().map(TaskType::as_str).collect())
    } else {
        ("queue", queues.iter().map(QueueName::as_str).collect())
    };
    match names.as_slice() {
        [name] => format!("the {noun} {name} is"),
        names => format!("the {noun}s {} are", names.join(", ")),
    }
}

impl From<StoppedClaim> for EngineError {
    fn from(StoppedClaim { queues, types }: StoppedClaim) -> Self {
        Self::QueuePaused { queues, types }
    }
}

impl EngineError {
    /// Whether the presented lease is lost. The attempt is then over, and its worker must stop.
    pub fn is_lease_lost(&self) -> bool {
        matches!(self, Self::Rejected(Rejection::LeaseLost { .. }))
    }

    /// Whether the task does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Rejected(Rejection::NotFound { .. }))
    }
}
