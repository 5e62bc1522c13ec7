//! Which tasks there are, and how many.

use std::collections::BTreeMap;

use qo_core::{QueueName, Shard, Status, Tag, Task, TaskType, Timestamp};

/// Which tasks are meant. Everything that is set must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskFilter {
    /// One of these; any but archived, if empty.
    pub statuses: Vec<Status>,
    /// In this queue.
    pub queue: Option<QueueName>,
    /// Of this type.
    pub task_type: Option<TaskType>,
    /// With this tag.
    pub tag: Option<Tag>,
    /// In this part of the store.
    pub shard: Option<Shard>,
    /// Submitted at this time or later.
    pub since: Option<Timestamp>,
}

impl TaskFilter {
    /// Whether a task is meant.
    pub fn matches(&self, task: &Task) -> bool {
        let status = if self.statuses.is_empty() {
            task.status != Status::Archived
        } else {
            self.statuses.contains(&task.status)
        };
        status
            && self.queue.as_ref().is_none_or(|queue| *queue == task.queue)
            && self
                .task_type
                .as_ref()
                .is_none_or(|task_type| *task_type == task.task_type)
            && self.tag.as_ref().is_none_or(|tag| task.tags.contains(tag))
            && self.shard.is_none_or(|shard| shard == task.shard)
            && self.since.is_none_or(|since| task.created_at >= since)
    }
}

/// A part of a list of tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Where the next part starts, if there may be one.
    pub next: Option<String>,
}

/// One stored version of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionedTask {
    /// The store's name for the version.
    pub version: String,
    /// When it was written, by the store's clock.
    pub stored_at: Timestamp,
    /// The task as it was; nothing, for a deletion or for bytes that cannot be read.
    pub task: Option<Task>,
}

/// How many tasks there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// By queue.
    pub queues: BTreeMap<QueueName, QueueStats>,
    /// Whether only a part of the tasks was looked at, so that the true numbers are larger.
    pub partial: bool,
}

/// How many tasks there are in one queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueStats {
    /// By status.
    pub statuses: BTreeMap<Status, u64>,
    /// By type.
    pub types: BTreeMap<TaskType, u64>,
    /// By type and status.
    pub types_by_status: BTreeMap<TaskType, BTreeMap<Status, u64>>,
    /// When the oldest of the pending tasks that are due was due.
    pub oldest_due: Option<Timestamp>,
    /// Whether claims pass it by.
    pub paused: bool,
}

impl QueueStats {
    /// Counts so many more tasks.
    pub fn add(&mut self, task_type: &TaskType, status: Status, count: u64) {
        let of_type = self.types_by_status.entry(task_type.clone()).or_default();
        // Stored counts may be anything.
        for sum in [
            self.statuses.entry(status).or_default(),
            self.types.entry(task_type.clone()).or_default(),
            of_type.entry(status).or_default(),
        ] {
            *sum = sum.saturating_add(count);
        }
    }

    /// Counts one task less.
    pub fn subtract_one(&mut self, task_type: &TaskType, status: Status) {
        let of_type = self.types_by_status.get_mut(task_type);
        let counts = [
            self.statuses.get_mut(&status),
            self.types.get_mut(task_type),
            of_type.and_then(|of_type| of_type.get_mut(&status)),
        ];
        for count in counts.into_iter().flatten() {
            *count = count.saturating_sub(1);
        }
    }
}
