//! What somebody wants to have done.

use qo_core::task::{
    IdempotencyScope, PRIORITY_DEFAULT, RETRIES_DEFAULT, ScopedKey, TIMEOUT_DEFAULT_SECONDS,
};
use qo_core::transition::{Idempotency, Submission};
use qo_core::{
    IdempotencyKey, Json, Payload, QueueName, RetryPolicy, Tag, Task, TaskId, TaskType, Timestamp,
    TraceParent,
};

/// A task to be. The defaults are those of the data model.
#[derive(Debug, Clone, PartialEq)]
pub struct SubmitRequest {
    /// The task's id; a new one, if there is none. A second submit of an id returns the first task.
    pub id: Option<TaskId>,
    /// The kind of work.
    pub task_type: TaskType,
    /// What to work on.
    pub input: Json,
    /// The queue to wait in.
    pub queue: QueueName,
    /// 0 to 9, lower first.
    pub priority: u8,
    /// When it can be claimed.
    pub available: When,
    /// When it is no longer worth starting.
    pub expires: Option<When>,
    /// The longest time that an attempt may take.
    pub timeout_seconds: u64,
    /// How often it may be retried.
    pub max_retries: u32,
    /// How long it waits before a retry.
    pub retry_policy: RetryPolicy,
    /// What makes another submit the same as this one.
    pub idempotency: Option<IdempotencyRequest>,
    /// Words to find it by.
    pub tags: Vec<Tag>,
    /// The trace that it is a part of: it reaches the handler with the task.
    pub traceparent: Option<TraceParent>,
}

/// A point in time, absolute or from now on, in the store's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum When {
    /// At once.
    #[default]
    Now,
    /// So many milliseconds from now.
    InMillis(u64),
    /// At this time.
    At(Timestamp),
}

impl When {
    /// The point in time, as seen at `now`.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::InMillis(millis) => now.plus_millis(millis),
            Self::At(at) => at,
        }
    }
}

/// What makes two submits the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRequest {
    /// The key that both present.
    pub key: IdempotencyKey,
    /// Among which tasks it must be unique.
    pub scope: IdempotencyScope,
    /// How long it holds; as long as the task is kept, if there is no time.
    pub window_ms: Option<u64>,
}

impl SubmitRequest {
    /// A request with the default settings.
    pub fn new(task_type: TaskType, input: Json) -> Self {
        Self {
            id: None,
            task_type,
            input,
            queue: QueueName::default(),
            priority: PRIORITY_DEFAULT,
            available: When::Now,
            expires: None,
            timeout_seconds: TIMEOUT_DEFAULT_SECONDS,
            max_retries: RETRIES_DEFAULT,
            retry_policy: RetryPolicy::default(),
            idempotency: None,
            tags: Vec::new(),
            traceparent: None,
        }
    }

    /// The idempotency key in its scope.
    pub fn scoped_key(&self) -> Option<ScopedKey> {
        let request = self.idempotency.as_ref()?;
        Some(ScopedKey::new(
            request.scope,
            &self.queue,
            &self.task_type,
            &request.key,
        ))
    }

    /// The core's form of the request.
    pub fn into_submission(self, id: TaskId, input: Payload, now: Timestamp) -> Submission {
        Submission {
            id,
            task_type: self.task_type,
            input,
            queue: self.queue,
            priority: self.priority,
            available_at: Some(self.available.resolve(now)),
            expires_at: self.expires.map(|expires| expires.resolve(now)),
            timeout_seconds: self.timeout_seconds,
            max_retries: self.max_retries,
            retry_policy: self.retry_policy,
            idempotency: self.idempotency.map(|request| Idempotency {
                key: request.key,
                scope: request.scope,
                until: request.window_ms.map(|millis| now.plus_millis(millis)),
            }),
            tags: self.tags,
            traceparent: self.traceparent,
        }
    }
}

/// A task that is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Submitted {
    /// The task: the first one, if this submit was a second copy.
    pub task: Task,
    /// Whether it was there before.
    pub duplicate: bool,
}
