//! What an engine tells whoever runs it: how its commits go, and which tasks it has changed.
//!
//! An engine tells what became durable through it, in this process, whoever asked for it: a caller, a bulk operation, or its
//! own maintenance. What other processes do on the same store it does not know.
//!
//! A watcher is asked first whether anybody listens, so that where nobody does, nothing is made to be told. It is called on
//! the engine's own tasks and must not wait.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use qo_core::{Action, QueueName, Status, Task, TaskId, TaskType, Timestamp, WorkerId};
use serde::Serialize;

/// Somebody who is told.
pub trait Watcher: Send + Sync {
    /// A group of changes is durable. Only engines that commit in groups tell this.
    fn committed(&self, commit: &Commit);

    /// Whether changes of tasks are worth telling at this moment.
    fn listens(&self) -> bool;

    /// A task was changed, and the change is durable.
    fn changed(&self, change: &Arc<TaskChange>);
}

/// A group of changes that was made durable with one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// How many callers it served.
    pub callers: usize,
    /// How many tasks it changed.
    pub tasks: usize,
    /// From the moment at which it was handed to the store until it was durable.
    pub took: Duration,
}

/// Something that happened to a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskChange {
    /// What was done, such as `submit`, `complete` or `expire`.
    pub operation: &'static str,
    /// The task.
    pub id: TaskId,
    /// Its type.
    pub task_type: TaskType,
    /// Its queue.
    pub queue: QueueName,
    /// Its status after that, or before it was removed.
    pub status: Status,
    /// Its attempt.
    pub attempt: u32,
    /// Who works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// When.
    pub at: Timestamp,
}

impl TaskChange {
    /// What was done to a task, as it is now.
    pub fn new(operation: &'static str, task: &Task) -> Self {
        Self {
            operation,
            id: task.id,
            task_type: task.task_type.clone(),
            queue: task.queue.clone(),
            status: task.status,
            attempt: task.attempt,
            worker_id: task.worker_id.clone(),
            at: task.updated_at,
        }
    }
}

/// The one change that is not told: it says only that an attempt goes on.
pub const RENEW: &str = "renew";

/// What an action is called where it is told: as the route that asks for it is.
pub fn operation_name(action: &Action) -> &'static str {
    match action {
        Action::ExpireLease { .. } | Action::Expire => "expire",
        Action::RunNow => "run_now",
        Action::Renew { .. } => RENEW,
        other => other.name(),
    }
}

/// Those who are told. Clones share them.
#[derive(Clone, Default)]
pub struct Watchers {
    watchers: Arc<RwLock<Vec<Weak<dyn Watcher>>>>,
}

impl Watchers {
    /// Adds a watcher; it is dropped from the list when it is gone.
    pub fn add(&self, watcher: Weak<dyn Watcher>) {
        let mut watchers = self
            .watchers
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|watcher| watcher.strong_count() > 0);
        watchers.push(watcher);
    }

    /// Whether anybody listens to changes of tasks.
    pub fn listen(&self) -> bool {
        let mut listen = false;
        self.each(|watcher| listen |= watcher.listens());
        listen
    }

    /// Reports a commit.
    pub fn committed(&self, commit: &Commit) {
        self.each(|watcher| watcher.committed(commit));
    }

    /// Reports a change of a task.
    pub fn changed(&self, change: TaskChange) {
        let change = Arc::new(change);
        self.each(|watcher| watcher.changed(&change));
    }

    /// Tells what was done to a task, if anybody listens.
    pub fn tell(&self, operation: &'static str, task: &Task) {
        if operation != RENEW && self.listen() {
            self.changed(TaskChange::new(operation, task));
        }
    }

    fn each(&self, mut tell: impl FnMut(&dyn Watcher)) {
        let watchers = self.watchers.read().unwrap_or_else(PoisonError::into_inner);
        for watcher in watchers.iter().filter_map(Weak::upgrade) {
            tell(watcher.as_ref());
        }
    }
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watchers(..)")
    }
}
