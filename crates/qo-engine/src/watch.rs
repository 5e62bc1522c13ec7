//! Notifications of durable changes: commits and changed tasks.
//!
//! An engine reports every change that became durable through it in this process, whether a caller, a bulk operation or its own
//! maintenance made it. It does not see changes that other processes make on the same store.
//!
//! The engine builds a notification only if [`Watcher::listens`] returns true. It calls watchers on its own async tasks, so a
//! watcher must not block.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use qo_core::{Action, QueueName, Status, Task, TaskId, TaskType, Timestamp, WorkerId};
use serde::Serialize;

use crate::measurement::Measurement;

/// Receives notifications of durable changes.
pub trait Watcher: Send + Sync {
    /// A group of changes is durable. Only engines that commit in groups report this.
    fn committed(&self, commit: &Commit);

    /// Whether the watcher currently wants notifications of task changes.
    fn listens(&self) -> bool;

    /// A task was changed durably.
    fn changed(&self, change: &Arc<TaskChange>);

    /// Whether the watcher wants measurements of all changes.
    fn measures(&self) -> bool {
        false
    }

    /// A task was changed durably, in a way that counters count.
    fn measured(&self, _measurement: &Measurement) {}
}

/// A group of changes that one write made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// The number of callers whose changes it contains.
    pub callers: usize,
    /// The number of tasks it changed.
    pub tasks: usize,
    /// The time from sending the write to the store until it was durable.
    pub took: Duration,
}

/// A durable change of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskChange {
    /// The operation, such as `submit`, `complete` or `expire`.
    pub operation: &'static str,
    /// The task.
    pub id: TaskId,
    /// Its type.
    pub task_type: TaskType,
    /// Its queue.
    pub queue: QueueName,
    /// Its status after the change, or before its removal.
    pub status: Status,
    /// Its current attempt.
    pub attempt: u32,
    /// The worker that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// When the task was changed.
    pub at: Timestamp,
}

impl TaskChange {
    /// A change by `operation` that led to `task`.
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

/// The only operation that is not reported: a renewal just means that the attempt is still running.
pub const RENEW: &str = "renew";

/// The name of an action in notifications. It is the same as in the HTTP route of the action.
pub fn operation_name(action: &Action) -> &'static str {
    match action {
        Action::ExpireLease { .. } | Action::Expire => "expire",
        Action::RunNow => "run_now",
        // Neither changes what a watcher shows.
        Action::Renew { .. } | Action::Fence => RENEW,
        Action::By { action, .. } | Action::Logged { action, .. } => operation_name(action),
        other => other.name(),
    }
}

/// The registered watchers. Clones share the same list.
#[derive(Clone, Default)]
pub struct Watchers {
    watchers: Arc<RwLock<Vec<Weak<dyn Watcher>>>>,
}

impl Watchers {
    /// Adds a watcher. It leaves the list when it is dropped.
    pub fn add(&self, watcher: Weak<dyn Watcher>) {
        let mut watchers = self
            .watchers
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|watcher| watcher.strong_count() > 0);
        watchers.push(watcher);
    }

    /// Whether any watcher wants notifications of task changes.
    pub fn listen(&self) -> bool {
        let mut any_listens = false;
        self.each(|watcher| any_listens |= watcher.listens());
        any_listens
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

    /// Reports an operation on a task, if any watcher listens or measures.
    pub fn notify(&self, operation: &'static str, task: &Task) {
        if operation == RENEW {
            return;
        }
        if self.measure()
            && let Some(measurement) = Measurement::of(operation, task)
        {
            self.measured(&measurement);
        }
        if self.listen() {
            self.changed(TaskChange::new(operation, task));
        }
    }

    /// Whether any watcher wants measurements.
    pub fn measure(&self) -> bool {
        let mut any_measures = false;
        self.each(|watcher| any_measures |= watcher.measures());
        any_measures
    }

    /// Reports a measurement.
    pub fn measured(&self, measurement: &Measurement) {
        self.each(|watcher| watcher.measured(measurement));
    }

    fn each(&self, mut notify: impl FnMut(&dyn Watcher)) {
        let watchers = self.watchers.read().unwrap_or_else(PoisonError::into_inner);
        for watcher in watchers.iter().filter_map(Weak::upgrade) {
            notify(watcher.as_ref());
        }
    }
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watchers(..)")
    }
}
