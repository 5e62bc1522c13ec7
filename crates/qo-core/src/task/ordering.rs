//! The order of tasks with the same ordering key.
//!
//! Tasks of one queue with the same key form a **line**, in submit order. Only the head of a line can be claimed. A task stays in its line
//! while it is pending or running, so a retry, a release, a snooze or a delay keeps its place, and everything behind it waits. A task that
//! finishes leaves the line. The exception is a task with [`OnFailure::Stop`] that has failed: it stays at the head, and the line stands still
//! until someone replays or cancels that task. A task that left the line and is replayed joins it again at its end.

use serde::{Deserialize, Serialize};

use super::{Status, Task};
use crate::names::{OrderingKey, QueueName};

/// What happens to the tasks behind a task that fails permanently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The next task of the key runs.
    #[default]
    Continue,
    /// The tasks of the key wait until someone replays or cancels the failed one.
    Stop,
}

impl OnFailure {
    /// Its name in records, flags and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Stop => "stop",
        }
    }
}

/// The order that a submit asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderingRule {
    /// The key that the ordered tasks share.
    pub key: OrderingKey,
    /// What happens to the tasks behind this one if it fails permanently.
    pub on_failure: OnFailure,
}

/// The line of an ordering key in one queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderingLine {
    /// The queue.
    pub queue: QueueName,
    /// The key.
    pub key: OrderingKey,
}

impl OrderingLine {
    /// The line of a key in a queue.
    pub fn new(queue: &QueueName, key: &OrderingKey) -> Self {
        Self {
            queue: queue.clone(),
            key: key.clone(),
        }
    }

    /// The queue and the key as one unique text. Stores name objects by it, so it must never change.
    pub fn canonical(&self) -> String {
        // A queue name contains no slash, so the first one ends it, whatever the key contains.
        format!("{}/{}", self.queue, self.key)
    }
}

impl Task {
    /// The line of the task's ordering key.
    pub fn ordering_line(&self) -> Option<OrderingLine> {
        let key = self.ordering_key.as_ref()?;
        Some(OrderingLine::new(&self.queue, key))
    }

    /// Whether the task has failed and keeps the tasks behind it from running.
    pub fn stops_line(&self) -> bool {
        self.status == Status::Failed
            && self.ordering_key.is_some()
            && self.ordering_on_failure == OnFailure::Stop
    }

    /// Whether the task is finished, and no other task waits for what happens to it. Engines keep a task in memory, and store it among the
    /// live ones, until it is settled.
    pub fn is_settled(&self) -> bool {
        self.status.is_terminal() && !self.stops_line()
    }

    /// Its place in its line, if it is in one: the lowest place is the head.
    pub(crate) fn place_in_line(&self) -> Option<u64> {
        let in_line = self.ordering_key.is_some() && !self.is_settled();
        in_line.then_some(self.sequence.max(self.ordering_turn))
    }
}
