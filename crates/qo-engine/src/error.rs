//! Why an engine did not do what was asked.

use qo_core::{QueueName, Rejection, TaskId};
use qo_store::StoreError;
use thiserror::Error;

/// Why an engine did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EngineError {
    /// The rules of the queue refuse it, and nothing has changed.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is stored of a task cannot be read.
    #[error("the record of task {id} cannot be read: {detail}")]
    Unreadable {
        /// The task.
        id: TaskId,
        /// What is wrong with it.
        detail: String,
    },
    /// Too many others changed the same task at the same time, again and again.
    #[error("task {id} is being changed by others without a pause; try again")]
    Contended {
        /// The task.
        id: TaskId,
    },
    /// A payload is larger than this engine takes.
    #[error("the {field} has {size} bytes; at most {limit} are taken")]
    PayloadTooLarge {
        /// `input` or `output`.
        field: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// What was asked makes no sense.
    #[error("{0}")]
    BadRequest(String),
    /// Every queue that a claim asks for is paused.
    #[error(
        "nothing to claim: {} paused; resume it, or claim from another queue",
        describe(queues)
    )]
    QueuePaused {
        /// The queues.
        queues: Vec<QueueName>,
    },
    /// Versions were asked for where none are kept.
    #[error(
        "this bucket keeps no versions; switch versioning on with `qo init`, or ask for the history without versions"
    )]
    NotVersioned,
    /// Another process has taken over the queue, and this one no longer answers for it.
    #[error("another broker has taken over this queue; ask that one, or open the queue again")]
    NotLeader,
    /// The one object that holds the queue is as large as it may become.
    #[error(
        "the queue's object has {size} bytes and may have {limit}: finish or purge tasks, or use the engine for larger queues with ?engine=slate in the store URL"
    )]
    QueueFull {
        /// How large it would become, in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The engine was closed.
    #[error("the queue was closed; open it again")]
    Closed,
}

/// Names queues, as the subject of a sentence.
fn describe(queues: &[QueueName]) -> String {
    let names: Vec<_> = queues.iter().map(QueueName::as_str).collect();
    match names.as_slice() {
        [name] => format!("the queue {name} is"),
        names => format!("the queues {} are", names.join(", ")),
    }
}

impl EngineError {
    /// Whether the presented lease is lost: the attempt is over and its worker must stop.
    pub fn is_lease_lost(&self) -> bool {
        matches!(self, Self::Rejected(Rejection::LeaseLost { .. }))
    }

    /// Whether there is no such task.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Rejected(Rejection::NotFound { .. }))
    }
}
