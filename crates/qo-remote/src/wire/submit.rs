//! Submit requests, single or in an array, and responses.

use qo_core::limits::SUBMIT_DELAY_MAX_MS;
use qo_core::task::{
    IdempotencyScope, KeyHold, OnConflict, OnFailure, OrderingRule, PRIORITY_DEFAULT, Uniqueness,
};
use qo_core::{
    FairnessGroup, IdempotencyKey, Json, LimitKey, OrderingKey, QueueName, RetryPolicy, Status,
    Tag, Task, TaskId, TaskType, Timestamp, TraceParent,
};
use qo_engine::EngineError;
use qo_engine::api::{IdempotencyRequest, SubmitRequest, Submitted, When};
use serde::{Deserialize, Serialize};

use super::payload::{BytesPayload, one_of};
use super::problem::Problem;
use super::{bounded, is_false};

#[cfg(feature = "openapi")]
use super::schema;

/// A task to submit. Omitted fields have their defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SubmitBody {
    /// The task's id; a new one by default. A second submit of an id returns the first task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Id>))]
    pub id: Option<TaskId>,
    /// The task type, which selects the handler.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Name))]
    pub task_type: TaskType,
    /// The input: any JSON, stored byte for byte; `null` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::AnyJson>))]
    pub input: Option<Json>,
    /// The input, if it is binary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<BytesPayload>,
    /// The queue; `default` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub queue: Option<QueueName>,
    /// The priority, 0 to 9, lower first; 5 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 9))]
    pub priority: Option<u8>,
    /// The earliest time at which the task can be claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Time>))]
    pub available_at: Option<Timestamp>,
    /// The delay before the task can be claimed, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 3_162_240_000_000_u64))]
    pub delay_ms: Option<u64>,
    /// The time from which the task may no longer start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Time>))]
    pub expires_at: Option<Timestamp>,
    /// The number of milliseconds after which the task may no longer start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 3_162_240_000_000_u64))]
    pub expires_in_ms: Option<u64>,
    /// The longest duration of an attempt; the default of the queue if absent, which is 300 unless its settings say otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 2_592_000))]
    pub timeout_seconds: Option<u64>,
    /// The most retries; the default of the queue if absent, which is 3 unless its settings say otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 10_000))]
    pub max_retries: Option<u32>,
    /// The delays between retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<RetryPolicyBody>,
    /// The idempotency key: a second submit with this key returns the first task. For a single submit, the header
    /// `Idempotency-Key` has the same effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Key>))]
    pub idempotency_key: Option<IdempotencyKey>,
    /// The tasks among which the key must be unique; those of the queue by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Scope>))]
    pub idempotency_scope: Option<IdempotencyScope>,
    /// How long the key is valid, in milliseconds; as long as the task is kept by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_window_ms: Option<u64>,
    /// How long the task holds the key, if no window ends it sooner: as long as it is `kept` (the default), is `unfinished`, or is `waiting`
    /// for its first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::KeyHold>))]
    pub idempotency_hold: Option<KeyHold>,
    /// What happens to a waiting task that holds the key: `keep` leaves it as it is (the default), `replace` gives it this input,
    /// `postpone` moves its due time to that of this submit, and `replace_and_postpone` does both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::OnConflict>))]
    pub idempotency_on_conflict: Option<OnConflict>,
    /// Tags, for filters.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::Label>, max_items = 16))]
    pub tags: Vec<Tag>,
    /// The trace that the task belongs to; the request's `traceparent` header by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Trace>))]
    pub traceparent: Option<TraceParent>,
    /// The ordering key: tasks of one queue with the same key run one at a time, in submit order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Key>))]
    pub ordering_key: Option<OrderingKey>,
    /// What happens to the next tasks with this ordering key if this one fails permanently; `continue` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::FailurePolicy>))]
    pub ordering_on_failure: Option<OnFailure>,
    /// The limit key: the limits with this key apply to the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub limit_key: Option<LimitKey>,
    /// The group of the task, such as a tenant: the groups of a queue are served in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub fairness_group: Option<FairnessGroup>,
    /// Omits the input from the response, because the caller has it. If the task existed before, its input is included.
    #[serde(default, skip_serializing_if = "is_false")]
    pub omit_input: bool,
}

