//! The task: one record for its whole life.

mod codec;
mod compact;
mod event;
mod log;
mod ordering;
mod outline;
mod policy;
mod revealed;
mod status;
mod uniqueness;

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

pub use codec::{DecodeError, READER, decode, encode};
pub(crate) use codec::{
    FAIRNESS_READER, LIMIT_READER, MOVED_READER, ORDERING_READER, UNIQUE_READER,
};
pub use compact::{decode_compact, encode_compact};
pub use event::{Event, EventAction, History};
pub use log::AttemptLog;
pub use ordering::{OnFailure, OrderingLine, OrderingRule};
pub use outline::Outline;
pub use policy::TaskRetryPolicy;
pub use status::{Status, UnknownStatus};
pub use uniqueness::{KeyHold, OnConflict, Uniqueness};

use crate::extra::Extra;
use crate::id::{LeaseId, OpId, Shard, TaskId};
use crate::json::Json;
use crate::names::{
    FairnessGroup, IdempotencyKey, LimitKey, OrderingKey, QueueName, Tag, TaskType, WorkerId,
};
use crate::payload::{Payload, PayloadRef};
use crate::time::Timestamp;
use crate::trace::TraceParent;

/// The highest priority number. Lower numbers are served first.
pub const PRIORITY_MAX: u8 = 9;
/// The default priority.
pub const PRIORITY_DEFAULT: u8 = 5;
/// The default timeout of an attempt.
pub const TIMEOUT_DEFAULT_SECONDS: u64 = 300;
/// The default number of retries.
pub const RETRIES_DEFAULT: u32 = 3;

/// A unit of work and its complete state.
///
/// The fields have the same names as in the stored JSON. Only the transitions of this crate change them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its permanent id.
    pub id: TaskId,
    /// The kind of work; selects the handler.
    pub task_type: TaskType,
    /// Its shard: the first digit of the id.
    pub shard: Shard,
    /// Its queue.
    #[serde(default)]
    pub queue: QueueName,
    /// The priority, 0 to 9; lower is served first.
    #[serde(default = "default_priority")]
    pub priority: u8,
    /// Its current status.
    pub status: Status,

    /// The number of changes of this record. It makes the bytes of any two states differ.
    #[serde(default)]
    pub revision: u64,
    /// The operation that wrote this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op_id: Option<OpId>,
    /// The submit order, assigned by engines that hold all tasks in memory; 0 otherwise.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sequence: u64,

    /// When it becomes claimable.
    pub available_at: Timestamp,
    /// A pending task is cancelled after this time instead of claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// How long the task may wait each time after it became due. Then it fails instead of being claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wait_ms: Option<u64>,
    /// When the current attempt was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the lease of the current attempt expires unless renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<Timestamp>,

    /// The input, if it is small enough for the record.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    input: Option<Json>,
    /// A reference to the input, if it is in a separate object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input_ref: Option<Box<PayloadRef>>,
    /// The output, if it is small enough for the record.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    output: Option<Json>,
    /// A reference to the output, if it is in a separate object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_ref: Option<Box<PayloadRef>>,

    /// The maximum duration of an attempt.
    #[serde(default = "default_timeout_seconds")]
    pub timeout_seconds: u64,
    /// The maximum number of retries.
    #[serde(default = "default_max_retries")]
    pub max_retries: u32,
    /// The number of retries so far.
    #[serde(default)]
    pub retry_count: u32,
    /// The delay before a retry.
    #[serde(default)]
    pub retry_policy: TaskRetryPolicy,

    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,

    /// The worker of the current attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// The lease of the current attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
    /// The number of claims so far. It never decreases: it is the fencing token.
    #[serde(default)]
    pub attempt: u32,
    /// The index of the entry of a cluster's replicated log that granted the claim. Only the response to a claim has it, because the
    /// record is in that entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_index: Option<NonZeroU64>,
    /// The last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Box<str>>,

    /// Identifies duplicate submits of this task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// The scope in which the key must be unique.
    #[serde(default, skip_serializing_if = "is_default")]
    pub idempotency_scope: IdempotencyScope,
    /// The queue of its submit, in which its key holds, if it was moved to another one since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_queue: Option<QueueName>,
    /// The end of the key's validity. Without one, the key is valid as long as the task is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_until: Option<Timestamp>,
    /// How long the task holds the key. A window ends it sooner.
    #[serde(default, skip_serializing_if = "is_default")]
    pub idempotency_hold: KeyHold,
    /// User-defined labels for searching.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    /// The trace of the submit, to be continued by the handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceParent>,
    /// The progress reported by the current attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Box<Progress>>,
    /// Whether a cancel of the running attempt was requested.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cancel_requested: bool,

    /// The history, oldest first, bounded.
    #[serde(default)]
    pub events: History,
    /// The number of dropped older events.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub events_dropped: u64,

    /// The lowest reader that may use this record ([`READER`]); 0 if every version may.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub min_reader: u64,
    /// Tasks of one queue with the same ordering key run one at a time, in submit order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<OrderingKey>,
    /// What happens to the tasks behind this one if it fails permanently.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ordering_on_failure: OnFailure,
    /// Distinguishes the times that this task joined the line of its ordering key: 0 for the submit, higher for each later replay. In
    /// engines that hold all tasks in memory it is also the place in the line.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ordering_turn: u64,
    /// The limits with this key apply to the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_key: Option<LimitKey>,
    /// Tasks of the same queue are served in turn by their groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness_group: Option<FairnessGroup>,
    /// The place of the task in the ready index of direct mode, if it is not its due time. It orders, and delays nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness_rank: Option<Timestamp>,
    /// The logs of the last attempts, oldest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) logs: Option<Box<[AttemptLog]>>,

    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The progress reported by an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// 0 to 100.
    pub percent: f64,
    /// A message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// When it was reported.
    pub at: Timestamp,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The scope in which an idempotency key must be unique.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum IdempotencyScope {
    /// Among the tasks of one queue.
    #[default]
    Queue,
    /// Among the tasks of one type in one queue.
    Type,
    /// Among all tasks.
    Global,
}

