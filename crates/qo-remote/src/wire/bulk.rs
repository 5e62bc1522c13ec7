//! One operation on all tasks that match a filter.

use qo_core::{QueueName, Shard, Status, Tag, TaskId, TaskType, Timestamp};
use qo_engine::api::TaskFilter;
use qo_engine::{BulkOperation, BulkRequest};
use serde::{Deserialize, Serialize};

use super::problem::Problem;

#[cfg(feature = "openapi")]
use super::schema;

/// Selects tasks. A task must match all given fields.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkFilter {
    /// One of these statuses; by default those that the operation applies to.
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
    /// In this shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::ShardDigit>))]
    pub shard: Option<Shard>,
    /// Submitted at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Time>))]
    pub since: Option<Timestamp>,
}

impl From<BulkFilter> for TaskFilter {
    fn from(filter: BulkFilter) -> Self {
        let mut statuses = Vec::new();
        for status in filter.statuses {
            if !statuses.contains(&status) {
                statuses.push(status);
            }
        }
        Self {
            statuses,
            queue: filter.queue,
            task_type: filter.task_type,
            tag: filter.tag,
            shard: filter.shard,
            since: filter.since,
        }
    }
}

/// One operation on all tasks that match a filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkBody {
    /// The operation.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::BulkOperation))]
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

impl BulkBody {
    /// The request without `dry_run`.
    pub fn into_request(self) -> BulkRequest {
        let mut request = BulkRequest::new(self.operation).with_filter(self.filter.into());
        request.reason = self.reason;
        request
    }
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
