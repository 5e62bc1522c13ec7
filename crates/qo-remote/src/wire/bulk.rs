//! One operation on all tasks that match a filter.

use qo_core::{QueueName, Shard, Status, Tag, TaskId, TaskType, Timestamp};
use qo_engine::api::TaskFilter;
use serde::{Deserialize, Serialize};

use super::problem::Problem;

#[cfg(feature = "openapi")]
use super::schema;

/// What to do with all tasks that match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum BulkOperation {
    /// Call them off; pending and running ones, if the filter names no status.
    Cancel,
    /// Start them over; failed ones, if the filter names no status.
    Replay,
    /// Put them away; all that have come to their end, if the filter names no status.
    Archive,
    /// Undo their archive.
    Unarchive,
    /// Remove them for good; all that have come to their end, if the filter names no status.
    Purge,
}

impl BulkOperation {
    /// The statuses that are meant where the filter names none.
    pub fn default_statuses(self) -> &'static [Status] {
        match self {
            Self::Cancel => &[Status::Pending, Status::Running],
            Self::Replay => &[Status::Failed],
            Self::Archive => &[Status::Completed, Status::Failed, Status::Cancelled],
            Self::Unarchive => &[Status::Archived],
            Self::Purge => &[
                Status::Completed,
                Status::Failed,
                Status::Cancelled,
                Status::Archived,
            ],
        }
    }
}

/// Which tasks are meant. Everything that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkFilter {
    /// One of these; those in which the operation makes sense, if empty or not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::TaskStatus>))]
    pub statuses: Vec<Status>,
    /// In this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub queue: Option<QueueName>,
    /// Of this type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub task_type: Option<TaskType>,
    /// With this tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Label>))]
    pub tag: Option<Tag>,
    /// In this part of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::ShardDigit>))]
    pub shard: Option<Shard>,
    /// Submitted at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Time>))]
    pub since: Option<Timestamp>,
}

impl BulkFilter {
    /// The engine's form, with the statuses in which the operation makes sense.
    pub fn into_filter(self, operation: BulkOperation) -> TaskFilter {
        let mut statuses = Vec::new();
        for status in self.statuses {
            if !statuses.contains(&status) {
                statuses.push(status);
            }
        }
        if statuses.is_empty() {
            statuses = operation.default_statuses().to_vec();
        }
        TaskFilter {
            statuses,
            queue: self.queue,
            task_type: self.task_type,
            tag: self.tag,
            shard: self.shard,
            since: self.since,
        }
    }
}

/// One operation on all tasks that match a filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkBody {
    /// What to do.
    pub operation: BulkOperation,
    /// With which tasks. It has to be there, so that nobody means all tasks by leaving it out.
    pub filter: BulkFilter,
    /// Only count what matches, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Why, for a cancel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 4096))]
    pub reason: Option<String>,
}

/// A task for which it was not done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkFailure {
    /// The task.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub id: TaskId,
    /// Why.
    pub problem: Problem,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkAnswer {
    /// Whether nothing was changed because that was asked for.
    pub dry_run: bool,
    /// How many tasks matched and, unless this is a dry run, were tried.
    pub matched: u64,
    /// For how many of them it was done.
    pub done: u64,
    /// For how many it was not.
    pub failed: u64,
    /// The first hundred of those, and why.
    pub failures: Vec<BulkFailure>,
    /// Why the walk ended before it had seen all tasks, if it did. Asking again goes on where it stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Problem>,
}
