//! Tasks, with their events, logs and reasons to wait.

use utoipa::ToSchema;

use super::{
    AnyJson, EventAction, FailurePolicy, Id, KeyHold, Name, Scope, ShardDigit, TaskStatus, Time,
    Trace,
};

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
    /// What happens to the next tasks with this ordering key if this one fails permanently; absent for `continue`.
    #[schema(value_type = Option<FailurePolicy>)]
    pub ordering_on_failure: Option<String>,
    /// Distinguishes the times that the task joined the line of its ordering key.
    #[schema(required = false)]
    pub ordering_turn: u64,
    /// The limit key.
    #[schema(value_type = Option<Name>)]
    pub limit_key: Option<String>,
    /// The group; the groups of a queue are served in turn.
    #[schema(value_type = Option<Name>)]
    pub fairness_group: Option<String>,
    /// The place of the task in the index of direct mode, if it is not its due time. It orders, and delays nothing.
    #[schema(value_type = Option<Time>)]
    pub fairness_rank: Option<String>,
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
    /// `paused`: its queue or its type is paused.
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
    /// The queue, if it is the queue that is paused.
    #[schema(value_type = Option<Name>)]
    pub queue: Option<String>,
    /// Otherwise the type that is paused.
    #[schema(value_type = Option<Name>)]
    pub task_type: Option<String>,
    /// Since when it is paused.
    #[schema(value_type = Option<Time>)]
    pub since: Option<String>,
    /// Who paused it.
    pub by: Option<String>,
    /// Why it was paused.
    pub note: Option<String>,
}

/// The history of a task, oldest first.
#[derive(Debug, ToSchema)]
pub struct HistoryResponse {
    /// The events.
    pub events: Vec<EventRecord>,
}
