//! One operation on all tasks that match a filter.

use qo_core::{QueueName, Shard, Status, Tag, TaskId, TaskType, Timestamp};
use qo_engine::api::TaskFilter;
use serde::{Deserialize, Serialize};

use super::bounded;
use super::problem::Problem;

#[cfg(feature = "openapi")]
use super::schema;

/// The operation to apply to all matching tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum BulkOperation {
    /// Cancels tasks; pending and running ones by default.
    Cancel,
    /// Replays tasks; failed ones by default.
    Replay,
    /// Makes tasks due at once; pending ones by default. Tasks that are due already are skipped.
    RunNow,
    /// Archives tasks; all finished ones by default.
    Archive,
    /// Restores archived tasks.
    Unarchive,
    /// Deletes tasks permanently; all finished ones by default.
    Purge,
}

impl BulkOperation {
    /// The statuses that match if the filter names none.
    pub fn default_statuses(self) -> &'static [Status] {
        match self {
            Self::Cancel => &[Status::Pending, Status::Running],
            Self::Replay => &[Status::Failed],
            Self::RunNow => &[Status::Pending],
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

/// Selects tasks. A task must match all given fields.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkFilter {
    /// One of these statuses; by default those that the operation applies to.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
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
    /// In this shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::ShardDigit>))]
    pub shard: Option<Shard>,
    /// Submitted at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Time>))]
    pub since: Option<Timestamp>,
}

impl BulkFilter {
    /// The engine's filter, with the default statuses of the operation.
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
    /// The operation.
    pub operation: BulkOperation,
    /// The tasks. It is required, so that an omitted filter does not select all tasks by mistake.
    pub filter: BulkFilter,
    /// Only counts the matching tasks and changes nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// The reason of a cancel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 4096))]
    pub reason: Option<String>,
}

/// A task for which the operation failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkFailure {
    /// The task.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub id: TaskId,
    /// The reason.
    pub problem: Problem,
}

/// The result of a bulk operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkResponse {
    /// Whether this was a dry run, which changes nothing.
    pub dry_run: bool,
    /// The number of tasks that matched and, unless this is a dry run, were processed.
    pub matched: u64,
    /// The number of tasks for which the operation succeeded.
    pub done: u64,
    /// The number of tasks for which the operation failed.
    pub failed: u64,
    /// The first hundred failures.
    pub failures: Vec<BulkFailure>,
    /// Why the operation stopped before it reached all tasks, if it did. Sending the request again continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Problem>,
}
