//! The submit of a new task.

use super::Rejection;
use crate::extra::Extra;
use crate::id::{OpId, TaskId};
use crate::limits::{
    INLINE_PAYLOAD_MAX_BYTES, RETRIES_MAX, STORED_PAYLOAD_MAX_BYTES, TAGS_MAX, TIMEOUT_MAX_SECONDS,
};
use crate::names::{FairnessGroup, IdempotencyKey, LimitKey, QueueName, Tag, TaskType};
use crate::payload::Payload;
use crate::retry::RetryPolicy;
use crate::task::{
    Event, EventAction, FAIRNESS_READER, IdempotencyScope, KeyHold, LIMIT_READER, NewTask,
    ORDERING_READER, OrderingRule, PRIORITY_DEFAULT, PRIORITY_MAX, RETRIES_DEFAULT, ScopedKey,
    Status, TIMEOUT_DEFAULT_SECONDS, Task, UNIQUE_READER, Uniqueness,
};
use crate::time::Timestamp;
use crate::trace::TraceParent;

/// The requested task.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// The new task's id.
    pub id: TaskId,
    /// The kind of work.
    pub task_type: TaskType,
    /// The handler's input.
    pub input: Payload,
    /// The task's queue.
    pub queue: QueueName,
    /// 0 to 9, lower first.
    pub priority: u8,
    /// When it becomes due; `None` means now.
    pub available_at: Option<Timestamp>,
    /// When it expires if it is still pending.
    pub expires_at: Option<Timestamp>,
    /// The maximum duration of an attempt; the default of the queue if absent.
    pub timeout_seconds: Option<u64>,
    /// The maximum number of retries; the default of the queue if absent.
    pub max_retries: Option<u32>,
    /// How long it may wait after it became due; the maximum wait of the queue if absent.
    pub max_wait_ms: Option<u64>,
    /// Whether the task is added even if the queue is full. Tasks of schedules are: a run must not get lost.
    pub is_exempt: bool,
    /// The delays before the retries.
    pub retry_policy: RetryPolicy,
    /// Identifies duplicate submits.
    pub idempotency: Option<Idempotency>,
    /// How the key is held, and what this submit does if it is held.
    pub uniqueness: Uniqueness,
    /// Labels for searching.
    pub tags: Vec<Tag>,
    /// The trace context that the handler continues.
    pub traceparent: Option<TraceParent>,
    /// The order among tasks with the same key.
    pub ordering: Option<OrderingRule>,
    /// The limits with this key apply to the task.
    pub limit_key: Option<LimitKey>,
    /// The groups of a queue are served in turn.
    pub fairness_group: Option<FairnessGroup>,
}

/// Identifies duplicate submits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The key that duplicates share.
    pub key: IdempotencyKey,
    /// The scope in which the key must be unique.
    pub scope: IdempotencyScope,
    /// The end of the key's validity; `None` means as long as the task is kept.
    pub until: Option<Timestamp>,
}

impl Submission {
    /// A submission with the default settings.
    pub fn new(id: TaskId, task_type: TaskType, input: Payload) -> Self {
        Self {
            id,
            task_type,
            input,
            queue: QueueName::default(),
            priority: PRIORITY_DEFAULT,
            available_at: None,
            expires_at: None,
            timeout_seconds: None,
            max_retries: None,
            max_wait_ms: None,
            is_exempt: false,
            retry_policy: RetryPolicy::default(),
            idempotency: None,
            uniqueness: Uniqueness::default(),
            tags: Vec::new(),
            traceparent: None,
            ordering: None,
            limit_key: None,
            fairness_group: None,
        }
    }

    /// The idempotency key in its scope.
    pub fn scoped_key(&self) -> Option<ScopedKey> {
        self.idempotency
            .as_ref()
            .map(|known| ScopedKey::new(known.scope, &self.queue, &self.task_type, &known.key))
    }

    fn timeout_seconds(&self) -> u64 {
        self.timeout_seconds.unwrap_or(TIMEOUT_DEFAULT_SECONDS)
    }

    fn max_retries(&self) -> u32 {
        self.max_retries.unwrap_or(RETRIES_DEFAULT)
    }

