//! Claim requests and responses, and the responses to heartbeats.

use qo_core::limits::CLAIM_MAX_TASKS;
use qo_core::{QueueName, Shard, Task, TaskType, WorkerId};
use qo_engine::EngineError;
use qo_engine::api::{ClaimRequest, WorkerRequest};
use serde::{Deserialize, Serialize};

use super::{NAMES_MAX, bounded};

#[cfg(feature = "openapi")]
use super::schema;

/// The response to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeartbeatResponse {
    /// What an operator asks the worker to do.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::WorkerRequestRecord>))]
    pub request: Option<WorkerRequest>,
}

/// A claim request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimBody {
    /// The worker that runs the tasks.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Name))]
    pub worker_id: WorkerId,
    /// The queues to claim from; `["default"]` by default. An empty list means all queues.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "bounded::optional_list"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<schema::Name>>, max_items = 256))]
    pub queues: Option<Vec<QueueName>>,
    /// The task types to claim; all by default.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::Name>, max_items = 256))]
    pub types: Vec<TaskType>,
    /// The shards to claim from; all by default.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::ShardDigit>, max_items = 256))]
    pub shards: Vec<Shard>,
    /// The most tasks to return; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub max: Option<usize>,
    /// How long to wait for the first task, in milliseconds; 0 by default. The server caps it at its own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// How long the leases are valid without a renewal, in milliseconds; the queue's setting by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 2_592_000_000_u64))]
    pub lease_ms: Option<u64>,
}

impl ClaimBody {
    /// Converts to the engine's request.
    pub fn into_request(self) -> Result<ClaimRequest, EngineError> {
        let default = ClaimRequest::new(self.worker_id, self.types);
        let request = ClaimRequest {
            queues: self.queues.unwrap_or_else(|| default.queues.clone()),
            max: self.max.unwrap_or(default.max),
            wait_ms: self.wait_ms.unwrap_or(default.wait_ms),
            lease_ms: self.lease_ms,
            shards: self.shards,
            ..default
        };
        if !(1..=CLAIM_MAX_TASKS).contains(&request.max) {
            return Err(EngineError::BadRequest(format!(
                "max must be 1 to {CLAIM_MAX_TASKS}"
            )));
        }
        if request
            .queues
            .len()
            .max(request.types.len())
            .max(request.shards.len())
            > NAMES_MAX
        {
            return Err(EngineError::BadRequest(format!(
                "a claim names at most {NAMES_MAX} queues, {NAMES_MAX} types and {NAMES_MAX} shards"
            )));
        }
        Ok(request)
    }

    /// Converts from the engine's request.
    pub fn from_request(request: &ClaimRequest) -> Self {
        Self {
            worker_id: request.worker.clone(),
            queues: Some(request.queues.clone()),
            types: request.types.clone(),
            shards: request.shards.clone(),
            max: Some(request.max),
            wait_ms: Some(request.wait_ms),
            lease_ms: request.lease_ms,
        }
    }
}

/// The claimed tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimResponse {
    /// The tasks, the most urgent first. Each contains its lease and its attempt number.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::TaskRecord>))]
    pub tasks: Vec<Task>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_round_trip() {
        let mut request = ClaimRequest::new("w".parse().unwrap(), vec!["t".parse().unwrap()]);
        request.queues = Vec::new();
        request.shards = vec!["a".parse().unwrap()];
        request.max = 7;
        request.wait_ms = 8;
        request.lease_ms = Some(9);
        let text = serde_json::to_string(&ClaimBody::from_request(&request)).unwrap();
        let read: ClaimBody = serde_json::from_str(&text).unwrap();
        assert_eq!(read.into_request().unwrap(), request);
    }

    #[test]
    fn a_body_with_only_a_worker_claims_one_task_of_the_default_queue() {
        let body: ClaimBody = serde_json::from_str(r#"{"worker_id":"w"}"#).unwrap();
        let request = body.into_request().unwrap();
        assert_eq!(request, ClaimRequest::new("w".parse().unwrap(), vec![]));
    }
}
