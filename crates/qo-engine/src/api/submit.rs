//! Submit requests.

use qo_core::task::{
    IdempotencyScope, OrderingLine, OrderingRule, PRIORITY_DEFAULT, ScopedKey, Uniqueness,
};
use qo_core::transition::{Idempotency, Submission};
use qo_core::{
    FairnessGroup, IdempotencyKey, Json, LimitKey, Payload, QueueName, RetryPolicy, Route, Tag,
    Task, TaskId, TaskType, Timestamp, TraceParent,
};

/// A request to submit a task. The defaults are those of the data model.
#[derive(Debug, Clone, PartialEq)]
pub struct SubmitRequest {
    /// The task's id; generated if absent. A second submit with the same id returns the first task.
    pub id: Option<TaskId>,
    /// The task type, which selects the handler.
    pub task_type: TaskType,
    /// The input for the handler.
    pub input: Json,
    /// The queue.
    pub queue: QueueName,
    /// The priority from 0 to 9; lower numbers are claimed first.
    pub priority: u8,
    /// When the task becomes due.
    pub available: When,
    /// When the task expires if no attempt has started.
    pub expires: Option<When>,
    /// The timeout of one attempt; the default of the queue if absent, which is 300 unless its settings say otherwise.
    pub timeout_seconds: Option<u64>,
    /// The maximum number of retries; the default of the queue if absent, which is 3 unless its settings say otherwise.
    pub max_retries: Option<u32>,
    /// The delay before each retry.
    pub retry_policy: RetryPolicy,
    /// Deduplicates submits by key.
    pub idempotency: Option<IdempotencyRequest>,
    /// How long the key is held, and what a submit does that finds it held. Needs a key, unless it is the default.
    pub uniqueness: Uniqueness,
    /// Tags to filter by.
    pub tags: Vec<Tag>,
    /// The trace context of the submitter. The handler receives it with the task.
    pub traceparent: Option<TraceParent>,
    /// Orders the tasks of a queue that share a key: they run one at a time, in submit order.
    pub ordering: Option<OrderingRule>,
    /// The limits with this key apply to the task.
    pub limit_key: Option<LimitKey>,
    /// The groups of a queue, such as its tenants, are served in turn.
    pub fairness_group: Option<FairnessGroup>,
}

/// A point in the store's time, absolute or relative to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum When {
    /// Immediately.
    #[default]
    Now,
    /// This number of milliseconds from now.
    InMillis(u64),
    /// At this time.
    At(Timestamp),
}

impl When {
    /// The absolute time, if the current time is `now`.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::InMillis(millis) => now.plus_millis(millis),
            Self::At(at) => at,
        }
    }
}

/// An idempotency key: submits with the same key and scope create one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRequest {
    /// The key.
    pub key: IdempotencyKey,
    /// The scope within which the key is unique.
    pub scope: IdempotencyScope,
    /// How long the key is held at most; as long as the task exists if absent.
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
            timeout_seconds: None,
            max_retries: None,
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

    /// The request of a submission that the core made, such as the delivery of a webhook. `None` if its input is in an object of its own, which
    /// the core never does.
    pub fn of_submission(submission: Submission) -> Option<Self> {
        let Payload::Inline(input) = submission.input else {
            return None;
        };
        Some(Self {
            id: Some(submission.id),
            queue: submission.queue,
            priority: submission.priority,
            available: submission.available_at.map_or(When::Now, When::At),
            expires: submission.expires_at.map(When::At),
            timeout_seconds: submission.timeout_seconds,
            max_retries: submission.max_retries,
            retry_policy: submission.retry_policy,
            tags: submission.tags,
            traceparent: submission.traceparent,
            ..Self::new(submission.task_type, input)
        })
    }

    /// The line of its ordering key.
    pub fn ordering_line(&self) -> Option<OrderingLine> {
        let rule = self.ordering.as_ref()?;
        Some(OrderingLine::new(&self.queue, &rule.key))
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

    /// The route of its ordering key, or of its idempotency key: the one that a generated id must have in a partitioned queue.
    pub fn route(&self) -> Option<Route> {
        let line = self.ordering_line().map(|line| line.route());
        line.or_else(|| self.scoped_key().map(|key| key.route()))
    }

    /// Converts the request to the core's submission.
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
            max_wait_ms: None,
            is_exempt: false,
            retry_policy: self.retry_policy,
            idempotency: self.idempotency.map(|request| Idempotency {
                key: request.key,
                scope: request.scope,
                until: request.window_ms.map(|millis| now.plus_millis(millis)),
            }),
            uniqueness: self.uniqueness,
            tags: self.tags,
            traceparent: self.traceparent,
            ordering: self.ordering,
            limit_key: self.limit_key,
            fairness_group: self.fairness_group,
        }
    }
}

/// The result of a submit.
#[derive(Debug, Clone, PartialEq)]
pub struct Submitted {
    /// The task; the existing one if this submit was a duplicate. Over HTTP with a token that may not read tasks, a duplicate has the
    /// existing task's id and status only, and everything else as it was submitted now.
    pub task: Task,
    /// Whether the task existed before this submit.
    pub duplicate: bool,
}
