//! What the OpenAPI document says of types that are defined elsewhere.
//!
//! The core knows nothing of OpenAPI, so the forms of its names, times and records are described here, beside the API's own. A
//! test holds the description of a task against tasks as they are written.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

/// Describes a text.
macro_rules! text {
    ($(#[doc = $doc:literal])* $name:ident, |$builder:ident| $rest:expr) => {
        $(#[doc = $doc])*
        #[derive(Debug)]
        pub struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let $builder = ObjectBuilder::new()
                    .schema_type(Type::String)
                    .description(Some(concat!($($doc),*).trim()));
                RefOr::T(Schema::Object($rest.build()))
            }
        }

        impl ToSchema for $name {}
    };
}

text!(
    /// A UUID in its hyphenated form.
    Id,
    |text| text
        .format(Some(SchemaFormat::Custom("uuid".to_owned())))
        .pattern(Some("^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"))
        .min_length(Some(36))
        .max_length(Some(36))
);
text!(
    /// A name of a queue, a task type or a worker.
    Name,
    |text| text
        .pattern(Some("^[A-Za-z0-9_-][A-Za-z0-9_.-]*$"))
        .min_length(Some(1))
        .max_length(Some(64))
);
text!(
    /// A tag: up to 64 bytes without control characters.
    Label,
    |text| text
        .pattern(Some("^[ -~]+$"))
        .min_length(Some(1))
        .max_length(Some(64))
);
text!(
    /// An idempotency key: up to 256 bytes without control characters.
    Key,
    |text| text
        .pattern(Some("^[ -~]+$"))
        .min_length(Some(1))
        .max_length(Some(256))
);
text!(
    /// A time in RFC 3339, from 1970 to 9999; what is finer than a millisecond is cut off.
    Time,
    |text| text.format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
);
text!(
    /// A W3C traceparent of version 00.
    Trace,
    |text| text.pattern(Some("^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$"))
);
text!(
    /// One hexadecimal digit.
    ShardDigit,
    |text| text.pattern(Some("^[0-9a-f]$"))
);
text!(
    /// Where a task is in its life.
    TaskStatus,
    |text| text.enum_values(Some([
        "pending", "running", "completed", "failed", "cancelled", "archived"
    ]))
);
text!(
    /// What happened to a task. Later versions may add actions.
    EventAction,
    |text| text.enum_values(Some(qo_core::task::EventAction::ALL.map(qo_core::task::EventAction::name)))
);
text!(
    /// What follows from a failure: `retryable` and `timeout` are retried, `permanent` fails the task, `cancelled` ends a cancelled one.
    FailureKind,
    |text| text.enum_values(Some(["retryable", "permanent", "timeout", "cancelled"]))
);
text!(
    /// Among which tasks an idempotency key must be unique.
    Scope,
    |text| text.enum_values(Some(["queue", "type", "global"]))
);

/// Any JSON.
#[derive(Debug)]
pub struct AnyJson;

impl PartialSchema for AnyJson {
    fn schema() -> RefOr<Schema> {
        RefOr::T(Schema::Object(
            ObjectBuilder::new()
                .schema_type(SchemaType::AnyValue)
                .description(Some("Any JSON, kept to the byte."))
                .build(),
        ))
    }
}

impl ToSchema for AnyJson {}

/// The code of a condition, with its facts beside it.
#[derive(Debug, ToSchema)]
pub struct ConditionFacts {
    /// Names the condition.
    pub code: String,
}

/// How long a failed task waits before its next attempt.
#[derive(Debug, ToSchema)]
pub struct RetryPolicyRecord {
    /// The wait before the first retry.
    pub initial_interval_ms: u64,
    /// The longest wait.
    pub max_interval_ms: u64,
    /// How much longer each wait is than the one before.
    pub multiplier: f64,
    /// How far a wait may be off, as a part of itself.
    pub jitter_percent: f64,
}

/// What a payload is that is kept beside the record.
#[derive(Debug, ToSchema)]
pub struct PayloadReference {
    /// How many bytes.
    pub size: u64,
    /// What they hash to.
    pub sha256: String,
}

/// How far an attempt says it is.
#[derive(Debug, ToSchema)]
pub struct ProgressRecord {
    /// 0 to 100.
    pub percent: f64,
    /// What it is doing.
    pub message: Option<String>,
    /// When it said so.
    #[schema(value_type = Time)]
    pub at: String,
}

/// One change of a task.
#[derive(Debug, ToSchema)]
pub struct EventRecord {
    /// When.
    #[schema(value_type = Time)]
    pub at: String,
    /// What happened; absent in records of versions that did not write it.
    #[schema(value_type = Option<EventAction>)]
    pub action: Option<String>,
    /// The status before; absent for the submit.
    #[schema(value_type = Option<TaskStatus>)]
    pub from: Option<String>,
    /// The status after.
    #[schema(value_type = TaskStatus)]
    pub to: String,
    /// The attempt that it belongs to; 0 before the first.
    pub attempt: u32,
    /// The worker that it belongs to.
    pub worker: Option<String>,
    /// What went wrong, or why.
    pub error: Option<String>,
    /// The operation that did it.
    #[schema(value_type = Option<Id>)]
    pub op_id: Option<String>,
}

