//! The submit of a new task.

use super::Rejection;
use crate::extra::Extra;
use crate::id::{OpId, TaskId};
use crate::limits::{
    INLINE_PAYLOAD_MAX_BYTES, RETRIES_MAX, STORED_PAYLOAD_MAX_BYTES, TAGS_MAX, TIMEOUT_MAX_SECONDS,
};
use crate::names::{IdempotencyKey, QueueName, Tag, TaskType};
use crate::payload::Payload;
use crate::retry::RetryPolicy;
use crate::task::{
    Event, EventAction, IdempotencyScope, NewTask, ORDERING_READER, OrderingRule, PRIORITY_DEFAULT,
    PRIORITY_MAX, RETRIES_DEFAULT, ScopedKey, Status, TIMEOUT_DEFAULT_SECONDS, Task,
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
    /// The maximum duration of an attempt.
    pub timeout_seconds: u64,
    /// The maximum number of retries.
    pub max_retries: u32,
    /// The delays before the retries.
    pub retry_policy: RetryPolicy,
    /// Identifies duplicate submits.
    pub idempotency: Option<Idempotency>,
    /// Labels for searching.
    pub tags: Vec<Tag>,
    /// The trace context that the handler continues.
    pub traceparent: Option<TraceParent>,
    /// The order among tasks with the same key.
    pub ordering: Option<OrderingRule>,
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
            timeout_seconds: TIMEOUT_DEFAULT_SECONDS,
            max_retries: RETRIES_DEFAULT,
            retry_policy: RetryPolicy::default(),
            idempotency: None,
            tags: Vec::new(),
            traceparent: None,
            ordering: None,
        }
    }

    /// The idempotency key in its scope.
    pub fn scoped_key(&self) -> Option<ScopedKey> {
        self.idempotency
            .as_ref()
            .map(|known| ScopedKey::new(known.scope, &self.queue, &self.task_type, &known.key))
    }

    fn validate(&self, now: Timestamp) -> Result<(), Rejection> {
        check_payload("input", &self.input)?;
        self.retry_policy.validate()?;
        let bounds = [
            (self.priority <= PRIORITY_MAX, "priority", "0 to 9"),
            (
                (1..=TIMEOUT_MAX_SECONDS).contains(&self.timeout_seconds),
                "timeout_seconds",
                "1 to 2592000 (30 days)",
            ),
            (self.max_retries <= RETRIES_MAX, "max_retries", "0 to 10000"),
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
    task.timeout_seconds = submission.timeout_seconds;
    task.max_retries = submission.max_retries;
    task.retry_policy = submission.retry_policy.into();
    task.tags = submission.tags;
    task.traceparent = submission.traceparent;
    if let Some(idempotency) = submission.idempotency {
        task.idempotency_key = Some(idempotency.key);
        task.idempotency_scope = idempotency.scope;
        task.idempotency_until = idempotency.until;
    }
    if let Some(rule) = submission.ordering {
        task.ordering_key = Some(rule.key);
        task.ordering_on_failure = rule.on_failure;
        task.min_reader = ORDERING_READER;
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