/// The delays between retries. Omitted fields have their defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RetryPolicyBody {
    /// The delay before the first retry; 1,000 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 31_536_000_000_u64))]
    pub initial_interval_ms: Option<u64>,
    /// The longest delay; 60,000 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 31_536_000_000_u64))]
    pub max_interval_ms: Option<u64>,
    /// The factor between two successive delays; 2 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100))]
    pub multiplier: Option<f64>,
    /// The random deviation of a delay in both directions, as a fraction of it; 0.25 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1))]
    pub jitter_percent: Option<f64>,
}

impl RetryPolicyBody {
    pub(super) fn into_policy(self) -> RetryPolicy {
        let default = RetryPolicy::default();
        RetryPolicy {
            initial_interval_ms: self
                .initial_interval_ms
                .unwrap_or(default.initial_interval_ms),
            max_interval_ms: self.max_interval_ms.unwrap_or(default.max_interval_ms),
            multiplier: self.multiplier.unwrap_or(default.multiplier),
            jitter_percent: self.jitter_percent.unwrap_or(default.jitter_percent),
            extra: default.extra,
        }
    }

    fn from_policy(policy: &RetryPolicy) -> Self {
        Self {
            initial_interval_ms: Some(policy.initial_interval_ms),
            max_interval_ms: Some(policy.max_interval_ms),
            multiplier: Some(policy.multiplier),
            jitter_percent: Some(policy.jitter_percent),
        }
    }
}

impl SubmitBody {
    /// Converts to the engine's request.
    pub fn into_request(self) -> Result<SubmitRequest, EngineError> {
        let available = when("available_at", self.available_at, "delay_ms", self.delay_ms)?;
        let expires = when(
            "expires_at",
            self.expires_at,
            "expires_in_ms",
            self.expires_in_ms,
        )?;
        let idempotency = match self.idempotency_key {
            Some(key) => Some(IdempotencyRequest {
                key,
                scope: self.idempotency_scope.unwrap_or_default(),
                window_ms: self.idempotency_window_ms,
            }),
            None if self.idempotency_scope.is_some() || self.idempotency_window_ms.is_some() => {
                return Err(EngineError::BadRequest(
                    "idempotency_scope and idempotency_window_ms require idempotency_key"
                        .to_owned(),
                ));
            }
            None => None,
        };
        let uniqueness = Uniqueness {
            hold: self.idempotency_hold.unwrap_or_default(),
            on_conflict: self.idempotency_on_conflict.unwrap_or_default(),
        };
        if idempotency.is_none() && uniqueness != Uniqueness::default() {
            return Err(EngineError::BadRequest(
                "idempotency_hold and idempotency_on_conflict require idempotency_key".to_owned(),
            ));
        }
        let ordering = match (self.ordering_key, self.ordering_on_failure) {
            (Some(key), on_failure) => Some(OrderingRule {
                key,
                on_failure: on_failure.unwrap_or_default(),
            }),
            (None, Some(_)) => {
                return Err(EngineError::BadRequest(
                    "ordering_on_failure requires ordering_key".to_owned(),
                ));
            }
            (None, None) => None,
        };
        let input = one_of("input", self.input, self.input_bytes)?.unwrap_or_else(Json::null);
        let default = SubmitRequest::new(self.task_type, input);
        Ok(SubmitRequest {
            id: self.id,
            queue: self.queue.unwrap_or_default(),
            priority: self.priority.unwrap_or(default.priority),
            available: available.unwrap_or_default(),
            expires,
            timeout_seconds: self.timeout_seconds,
            max_retries: self.max_retries,
            retry_policy: self
                .retry_policy
                .map_or_else(RetryPolicy::default, RetryPolicyBody::into_policy),
            idempotency,
            uniqueness,
            tags: self.tags,
            traceparent: self.traceparent,
            ordering,
            limit_key: self.limit_key,
            fairness_group: self.fairness_group,
            ..default
        })
    }

