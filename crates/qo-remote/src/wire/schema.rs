//! OpenAPI schemas of types that are defined in other crates.
//!
//! The core does not depend on OpenAPI, so the schemas of its names, times and records are defined here. A test compares the
//! schema of a task with serialized tasks.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

/// The pattern of a text without control characters.
const NO_CONTROL_CHARACTERS: &str = r"^[^\u0000-\u001f\u007f-\u009f]+$";

/// Defines the schema of a string.
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
    /// A UUID in hyphenated form.
    Id,
    |text| text
        .format(Some(SchemaFormat::Custom("uuid".to_owned())))
        .pattern(Some("^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"))
        .min_length(Some(36))
        .max_length(Some(36))
);
text!(
    /// The name of a queue, a task type or a worker.
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
        .pattern(Some(NO_CONTROL_CHARACTERS))
        .min_length(Some(1))
        .max_length(Some(64))
);
text!(
    /// An idempotency key: up to 256 bytes without control characters.
    Key,
    |text| text
        .pattern(Some(NO_CONTROL_CHARACTERS))
        .min_length(Some(1))
        .max_length(Some(256))
);
text!(
    /// A time in RFC 3339, from 1970 to 9999, truncated to milliseconds.
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
    /// The bytes of a blob.
    Binary,
    |text| text.format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)))
);
text!(
    /// The address of a blob: the SHA-256 digest of its bytes.
    Address,
    |text| text.pattern(Some("^[0-9a-f]{64}$"))
);
text!(
    /// The status of a task.
    TaskStatus,
    |text| text.enum_values(Some([
        "pending", "running", "completed", "failed", "cancelled", "archived"
    ]))
);
text!(
    /// The action of an event. Later versions may add actions.
    EventAction,
    |text| text.enum_values(Some(qo_core::task::EventAction::ALL.map(qo_core::task::EventAction::name)))
);
text!(
    /// The operation to apply to all matching tasks. If the filter names no statuses, `cancel` selects pending and running tasks,
    /// `replay` failed ones, `redrive` pending and failed ones, `run_now` pending ones that are not due yet, `archive` finished ones, `unarchive` archived ones, and
    /// `purge` finished and archived ones.
    BulkOperation,
    |text| text.enum_values(Some(qo_engine::BulkOperation::ALL.map(qo_engine::BulkOperation::name)))
);
text!(
    /// What a worker is asked to do: `quiet` to claim no more tasks, `stop` to finish its tasks and exit.
    WorkerAction,
    |text| text.enum_values(Some(["quiet", "stop"]))
);
text!(
    /// The kind of a failure: `retryable` and `timeout` are retried, `permanent` fails the task, `cancelled` ends a cancelled task.
    FailureKind,
    |text| text.enum_values(Some(["retryable", "permanent", "timeout", "cancelled"]))
);
text!(
    /// The tasks among which an idempotency key must be unique.
    Scope,
    |text| text.enum_values(Some(["queue", "type", "global"]))
);

text!(
    /// How long a task holds its idempotency key.
    KeyHold,
    |text| text.enum_values(Some(["kept", "unfinished", "waiting"]))
);

text!(
    /// What happens to a waiting task that holds the idempotency key of a submit.
    OnConflict,
    |text| text.enum_values(Some(["keep", "replace", "postpone", "replace_and_postpone"]))
);

text!(
    /// What happens to the next tasks with the same ordering key if this one fails for good: they run, or they wait until someone
    /// replays or cancels the failed one.
    FailurePolicy,
    |text| text.enum_values(Some(["continue", "stop"]))
);

/// Any JSON.
#[derive(Debug)]
pub struct AnyJson;

impl PartialSchema for AnyJson {
    fn schema() -> RefOr<Schema> {
        RefOr::T(Schema::Object(
            ObjectBuilder::new()
                .schema_type(SchemaType::AnyValue)
                .description(Some("Any JSON, stored byte for byte."))
                .build(),
        ))
    }
}

impl ToSchema for AnyJson {}

/// A stored blob.
#[derive(Debug, ToSchema)]
pub struct BlobInfoRecord {
    /// Its address.
    #[schema(value_type = Address)]
    pub address: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was stored.
    #[schema(value_type = Time)]
    pub stored_at: String,
}

