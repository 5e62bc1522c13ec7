//! The task: one record for its whole life.

mod codec;
mod compact;
mod event;
mod policy;
mod status;

use serde::{Deserialize, Serialize};

pub use codec::{DecodeError, decode, encode};
pub use compact::{decode_compact, encode_compact};
pub use event::{Event, EventAction, History};
pub use policy::TaskRetryPolicy;
pub use status::{Status, UnknownStatus};

use crate::extra::Extra;
use crate::id::{LeaseId, OpId, Shard, TaskId};
use crate::json::Json;
use crate::names::{IdempotencyKey, QueueName, Tag, TaskType, WorkerId};
use crate::payload::{Payload, PayloadRef};
use crate::time::Timestamp;
use crate::trace::TraceParent;

/// The lowest priority number is served first.
pub const PRIORITY_MAX: u8 = 9;
/// The priority of tasks that name none.
pub const PRIORITY_DEFAULT: u8 = 5;
/// The longest time that an attempt may take where the submit names none.
pub const TIMEOUT_DEFAULT_SECONDS: u64 = 300;
/// How often a task is retried where the submit names nothing.
pub const RETRIES_DEFAULT: u32 = 3;

/// A unit of work, and everything that is known of it.
///
/// The fields carry the names that they have in the stored JSON. Only the transitions of this crate change them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its name, for ever.
    pub id: TaskId,
    /// The kind of work; selects the handler.
    pub task_type: TaskType,
    /// The part of the store that holds it: the first digit of the id.
    pub shard: Shard,
    /// The queue that it waits in.
    #[serde(default)]
    pub queue: QueueName,
    /// 0 to 9, lower first.
    #[serde(default = "default_priority")]
    pub priority: u8,
    /// Where it is in its life.
    pub status: Status,

    /// How many changes this record has seen. It makes the bytes of any two states differ.
    #[serde(default)]
    pub revision: u64,
    /// The operation that wrote this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op_id: Option<OpId>,
    /// The place in the order of submits, given by the engines that keep all tasks in memory; 0 elsewhere.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sequence: u64,

    /// When it can be claimed.
    pub available_at: Timestamp,
    /// A pending task past this time is cancelled instead of claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When the current attempt was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the current attempt counts as dead unless it is renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<Timestamp>,

    /// The input, where it is small enough to be kept here.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    input: Option<Json>,
    /// What the input is, where it is kept in an object of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input_ref: Option<Box<PayloadRef>>,
    /// The output, where it is small enough to be kept here.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    output: Option<Json>,
    /// What the output is, where it is kept in an object of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_ref: Option<Box<PayloadRef>>,

    /// The longest time that an attempt may take.
    #[serde(default = "default_timeout_seconds")]
    pub timeout_seconds: u64,
    /// How often it may be retried.
    #[serde(default = "default_max_retries")]
    pub max_retries: u32,
    /// How often it has been.
    #[serde(default)]
    pub retry_count: u32,
    /// How long it waits before a retry.
    #[serde(default)]
    pub retry_policy: TaskRetryPolicy,

    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it came to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,

    /// Who runs the current attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// The claim of the current attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
    /// How often it has been claimed. It never goes down: it is the fencing token.
    #[serde(default)]
    pub attempt: u32,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Box<str>>,

    /// What makes another submit the same as this one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// Among which tasks the key must be unique.
    #[serde(default, skip_serializing_if = "is_default")]
    pub idempotency_scope: IdempotencyScope,
    /// Until when the key holds; as long as the task is kept, where there is no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_until: Option<Timestamp>,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    /// The trace that the submit was a part of, for the handler to go on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceParent>,
    /// How far the current attempt says it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Box<Progress>>,
    /// Somebody asked the running attempt to stop.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cancel_requested: bool,

    /// What happened to it, oldest first, bounded.
    #[serde(default)]
    pub events: History,
    /// How many older events were dropped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub events_dropped: u64,

    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How far an attempt says it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// 0 to 100.
    pub percent: f64,
    /// What it is doing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// When it said so.
    pub at: Timestamp,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Among which tasks an idempotency key must be unique.
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