/// A task, as it is stored.
#[derive(Debug, ToSchema)]
#[schema(as = Task)]
pub struct TaskRecord {
    /// Its name, for ever.
    #[schema(value_type = Id)]
    pub id: String,
    /// The kind of work.
    #[schema(value_type = Name)]
    pub task_type: String,
    /// The first digit of the id.
    #[schema(value_type = ShardDigit)]
    pub shard: String,
    /// The queue that it waits in.
    #[schema(value_type = Name)]
    pub queue: String,
    /// 0 to 9, lower first.
    pub priority: u8,
    /// Where it is in its life.
    #[schema(value_type = TaskStatus)]
    pub status: String,
    /// How many changes this record has seen.
    pub revision: u64,
    /// The operation that wrote this revision.
    #[schema(value_type = Option<Id>)]
    pub op_id: Option<String>,
    /// The place in the order of submits, in the modes that have one.
    #[schema(required = false)]
    pub sequence: u64,
    /// When it can be claimed.
    #[schema(value_type = Time)]
    pub available_at: String,
    /// A pending task past this time is cancelled.
    #[schema(value_type = Option<Time>)]
    pub expires_at: Option<String>,
    /// When the current attempt was claimed.
    #[schema(value_type = Option<Time>)]
    pub started_at: Option<String>,
    /// When the current attempt counts as dead unless it is renewed.
    #[schema(value_type = Option<Time>)]
    pub lease_expires_at: Option<String>,
    /// The input, where it is small.
    #[schema(required = false, value_type = AnyJson)]
    pub input: String,
    /// What the input is, where it is large; `GET /v1/tasks/{id}/input` gives it.
    pub input_ref: Option<PayloadReference>,
    /// The output, where it is small.
    #[schema(required = false, value_type = AnyJson)]
    pub output: String,
    /// What the output is, where it is large; `GET /v1/tasks/{id}/output` gives it.
    pub output_ref: Option<PayloadReference>,
    /// The longest time that an attempt may take.
    pub timeout_seconds: u64,
    /// How often it may be retried.
    pub max_retries: u32,
    /// How often it has been.
    pub retry_count: u32,
    /// How long it waits before a retry.
    pub retry_policy: RetryPolicyRecord,
    /// When it was submitted.
    #[schema(value_type = Time)]
    pub created_at: String,
    /// When it last changed.
    #[schema(value_type = Time)]
    pub updated_at: String,
    /// When it came to its end.
    #[schema(value_type = Option<Time>)]
    pub completed_at: Option<String>,
    /// Who runs the current attempt.
    pub worker_id: Option<String>,
    /// The claim of the current attempt.
    #[schema(value_type = Option<Id>)]
    pub lease_id: Option<String>,
    /// How often it has been claimed: the fencing token.
    pub attempt: u32,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// What makes another submit the same.
    pub idempotency_key: Option<String>,
    /// Among which tasks the key must be unique.
    #[schema(value_type = Option<Scope>)]
    pub idempotency_scope: Option<String>,
    /// Until when the key holds.
    #[schema(value_type = Option<Time>)]
    pub idempotency_until: Option<String>,
    /// Words to find it by.
    #[schema(required = false)]
    pub tags: Vec<String>,
    /// The trace that the submit was a part of.
    #[schema(value_type = Option<Trace>)]
    pub traceparent: Option<String>,
    /// How far the current attempt says it is.
    pub progress: Option<ProgressRecord>,
    /// Somebody asked the running attempt to stop.
    #[schema(required = false)]
    pub cancel_requested: bool,
    /// What happened to it, oldest first, at most 64.
    pub events: Vec<EventRecord>,
    /// How many older events were dropped.
    #[schema(required = false)]
    pub events_dropped: u64,
}

/// What a worker says of itself.
#[derive(Debug, ToSchema)]
#[schema(as = Worker)]
pub struct WorkerRecord {
    /// Its name.
    #[schema(value_type = Name)]
    pub worker_id: String,
    /// When it started.
    #[schema(value_type = Time)]
    pub started_at: String,
    /// When it last said that it is alive.
    #[schema(value_type = Time)]
    pub last_heartbeat: String,
    /// The parts of the store that it takes from.
    #[schema(value_type = Vec<ShardDigit>, required = false)]
    pub shards: Vec<String>,
    /// The queues that it takes from; all of them, if empty.
    #[schema(value_type = Vec<Name>, required = false)]
    pub queues: Vec<String>,
    /// The types that it takes; all of them, if empty.
    #[schema(value_type = Vec<Name>, required = false)]
    pub types: Vec<String>,
    /// How many tasks it runs at once.
    #[schema(required = false)]
    pub slots: u32,
    /// The machine that it runs on.
    pub host: Option<String>,
    /// The oldest task that it is running.
    #[schema(value_type = Option<Id>)]
    pub current_task: Option<String>,
    /// All tasks that it is running.
    #[schema(value_type = Vec<Id>, required = false)]
    pub current_tasks: Vec<String>,
    /// How many tasks it has completed.
    #[schema(required = false)]
    pub tasks_completed: u64,
    /// How many attempts of it have failed.
    #[schema(required = false)]
    pub tasks_failed: u64,
}

/// The workers that have said of themselves that they are there.
#[derive(Debug, ToSchema)]
pub struct WorkersAnswer {
    /// The workers.
    pub workers: Vec<WorkerRecord>,
}

/// What happened to a task, oldest first.
#[derive(Debug, ToSchema)]
pub struct HistoryAnswer {
    /// The events.
    pub events: Vec<EventRecord>,
}
