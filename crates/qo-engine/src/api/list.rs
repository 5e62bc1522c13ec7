//! Listing and counting tasks.

use std::collections::BTreeMap;

use qo_core::{QueueName, Shard, Status, Tag, Task, TaskType, Timestamp};

/// Selects tasks. A task matches if it meets all conditions that are set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskFilter {
    /// Has one of these statuses; any status except archived if empty.
    pub statuses: Vec<Status>,
    /// Is in this queue.
    pub queue: Option<QueueName>,
    /// Has this type.
    pub task_type: Option<TaskType>,
    /// Has this tag.
    pub tag: Option<Tag>,
    /// Is in this shard.
    pub shard: Option<Shard>,
    /// Was submitted at this time or later.
    pub since: Option<Timestamp>,
    /// Was submitted before this time.
    pub until: Option<Timestamp>,
}

impl TaskFilter {
    /// Whether a task matches.
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
            && self.until.is_none_or(|until| task.created_at < until)
    }
}

/// One page of a list of tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// The cursor of the next page, if there may be one.
    pub next: Option<String>,
}

/// One stored version of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionedTask {
    /// The version id that the store assigned.
    pub version: String,
    /// When it was written, by the store's clock.
    pub stored_at: Timestamp,
    /// The task in this version; `None` for a delete marker or a record that cannot be parsed.
    pub task: Option<Task>,
}

/// Task counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// By queue.
    pub queues: BTreeMap<QueueName, QueueStats>,
    /// Whether only part of the tasks were counted, so that the true counts are higher.
    pub partial: bool,
}

/// Task counts of one queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct QueueStats {
    /// By status.
    pub statuses: BTreeMap<Status, u64>,
    /// By type.
    pub types: BTreeMap<TaskType, u64>,
    /// By type and status.
    pub types_by_status: BTreeMap<TaskType, BTreeMap<Status, u64>>,
    /// The earliest due time of the pending tasks that are due.
    pub oldest_due: Option<Timestamp>,
    /// Whether the queue is paused, so that claims skip it.
    pub paused: bool,
}

impl QueueStats {
    /// Adds `count` tasks to the counts.
    pub fn add(&mut self, task_type: &TaskType, status: Status, count: u64) {
        let of_type = self.types_by_status.entry(task_type.clone()).or_default();
        // Stored counts may have any value, so an overflow must not panic.
        for sum in [
            self.statuses.entry(status).or_default(),
            self.types.entry(task_type.clone()).or_default(),
            of_type.entry(status).or_default(),
        ] {
            *sum = sum.saturating_add(count);
        }
    }

    /// Removes one task from the counts.
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