/// An idempotency key with its scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopedKey {
    queue: Option<QueueName>,
    task_type: Option<TaskType>,
    key: IdempotencyKey,
}

impl ScopedKey {
    /// Combines a key with its scope.
    pub fn new(
        scope: IdempotencyScope,
        queue: &QueueName,
        task_type: &TaskType,
        key: &IdempotencyKey,
    ) -> Self {
        Self {
            queue: (scope != IdempotencyScope::Global).then(|| queue.clone()),
            task_type: (scope == IdempotencyScope::Type).then(|| task_type.clone()),
            key: key.clone(),
        }
    }

    /// The key and its scope as one unique text. Stores name objects by it, so it must never change.
    pub fn canonical(&self) -> String {
        let queue = self.queue.as_ref().map_or("", QueueName::as_str);
        let task_type = self.task_type.as_ref().map_or("", TaskType::as_str);
        // Names contain no slash, so the first two slashes delimit the scope, whatever the key contains.
        format!("{queue}/{task_type}/{}", self.key)
    }
}

/// The initial values of a task; [`crate::transition::submit`] sets the rest.
pub(crate) struct NewTask {
    pub(crate) id: TaskId,
    pub(crate) task_type: TaskType,
    pub(crate) input: Payload,
    pub(crate) available_at: Timestamp,
    pub(crate) now: Timestamp,
    pub(crate) op: OpId,
}

impl Task {
    /// A pending task with the default settings.
    pub(crate) fn new(new: NewTask) -> Self {
        let (input, input_ref) = split(Some(new.input));
        Self {
            id: new.id,
            task_type: new.task_type,
            shard: new.id.shard(),
            queue: QueueName::default(),
            priority: PRIORITY_DEFAULT,
            status: Status::Pending,
            revision: 1,
            op_id: Some(new.op),
            sequence: 0,
            available_at: new.available_at,
            expires_at: None,
            max_wait_ms: None,
            started_at: None,
            lease_expires_at: None,
            input,
            input_ref,
            output: None,
            output_ref: None,
            timeout_seconds: TIMEOUT_DEFAULT_SECONDS,
            max_retries: RETRIES_DEFAULT,
            retry_count: 0,
            retry_policy: TaskRetryPolicy::default(),
            created_at: new.now,
            updated_at: new.now,
            completed_at: None,
            worker_id: None,
            lease_id: None,
            attempt: 0,
            log_index: None,
            last_error: None,
            idempotency_key: None,
            idempotency_scope: IdempotencyScope::default(),
            idempotency_queue: None,
            idempotency_until: None,
            idempotency_hold: KeyHold::default(),
            tags: Vec::new(),
            traceparent: None,
            progress: None,
            cancel_requested: false,
            events: History::default(),
            events_dropped: 0,
            min_reader: 0,
            ordering_key: None,
            ordering_on_failure: OnFailure::default(),
            ordering_turn: 0,
            limit_key: None,
            fairness_group: None,
            fairness_rank: None,
            logs: None,
            extra: Extra::default(),
        }
    }

