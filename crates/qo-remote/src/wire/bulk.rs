//! One operation on all tasks that match a filter.

use qo_core::{Actor, OpId, QueueName, Shard, Status, Tag, TaskId, TaskType, Timestamp};
use qo_engine::api::TaskFilter;
use qo_engine::{BulkOperation, BulkRequest, EngineError};
use serde::{Deserialize, Serialize};

use super::problem::Problem;
use super::query::{search_text, with_search};
use super::{BATCH_MAX, REASON_MAX_BYTES, bounded, is_false};

#[cfg(feature = "openapi")]
use super::schema;

/// The largest `limit` of a bulk operation.
const LIMIT_MAX: u64 = 100_000;

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
    /// Submitted before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Time>))]
    pub until: Option<Timestamp>,
    /// With this text in its last error, or in its input if that has at most 64 KiB, in any case of letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub text: Option<String>,
    /// That match this search, as in `GET /v1/tasks`. All other fields must match, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 1024))]
    pub search: Option<String>,
    /// These tasks, instead of those that match other fields; up to 1,000, and 100,000 in the background.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::ids"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::Id>, max_items = 100_000))]
    pub ids: Vec<TaskId>,
}

impl BulkFilter {
    fn into_filter(self, now: Timestamp) -> Result<TaskFilter, EngineError> {
        let mut statuses = Vec::new();
        for status in self.statuses {
            if !statuses.contains(&status) {
                statuses.push(status);
            }
        }
        let filter = TaskFilter {
            statuses,
            queue: self.queue,
            task_type: self.task_type,
            tag: self.tag,
            shard: self.shard,
            since: self.since,
            until: self.until,
            text: self.text.as_deref().map(search_text).transpose()?,
            ..TaskFilter::default()
        };
        with_search(filter, self.search.as_deref(), now)
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
    /// The queue to which a redrive moves the tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub to: Option<QueueName>,
    /// Responds at once with an id, and works in the background.
    #[serde(default, skip_serializing_if = "is_false")]
    pub background: bool,
    /// Changes at most this number of tasks. `more` in the response says whether others match, so that a client can show progress
    /// and stop in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1, maximum = 100_000))]
    pub limit: Option<u64>,
}

impl BulkBody {
    /// The request without `dry_run`. Ages in a search are relative to `now`.
    pub fn into_request(mut self, now: Timestamp) -> Result<BulkRequest, EngineError> {
        let bad_request = |detail: String| Err(EngineError::BadRequest(detail));
        if self.reason.as_ref().map_or(0, String::len) > REASON_MAX_BYTES {
            return bad_request(format!(
                "the reason is longer than {REASON_MAX_BYTES} bytes"
            ));
        }
        if self.reason.is_some() && self.operation != BulkOperation::Cancel {
            return bad_request("only a cancel can have a reason".to_owned());
        }
        if self
            .limit
            .is_some_and(|limit| !(1..=LIMIT_MAX).contains(&limit))
        {
            return bad_request(format!("limit must be 1 to {LIMIT_MAX}"));
        }
        let is_redrive = self.operation == BulkOperation::Redrive;
        if is_redrive != self.to.is_some() {
            return bad_request(if is_redrive {
                "a redrive must name the queue in `to`".to_owned()
            } else {
                "only a redrive can have `to`".to_owned()
            });
        }
        if self.background && self.dry_run {
            return bad_request("a dry run does not work in the background".to_owned());
        }
        let ids = std::mem::take(&mut self.filter.ids);
        if ids.len() > BATCH_MAX && !self.background {
            return bad_request(format!(
                "ids may have at most {BATCH_MAX} items, unless the operation runs in the background"
            ));
        }
        if !ids.is_empty() && self.filter != BulkFilter::default() {
            return bad_request("a filter with ids cannot have other fields".to_owned());
        }
        let mut request =
            BulkRequest::new(self.operation).with_filter(self.filter.into_filter(now)?);
        request.ids = ids;
        request.reason = self.reason;
        request.limit = self.limit;
        request.to = self.to;
        Ok(request)
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
    /// Whether the request's `limit` was reached, so that more tasks may match.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
    /// Why the operation stopped before it reached all tasks, if it did. Sending the request again continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Problem>,
}

/// The state of a bulk operation in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum BulkState {
    /// It is running.
    Running,
    /// It has reached all tasks.
    Finished,
    /// It was cancelled before that.
    Cancelled,
    /// It stopped before that; `stopped` in its result says why.
    Stopped,
}

/// A bulk operation in the background.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkJobResponse {
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub id: OpId,
    /// What it does with each task.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::BulkOperation))]
    pub operation: BulkOperation,
    /// Its state.
    pub state: BulkState,
    /// Who started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub by: Option<Actor>,
    /// When it started.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Time>))]
    pub ended_at: Option<Timestamp>,
    /// The result so far.
    pub result: BulkResponse,
}

/// The bulk operations in the background, the newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkJobsResponse {
    /// Those that are running, and the last hundred that have ended.
    pub operations: Vec<BulkJobResponse>,
}