    /// Converts from the engine's request. Fields with default values are omitted.
    pub fn from_request(request: SubmitRequest) -> Self {
        let (available_at, delay_ms) = match request.available {
            When::Now => (None, None),
            When::InMillis(millis) => (None, Some(millis)),
            When::At(time) => (Some(time), None),
        };
        let (expires_at, expires_in_ms) = match request.expires {
            None => (None, None),
            Some(When::Now) => (None, Some(0)),
            Some(When::InMillis(millis)) => (None, Some(millis)),
            Some(When::At(time)) => (Some(time), None),
        };
        let (key, scope, window_ms) = match request.idempotency {
            None => (None, None, None),
            Some(request) => (Some(request.key), Some(request.scope), request.window_ms),
        };
        Self {
            id: request.id,
            task_type: request.task_type,
            input: Some(request.input),
            input_bytes: None,
            queue: unless_default(request.queue, &QueueName::default()),
            priority: unless_default(request.priority, &PRIORITY_DEFAULT),
            available_at,
            delay_ms,
            expires_at,
            expires_in_ms,
            timeout_seconds: request.timeout_seconds,
            max_retries: request.max_retries,
            retry_policy: unless_default(request.retry_policy, &RetryPolicy::default())
                .map(|policy| RetryPolicyBody::from_policy(&policy)),
            idempotency_key: key,
            idempotency_scope: scope,
            idempotency_window_ms: window_ms,
            idempotency_hold: unless_default(request.uniqueness.hold, &KeyHold::default()),
            idempotency_on_conflict: unless_default(
                request.uniqueness.on_conflict,
                &OnConflict::default(),
            ),
            tags: request.tags,
            traceparent: request.traceparent,
            ordering_on_failure: (request.ordering.as_ref())
                .and_then(|rule| unless_default(rule.on_failure, &OnFailure::default())),
            ordering_key: request.ordering.map(|rule| rule.key),
            limit_key: request.limit_key,
            fairness_group: request.fairness_group,
            omit_input: false,
        }
    }
}

fn unless_default<T: PartialEq>(value: T, default: &T) -> Option<T> {
    (value != *default).then_some(value)
}

fn when(
    at_name: &str,
    at: Option<Timestamp>,
    in_name: &str,
    in_ms: Option<u64>,
) -> Result<Option<When>, EngineError> {
    match (at, in_ms) {
        (Some(_), Some(_)) => Err(EngineError::BadRequest(format!(
            "give {at_name} or {in_name}, not both"
        ))),
        (Some(time), None) => Ok(Some(When::At(time))),
        (None, Some(millis)) if millis > SUBMIT_DELAY_MAX_MS => Err(EngineError::BadRequest(
            format!("{in_name} must be at most {SUBMIT_DELAY_MAX_MS} (a hundred years)"),
        )),
        (None, Some(millis)) => Ok(Some(When::InMillis(millis))),
        (None, None) => Ok(None),
    }
}

/// A submitted task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SubmitResponse {
    /// The task; the existing one if this submit is a duplicate.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::TaskRecord))]
    pub task: Task,
    /// Whether the task existed before.
    pub duplicate: bool,
}

impl From<Submitted> for SubmitResponse {
    fn from(submitted: Submitted) -> Self {
        Self {
            task: submitted.task,
            duplicate: submitted.duplicate,
        }
    }
}

impl From<SubmitResponse> for Submitted {
    fn from(response: SubmitResponse) -> Self {
        Self {
            task: response.task,
            duplicate: response.duplicate,
        }
    }
}

/// The response to a duplicate submit for a client that may not read tasks: the existing task may be another client's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DuplicateResponse {
    /// The existing task.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub id: TaskId,
    /// Its status.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::TaskStatus))]
    pub status: Status,
    /// Always true.
    pub duplicate: bool,
}

impl DuplicateResponse {
    /// The response for an existing task.
    pub fn of(submitted: &Submitted) -> Self {
        Self {
            id: submitted.task.id,
            status: submitted.task.status,
            duplicate: true,
        }
    }
}