    /// The input; `null` if the record has none.
    pub fn input(&self) -> Payload {
        join(self.input.as_ref(), self.input_ref.as_deref())
            .unwrap_or_else(|| Payload::Inline(Json::null()))
    }

    /// The input, if it is in the record.
    pub fn inline_input(&self) -> Option<&Json> {
        self.input.as_ref()
    }

    /// Restores the input of a task that was stored without it. If the record refers to a separate input object,
    /// it is unchanged: a record with two inputs could not be read.
    #[must_use]
    pub fn with_input(mut self, input: Json) -> Self {
        if self.input_ref.is_none() {
            self.input = Some(input);
        }
        self
    }

    /// The record without its inline input, for a caller that already has it. A reference to a separate input
    /// object stays.
    #[must_use]
    pub fn without_input(mut self) -> Self {
        self.input = None;
        self
    }

    /// The task without payloads that are stored in its record, for a response that has no room for them.
    #[must_use]
    pub fn without_payloads(mut self) -> Self {
        self.input = None;
        self.output = None;
        self
    }

    /// Whether the record contains or refers to its input.
    pub fn names_input(&self) -> bool {
        self.input.is_some() || self.input_ref.is_some()
    }

    /// The output, if there is one.
    pub fn output(&self) -> Option<Payload> {
        join(self.output.as_ref(), self.output_ref.as_deref())
    }

    /// The total size of the inline payloads.
    fn inline_bytes(&self) -> usize {
        let payloads = [&self.input, &self.output];
        let payloads: usize = payloads.into_iter().flatten().map(Json::size).sum();
        payloads + self.log_bytes()
    }

    pub(crate) fn set_input(&mut self, input: Payload) {
        (self.input, self.input_ref) = split(Some(input));
    }

    pub(crate) fn set_output(&mut self, output: Option<Payload>) {
        (self.output, self.output_ref) = split(output);
    }

    /// The idempotency key in its scope.
    pub fn scoped_key(&self) -> Option<ScopedKey> {
        let queue = self.idempotency_queue.as_ref().unwrap_or(&self.queue);
        self.idempotency_key
            .as_ref()
            .map(|key| ScopedKey::new(self.idempotency_scope, queue, &self.task_type, key))
    }

    /// Whether the task can be claimed at `now`.
    pub fn is_available(&self, now: Timestamp) -> bool {
        self.status == Status::Pending && self.available_at <= now && !self.is_expired(now)
    }

    /// Whether the pending task has expired, or has waited for too long.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.status == Status::Pending && self.pending_until().is_some_and(|until| until <= now)
    }

    /// The end of the time in which the task can be claimed: when it expires, or when it has waited for its maximum wait.
    pub fn pending_until(&self) -> Option<Timestamp> {
        let waited = self
            .max_wait_ms
            .map(|max_wait_ms| self.available_at.plus_millis(max_wait_ms));
        self.expires_at.into_iter().chain(waited).min()
    }

    /// Whether the lease of the current attempt has expired.
    pub fn is_lease_expired(&self, now: Timestamp) -> bool {
        self.status == Status::Running
            && self
                .lease_expires_at
                .is_none_or(|expires_at| expires_at < now)
    }

    /// Whether the operation wrote this record or an earlier revision of it.
    pub fn carries(&self, op: OpId) -> bool {
        self.op_id == Some(op) || self.events.iter().any(|event| event.op_id == Some(op))
    }
}

fn split(payload: Option<Payload>) -> (Option<Json>, Option<Box<PayloadRef>>) {
    match payload {
        None => (None, None),
        Some(Payload::Inline(json)) => (Some(json), None),
        Some(Payload::Stored(reference)) => (None, Some(Box::new(reference))),
    }
}

fn join(inline: Option<&Json>, stored: Option<&PayloadRef>) -> Option<Payload> {
    match (inline, stored) {
        (Some(json), _) => Some(Payload::Inline(json.clone())),
        (None, Some(reference)) => Some(Payload::Stored(reference.clone())),
        (None, None) => None,
    }
}

/// Deserializes a present field as it is, including `null`, which is a valid input.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

fn default_priority() -> u8 {
    PRIORITY_DEFAULT
}

fn default_timeout_seconds() -> u64 {
    TIMEOUT_DEFAULT_SECONDS
}

fn default_max_retries() -> u32 {
    RETRIES_DEFAULT
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