/// What a task of the given scope, queue and type shares its idempotency key with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopedKey {
    queue: Option<QueueName>,
    task_type: Option<TaskType>,
    key: IdempotencyKey,
}

impl ScopedKey {
    /// Puts a key into its scope.
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

    /// The key and its scope as one text, which no other key and scope have. Stores name objects by it, so it never changes.
    pub fn canonical(&self) -> String {
        let queue = self.queue.as_ref().map_or("", QueueName::as_str);
        let task_type = self.task_type.as_ref().map_or("", TaskType::as_str);
        // Names hold no slash, so that the first two end the scope whatever the key holds.
        format!("{queue}/{task_type}/{}", self.key)
    }
}

/// What a new task starts with; [`crate::transition::submit`] fills in the rest.
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
            last_error: None,
            idempotency_key: None,
            idempotency_scope: IdempotencyScope::default(),
            idempotency_until: None,
            tags: Vec::new(),
            traceparent: None,
            progress: None,
            cancel_requested: false,
            events: History::default(),
            events_dropped: 0,
            extra: Extra::default(),
        }
    }

    /// The input; `null` where the record has none.
    pub fn input(&self) -> Payload {
        join(self.input.as_ref(), self.input_ref.as_deref())
            .unwrap_or_else(|| Payload::Inline(Json::null()))
    }

    /// The input, if it is kept in the record.
    pub fn inline_input(&self) -> Option<&Json> {
        self.input.as_ref()
    }

    /// Gives a task that was stored without its input its input back. A record that says that its input is elsewhere is believed: with
    /// two inputs it could not be read again.
    #[must_use]
    pub fn with_input(mut self, input: Json) -> Self {
        if self.input_ref.is_none() {
            self.input = Some(input);
        }
        self
    }

    /// The record alone, for whoever knows the input already. An input that is kept in an object of its own is named all the same.
    #[must_use]
    pub fn without_input(mut self) -> Self {
        self.input = None;
        self
    }

    /// Whether the record says what its input is.
    pub fn names_input(&self) -> bool {
        self.input.is_some() || self.input_ref.is_some()
    }

    /// The output, once there is one.
    pub fn output(&self) -> Option<Payload> {
        join(self.output.as_ref(), self.output_ref.as_deref())
    }

    /// How large the payloads are that are kept here.
    fn inline_bytes(&self) -> usize {
        let payloads = [&self.input, &self.output];
        payloads.into_iter().flatten().map(Json::size).sum()
    }

    pub(crate) fn set_output(&mut self, output: Option<Payload>) {
        (self.output, self.output_ref) = split(output);
    }

    /// The idempotency key in its scope.
    pub fn scoped_key(&self) -> Option<ScopedKey> {
        self.idempotency_key
            .as_ref()
            .map(|key| ScopedKey::new(self.idempotency_scope, &self.queue, &self.task_type, key))
    }

    /// Whether the idempotency key still stands for this task.
    pub fn key_holds(&self, now: Timestamp) -> bool {
        self.idempotency_key.is_some() && self.idempotency_until.is_none_or(|until| now < until)
    }

    /// Whether the task can be claimed at `now`.
    pub fn is_available(&self, now: Timestamp) -> bool {
        self.status == Status::Pending && self.available_at <= now && !self.is_expired(now)
    }

    /// Whether the task waited longer than it is worth.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.status == Status::Pending
            && self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }

    /// Whether the current attempt's lease has run out.
    pub fn is_lease_expired(&self, now: Timestamp) -> bool {
        self.status == Status::Running
            && self
                .lease_expires_at
                .is_none_or(|expires_at| expires_at < now)
    }

    /// Whether an operation wrote this record, or one that this record was built upon.
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

/// Reads a field that is there as what it says, `null` included: `null` is an input like any other.
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