/// The result of one submit of an array: the task, or a problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SubmitResult {
    /// The task, if the submit succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::TaskRecord>))]
    pub task: Option<Task>,
    /// Whether the task existed before.
    #[serde(default)]
    pub duplicate: bool,
    /// The existing task, instead of `task`, if this is a duplicate and the client may not read tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Id>))]
    pub id: Option<TaskId>,
    /// The status of the task `id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::TaskStatus>))]
    pub status: Option<Status>,
    /// The problem, if the submit failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

impl SubmitResult {
    /// The result of a duplicate for a client that may not read tasks.
    pub fn duplicate(submitted: &Submitted) -> Self {
        Self {
            task: None,
            duplicate: true,
            id: Some(submitted.task.id),
            status: Some(submitted.task.status),
            problem: None,
        }
    }
}

impl From<Result<Submitted, Box<Problem>>> for SubmitResult {
    fn from(result: Result<Submitted, Box<Problem>>) -> Self {
        match result {
            Ok(submitted) => Self {
                task: Some(submitted.task),
                duplicate: submitted.duplicate,
                id: None,
                status: None,
                problem: None,
            },
            Err(problem) => Self {
                task: None,
                duplicate: false,
                id: None,
                status: None,
                problem: Some(*problem),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(request: &SubmitRequest) -> SubmitRequest {
        let text = serde_json::to_string(&SubmitBody::from_request(request.clone())).unwrap();
        serde_json::from_str::<SubmitBody>(&text)
            .unwrap()
            .into_request()
            .unwrap()
    }

    #[test]
    fn requests_round_trip() {
        let plain =
            SubmitRequest::new("t".parse().unwrap(), Json::parse("{\"n\": 1.10 }").unwrap());
        assert_eq!(round_trip(&plain), plain);
        let time = Timestamp::from_millis(1_763_238_840_123);
        let full = SubmitRequest {
            id: Some("550e8400-e29b-41d4-a716-446655440000".parse().unwrap()),
            queue: "q".parse().unwrap(),
            priority: 9,
            available: When::At(time),
            expires: Some(When::InMillis(9)),
            timeout_seconds: Some(7),
            max_retries: Some(0),
            retry_policy: RetryPolicy {
                multiplier: 1.1,
                jitter_percent: 0.3,
                ..RetryPolicy::default()
            },
            idempotency: Some(IdempotencyRequest {
                key: "k".parse().unwrap(),
                scope: IdempotencyScope::Global,
                window_ms: Some(5),
            }),
            tags: vec!["ä b".parse().unwrap()],
            traceparent: Some(
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
                    .parse()
                    .unwrap(),
            ),
            ordering: Some(OrderingRule {
                key: "customer 7".parse().unwrap(),
                on_failure: OnFailure::Stop,
            }),
            ..plain.clone()
        };
        assert_eq!(round_trip(&full), full);
        let delayed = SubmitRequest {
            available: When::InMillis(3),
            expires: Some(When::At(time)),
            ..plain
        };
        assert_eq!(round_trip(&delayed), delayed);
    }

    #[test]
    fn contradictions_and_misspellings_are_rejected() {
        let parse = |text: &str| {
            serde_json::from_str::<SubmitBody>(text)
                .map_err(|error| error.to_string())
                .and_then(|body| body.into_request().map_err(|error| error.to_string()))
        };
        assert!(parse(r#"{"task_type":"t"}"#).is_ok());
        for bad in [
            r#"{"task_type":"t","prioritty":1}"#,
            r#"{"task_type":"a/b"}"#,
            r#"{"input":1}"#,
            r#"{"task_type":"t","delay_ms":1,"available_at":"2026-01-01T00:00:00Z"}"#,
            r#"{"task_type":"t","idempotency_scope":"global"}"#,
            r#"{"task_type":"t","ordering_on_failure":"stop"}"#,
            r#"{"task_type":"t","ordering_key":"k","ordering_on_failure":"explode"}"#,
            r#"{"task_type":"t","ordering_key":""}"#,
            r#"{"task_type":"t","input":1,"input_bytes":{"$bytes":"","content_type":"a/b"}}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