/// The result of an upload.
#[derive(Debug, ToSchema)]
pub struct PutBlobRecord {
    /// The address of the bytes.
    #[schema(value_type = Address)]
    pub address: String,
    /// Their number.
    pub size: u64,
    /// Whether the blob is new.
    pub created: bool,
}

/// A page of blobs.
#[derive(Debug, ToSchema)]
pub struct BlobPageRecord {
    /// The blobs, by address.
    pub blobs: Vec<BlobInfoRecord>,
    /// The `after` of the next page, if there may be one.
    #[schema(value_type = Option<Address>)]
    pub next: Option<String>,
}

/// One pause.
#[derive(Debug, ToSchema)]
pub struct Pause {
    /// Since when, if it is known.
    #[schema(value_type = Option<Time>)]
    pub since: Option<String>,
    /// Who paused.
    pub by: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// The result of a garbage collection.
#[derive(Debug, ToSchema)]
pub struct GcReportRecord {
    /// The blobs that are stored and were looked at.
    pub blobs: u64,
    /// The tasks that were read, in all passes.
    pub tasks: u64,
    /// The blobs that were collected; with a dry run, those that would be.
    pub collected: u64,
    /// Their bytes.
    pub collected_bytes: u64,
    /// The blobs to which a task refers.
    pub referenced: u64,
    /// The blobs that were kept because they are within the grace time or were touched meanwhile.
    pub recent: u64,
    /// The uploads that had crashed and got a record.
    pub adopted: u64,
    /// The blobs with a record but without bytes.
    pub missing: u64,
    /// The blobs whose records cannot be read.
    pub unreadable: u64,
}

/// The code of a problem. Other members carry its facts.
#[derive(Debug, ToSchema)]
pub struct ConditionFacts {
    /// The code.
    pub code: String,
}

/// The delays between retries.
#[derive(Debug, ToSchema)]
pub struct RetryPolicyRecord {
    /// The delay before the first retry.
    pub initial_interval_ms: u64,
    /// The longest delay.
    pub max_interval_ms: u64,
    /// The factor between two successive delays.
    pub multiplier: f64,
    /// The random deviation of a delay, as a fraction of it.
    pub jitter_percent: f64,
}

/// A payload that is stored outside of the record.
#[derive(Debug, ToSchema)]
pub struct PayloadReference {
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256 hash.
    pub sha256: String,
}

/// The progress of an attempt.
#[derive(Debug, ToSchema)]
pub struct ProgressRecord {
    /// 0 to 100.
    pub percent: f64,
    /// The current step.
    pub message: Option<String>,
    /// When it was reported.
    #[schema(value_type = Time)]
    pub at: String,
}

/// One change of a task.
#[derive(Debug, ToSchema)]
pub struct EventRecord {
    /// The time of the change.
    #[schema(value_type = Time)]
    pub at: String,
    /// The action; absent in records of versions that did not write it.
    #[schema(value_type = Option<EventAction>)]
    pub action: Option<String>,
    /// The status before; absent for the submit.
    #[schema(value_type = Option<TaskStatus>)]
    pub from: Option<String>,
    /// The status after.
    #[schema(value_type = TaskStatus)]
    pub to: String,
    /// The attempt; 0 before the first.
    pub attempt: u32,
    /// The worker of the attempt.
    pub worker: Option<String>,
    /// The error or the reason.
    pub error: Option<String>,
    /// The id of the operation.
    #[schema(value_type = Option<Id>)]
    pub op_id: Option<String>,
    /// Who requested it, if an operator did: the name of a token, or what the client says.
    pub by: Option<String>,
}

/// A task in its stored form.
#[derive(Debug, ToSchema)]
#[schema(as = Task)]
pub struct TaskRecord {
    /// The task's id, which never changes.
    #[schema(value_type = Id)]
    pub id: String,
    /// The task type.
    #[schema(value_type = Name)]
    pub task_type: String,
    /// The shard: the first hexadecimal digit of the id.
    #[schema(value_type = ShardDigit)]
    pub shard: String,
    /// The queue.
    #[schema(value_type = Name)]
    pub queue: String,
    /// The priority, 0 to 9, lower first.
    pub priority: u8,
    /// The status.
    #[schema(value_type = TaskStatus)]
    pub status: String,
    /// The number of changes of this record.
    pub revision: u64,
    /// The id of the operation that wrote this revision.
    #[schema(value_type = Option<Id>)]
    pub op_id: Option<String>,
    /// The position in the order of submits, in modes that have one.
    #[schema(required = false)]
    pub sequence: u64,
    /// The earliest time at which the task can be claimed.
    #[schema(value_type = Time)]
    pub available_at: String,
    /// A pending task past this time is cancelled.
    #[schema(value_type = Option<Time>)]
    pub expires_at: Option<String>,
    /// How long the task may wait each time after it became due, in milliseconds. Then it fails.
    pub max_wait_ms: Option<u64>,
    /// When the current attempt was claimed.
    #[schema(value_type = Option<Time>)]
    pub started_at: Option<String>,
    /// When the lease of the current attempt expires, unless it is renewed.
    #[schema(value_type = Option<Time>)]
    pub lease_expires_at: Option<String>,
    /// The input, if it is small.
    #[schema(required = false, value_type = AnyJson)]
    pub input: String,
    /// The reference of a large input; `GET /v1/tasks/{id}/input` returns the input.
    pub input_ref: Option<PayloadReference>,
    /// The output, if it is small.
    #[schema(required = false, value_type = AnyJson)]
    pub output: String,
    /// The reference of a large output; `GET /v1/tasks/{id}/output` returns the output.
    pub output_ref: Option<PayloadReference>,
    /// The longest duration of an attempt.
    pub timeout_seconds: u64,
    /// The most retries.
    pub max_retries: u32,
    /// The number of retries so far.
    pub retry_count: u32,
    /// The delays between retries.
    pub retry_policy: RetryPolicyRecord,
    /// When the task was submitted.
    #[schema(value_type = Time)]
    pub created_at: String,
    /// When the task last changed.
    #[schema(value_type = Time)]
    pub updated_at: String,
    /// When the task finished.
    #[schema(value_type = Option<Time>)]
    pub completed_at: Option<String>,
    /// The worker that runs the current attempt.
    pub worker_id: Option<String>,
    /// The lease of the current attempt.
    #[schema(value_type = Option<Id>)]
    pub lease_id: Option<String>,
    /// The number of claims so far, which is the fencing token.
    pub attempt: u32,
    /// The index of the log entry that granted the claim. Only the response to a claim from a cluster has it.
    #[schema(minimum = 1)]
    pub log_index: Option<u64>,
    /// The last error.
    pub last_error: Option<String>,
    /// The idempotency key.
    pub idempotency_key: Option<String>,
    /// The tasks among which the key must be unique.
    #[schema(value_type = Option<Scope>)]
    pub idempotency_scope: Option<String>,
    /// The queue of its submit, in which the key holds, if it was moved to another one since.
    #[schema(value_type = Option<Name>)]
    pub idempotency_queue: Option<String>,
    /// Until when the key is valid.
    #[schema(value_type = Option<Time>)]
    pub idempotency_until: Option<String>,
    /// How long the task holds the key; absent for `kept`.
    #[schema(value_type = Option<KeyHold>)]
    pub idempotency_hold: Option<String>,
    /// Tags, for filters.
    #[schema(required = false)]
    pub tags: Vec<String>,
    /// The trace that the submit belongs to.
    #[schema(value_type = Option<Trace>)]
    pub traceparent: Option<String>,
    /// The progress of the current attempt.
    pub progress: Option<ProgressRecord>,
    /// Whether the running attempt was requested to stop.
    #[schema(required = false)]
    pub cancel_requested: bool,
    /// The events, oldest first, at most 64.
    pub events: Vec<EventRecord>,
    /// The number of older events that were dropped.
    #[schema(required = false)]
    pub events_dropped: u64,
    /// The lowest version of the record format that may use this record.
    #[schema(required = false)]
    pub min_reader: u64,
    /// The ordering key.
    pub ordering_key: Option<String>,
    /// What happens to the next tasks with this ordering key if this one fails for good; absent for `continue`.
    #[schema(value_type = Option<FailurePolicy>)]
    pub ordering_on_failure: Option<String>,
    /// Distinguishes the times that the task joined the line of its ordering key.
    #[schema(required = false)]
    pub ordering_turn: u64,
    /// The limit key.
    #[schema(value_type = Option<Name>)]
    pub limit_key: Option<String>,
    /// The logs of the last attempts, oldest first, at most 3.
    pub logs: Option<Vec<AttemptLogRecord>>,
}

/// The log of an attempt.
#[derive(Debug, ToSchema)]
#[schema(as = AttemptLog)]
pub struct AttemptLogRecord {
    /// The number of the attempt.
    pub attempt: u32,
    /// When the attempt ended.
    #[schema(value_type = Time)]
    pub at: String,
    /// The end of what its handler printed. A mark at its beginning says that there was more.
    pub text: String,
}

/// The logs of a task, oldest first.
#[derive(Debug, ToSchema)]
pub struct LogsResponse {
    /// The logs.
    pub logs: Vec<AttemptLogRecord>,
}

/// What a pending task waits for. Later versions may add reasons with other members.
#[derive(Debug, ToSchema)]
#[schema(as = WaitReason)]
pub struct WaitReasonRecord {
    /// `ordering_key`: another task with the same ordering key runs first. `limit`: a limit has no room.
    pub reason: String,
    /// The task at the head of the line.
    #[schema(value_type = Option<Id>)]
    pub behind: Option<String>,
    /// The number of tasks before this one, counted up to 10,000.
    pub ahead: Option<u64>,
    /// Whether the task at the head has failed and stops the key, until someone replays or cancels it.
    pub stopped: Option<bool>,
    /// The name of the limit.
    #[schema(value_type = Option<Name>)]
    pub limit: Option<String>,
    /// The bound of the limit that is reached: `concurrent` or `starts`.
    pub bound: Option<String>,
    /// How many tasks of the limit are running, or were started within its window.
    pub used: Option<u32>,
    /// How many may.
    pub max: Option<u32>,
    /// When the next one may start, if that follows from the time.
    #[schema(value_type = Option<Time>)]
    pub until: Option<String>,
}

/// A registered worker.
#[derive(Debug, ToSchema)]
#[schema(as = Worker)]
pub struct WorkerRecord {
    /// The worker's id.
    #[schema(value_type = Name)]
    pub worker_id: String,
    /// When it started.
    #[schema(value_type = Time)]
    pub started_at: String,
    /// The time of its last heartbeat.
    #[schema(value_type = Time)]
    pub last_heartbeat: String,
    /// The shards that it claims from.
    #[schema(value_type = Vec<ShardDigit>, required = false)]
    pub shards: Vec<String>,
    /// The queues that it claims from; empty for all.
    #[schema(value_type = Vec<Name>, required = false)]
    pub queues: Vec<String>,
    /// The task types that it claims; empty for all.
    #[schema(value_type = Vec<Name>, required = false)]
    pub types: Vec<String>,
    /// How many tasks it runs concurrently.
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
    /// The number of tasks that it has completed.
    #[schema(required = false)]
    pub tasks_completed: u64,
    /// The number of its failed attempts.
    #[schema(required = false)]
    pub tasks_failed: u64,
    /// What an operator asks it to do. A heartbeat does not change it.
    pub request: Option<WorkerRequestRecord>,
}

/// What an operator asks a worker to do.
#[derive(Debug, ToSchema)]
#[schema(as = WorkerRequest)]
pub struct WorkerRequestRecord {
    /// What is requested.
    #[schema(value_type = WorkerAction)]
    pub action: String,
    /// When.
    #[schema(value_type = Time)]
    pub at: String,
    /// By whom.
    pub by: Option<String>,
}

/// Registered workers.
#[derive(Debug, ToSchema)]
pub struct WorkersResponse {
    /// The workers.
    pub workers: Vec<WorkerRecord>,
}

/// The history of a task, oldest first.
#[derive(Debug, ToSchema)]
pub struct HistoryResponse {
    /// The events.
    pub events: Vec<EventRecord>,
}