    pub(super) fn validate(&self, now: Timestamp) -> Result<(), Rejection> {
        check_payload("input", &self.input)?;
        self.retry_policy.validate()?;
        let on_conflict = self.uniqueness.on_conflict;
        let bounds = [
            (
                self.idempotency.is_some() || self.uniqueness == Uniqueness::default(),
                "idempotency_key",
                "given, if it says how long the key is held or what happens on a conflict",
            ),
            (
                !on_conflict.postpones() || self.available_at.is_some_and(|due| due > now),
                "available_at",
                "in the future, if a waiting task is postponed to it",
            ),
            (
                // An input in its own object belongs to one task id.
                !on_conflict.replaces() || matches!(self.input, Payload::Inline(_)),
                "input",
                "small enough for the task's record, if it may replace another one",
            ),
            (self.priority <= PRIORITY_MAX, "priority", "0 to 9"),
            (
                (1..=TIMEOUT_MAX_SECONDS).contains(&self.timeout_seconds()),
                "timeout_seconds",
                "1 to 2592000 (30 days)",
            ),
            (
                self.max_retries() <= RETRIES_MAX,
                "max_retries",
                "0 to 10000",
            ),
            (self.tags.len() <= TAGS_MAX, "tags", "at most 16"),
            (
                self.expires_at
                    .is_none_or(|expires_at| expires_at > self.available_at.unwrap_or(now)),
                "expires_at",
                "later than the time at which the task is due",
            ),
        ];
        for (holds, field, allowed) in bounds {
            if !holds {
                return Err(Rejection::OutOfBounds { field, allowed });
            }
        }
        Ok(())
    }
}

/// Creates the task of a submission, as a pure function.
pub fn submit(submission: Submission, op: OpId, now: Timestamp) -> Result<Task, Rejection> {
    submission.validate(now)?;
    let (timeout_seconds, max_retries) = (submission.timeout_seconds(), submission.max_retries());
    let mut task = Task::new(NewTask {
        id: submission.id,
        task_type: submission.task_type,
        input: submission.input,
        // A time in the past means now, so that due tasks are served in submit order.
        available_at: submission.available_at.unwrap_or(now).max(now),
        now,
        op,
    });
    task.queue = submission.queue;
    task.priority = submission.priority;
    task.expires_at = submission.expires_at;
    task.timeout_seconds = timeout_seconds;
    task.max_retries = max_retries;
    task.max_wait_ms = submission.max_wait_ms;
    task.retry_policy = submission.retry_policy.into();
    task.tags = submission.tags;
    task.traceparent = submission.traceparent;
    if let Some(idempotency) = submission.idempotency {
        task.idempotency_key = Some(idempotency.key);
        task.idempotency_scope = idempotency.scope;
        task.idempotency_until = idempotency.until;
        task.idempotency_hold = submission.uniqueness.hold;
    }
    if let Some(rule) = submission.ordering {
        task.ordering_key = Some(rule.key);
        task.ordering_on_failure = rule.on_failure;
        task.min_reader = ORDERING_READER;
    }
    if task.idempotency_hold != KeyHold::Kept {
        task.min_reader = UNIQUE_READER;
    }
    if submission.limit_key.is_some() {
        task.limit_key = submission.limit_key;
        task.min_reader = LIMIT_READER;
    }
    if submission.fairness_group.is_some() {
        task.fairness_group = submission.fairness_group;
        task.min_reader = FAIRNESS_READER;
    }
    task.events.push(Event {
        at: now,
        action: Some(EventAction::Submitted),
        from: None,
        to: Status::Pending,
        attempt: 0,
        worker: None,
        error: None,
        op_id: Some(op),
        by: None,
        extra: Extra::default(),
    });
    Ok(task)
}

/// Checks the size of a payload against the limit of its location.
pub(super) fn check_payload(field: &'static str, payload: &Payload) -> Result<(), Rejection> {
    let limit = match payload {
        Payload::Inline(_) => INLINE_PAYLOAD_MAX_BYTES as u64,
        Payload::Stored(_) => STORED_PAYLOAD_MAX_BYTES,
    };
    let size = payload.size();
    if size > limit {
        return Err(Rejection::PayloadTooLarge { field, size, limit });
    }
    Ok(())
}
