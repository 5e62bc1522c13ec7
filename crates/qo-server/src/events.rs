//! What passes through this server, told to whoever listens.
//!
//! An event is told after its operation is durable. What other processes do on the same store, and what maintenance does, does not
//! pass through here and is not seen. A listener that is too slow misses events and is told how many; one that must not miss
//! any reads the tasks.

use std::sync::Arc;

use qo::{QueueName, Status, Task, TaskId, TaskType, Timestamp, WorkerId};
use serde::Serialize;
use tokio::sync::broadcast;

/// How many events a slow listener may be behind.
const BEHIND_MAX: usize = 1_024;

/// Something that happened to a task.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TaskEvent {
    /// What was done, such as `submit` or `complete`.
    pub(crate) operation: &'static str,
    pub(crate) id: TaskId,
    pub(crate) task_type: TaskType,
    pub(crate) queue: QueueName,
    /// The status after it.
    pub(crate) status: Status,
    pub(crate) attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker_id: Option<WorkerId>,
    pub(crate) at: Timestamp,
}

pub(crate) struct Events {
    sender: broadcast::Sender<Arc<TaskEvent>>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(BEHIND_MAX),
        }
    }
}

impl Events {
    pub(crate) fn tell(&self, operation: &'static str, task: &Task) {
        // Nothing is made that nobody hears.
        if self.sender.receiver_count() == 0 {
            return;
        }
        let event = TaskEvent {
            operation,
            id: task.id,
            task_type: task.task_type.clone(),
            queue: task.queue.clone(),
            status: task.status,
            attempt: task.attempt,
            worker_id: task.worker_id.clone(),
            at: task.updated_at,
        };
        let _ = self.sender.send(Arc::new(event));
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Arc<TaskEvent>> {
        self.sender.subscribe()
    }
}
