//! Builds and submits a task.
//!
//! Setters take plain text and durations and never fail. [`TaskBuilder::build`] and [`TaskBuilder::submit`] validate all of them
//! before anything is written.

use std::time::Duration;

use qo_core::task::{IdempotencyScope, KeyHold, OnConflict, OnFailure, OrderingRule, Uniqueness};
use qo_core::{
    FairnessGroup, IdempotencyKey, Json, LimitKey, OrderingKey, QueueName, RetryPolicy, Tag,
    TaskId, TaskType, Timestamp, TraceParent,
};
use qo_engine::api::{IdempotencyRequest, SubmitRequest, Submitted, When};
use serde::Serialize;

use crate::error::Error;
use crate::queue::Queue;

/// Task builder, from [`Queue::task`] or [`Queue::task_of`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), qo::Error> {
/// # let queue = qo::connect("memory:").await?;
/// use std::time::Duration;
///
/// let submitted = queue
///     .task("resize_image", &serde_json::json!({"image": 7}))?
///     .queue("images")
///     .delay(Duration::from_secs(60))
///     .timeout(Duration::from_secs(300))
///     .tag("customer:42")
///     .submit()
///     .await?;
/// assert_eq!(submitted.task.queue.as_str(), "images");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is submitted before `submit`"]
pub struct TaskBuilder {
    target: Queue,
    task_type: String,
    input: Json,
    id: Option<TaskId>,
    queue: Option<String>,
    priority: Option<u8>,
    available: When,
    expires: Option<When>,
    timeout: Option<Duration>,
    retries: Option<u32>,
    retry_policy: Option<RetryPolicy>,
    key: Option<String>,
    scope: Option<IdempotencyScope>,
    window: Option<Duration>,
    hold: Option<KeyHold>,
    on_conflict: Option<OnConflict>,
    tags: Vec<String>,
    traceparent: Option<TraceParent>,
    ordering_key: Option<String>,
    on_failure: Option<OnFailure>,
    limit_key: Option<String>,
    group: Option<String>,
}

impl Queue {
    /// Starts a task with an input. Fails if the input cannot be serialized as JSON.
    pub fn task(
        &self,
        task_type: impl Into<String>,
        input: &(impl Serialize + ?Sized),
    ) -> Result<TaskBuilder, Error> {
        Ok(self.task_with(task_type, Json::from_value(&input)?))
    }

    /// Starts a task whose input is already JSON.
    pub fn task_with(&self, task_type: impl Into<String>, input: Json) -> TaskBuilder {
        TaskBuilder {
            target: self.clone(),
            task_type: task_type.into(),
            input,
            id: None,
            queue: None,
            priority: None,
            available: When::Now,
            expires: None,
            timeout: None,
            retries: None,
            retry_policy: None,
            key: None,
            scope: None,
            window: None,
            hold: None,
            on_conflict: None,
            tags: Vec::new(),
            traceparent: None,
            ordering_key: None,
            on_failure: None,
            limit_key: None,
            group: None,
        }
    }
}

impl TaskBuilder {
    /// Sets the task's id. A second submit with the same id returns the first task. Default: a random id.
    pub fn id(mut self, id: TaskId) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the queue. Default: `default`.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the priority, from 0 (first) to 9 (last). Default: 5.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Delays the task: workers claim it after this time.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.available = When::InMillis(millis(delay));
        self
    }

    /// Delays the task until a point in time.
    pub fn at(mut self, time: Timestamp) -> Self {
        self.available = When::At(time);
        self
    }

    /// Limits the duration of each attempt, rounded up to whole seconds. Default: that of the queue, which is 5 minutes unless
    /// [its settings](Queue::queues) say otherwise.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the maximum number of retries. Default: that of the queue, which is 3 unless [its settings](Queue::queues) say otherwise.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = Some(retries);
        self
    }

    /// Sets the delays between retries.
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.retry_policy = Some(policy);
        self
    }

    /// Sets the idempotency key: a second submit with the same key returns the first task.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the scope in which the idempotency key is unique. Default: the queue.
    pub fn idempotency_scope(mut self, scope: IdempotencyScope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// Limits how long the idempotency key is remembered. Default: as long as the task is kept.
    pub fn idempotency_window(mut self, window: Duration) -> Self {
        self.window = Some(window);
        self
    }

    /// Sets how long the task holds its idempotency key. Default: as long as it is kept.
    ///
    /// With [`KeyHold::Waiting`], a submit with the same key makes a new task once this one has started; with [`KeyHold::Unfinished`], once
    /// it has finished.
    pub fn idempotency_hold(mut self, hold: KeyHold) -> Self {
        self.hold = Some(hold);
        self
    }

    /// Sets what this submit does to a waiting task that holds its idempotency key. Default: it stays as it is.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), qo::Error> {
    /// # let queue = qo::connect("memory:").await?;
    /// use std::time::Duration;
    /// use qo::{KeyHold, OnConflict};
    ///
    /// // The index is built ten seconds after the last change.
    /// for _ in 0..3 {
    ///     queue
    ///         .task("build_index", &serde_json::json!({"shop": 7}))?
    ///         .idempotency_key("shop-7")
    ///         .idempotency_hold(KeyHold::Waiting)
    ///         .on_conflict(OnConflict::Postpone)
    ///         .delay(Duration::from_secs(10))
    ///         .submit()
    ///         .await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = Some(on_conflict);
        self
    }

    /// Expires the task if no worker has started it within this time.
    pub fn expires_in(mut self, duration: Duration) -> Self {
        self.expires = Some(When::InMillis(millis(duration)));
        self
    }

    /// Expires the task if no worker has started it by this time.
    pub fn expires_at(mut self, time: Timestamp) -> Self {
        self.expires = Some(When::At(time));
        self
    }

    /// Adds a tag, by which lists can be filtered.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Sets the ordering key: tasks of one queue with the same key run one at a time, in submit order. A retry, a release, a snooze and a
    /// delay keep their place, and the tasks behind them wait.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), qo::Error> {
    /// # let queue = qo::connect("memory:").await?;
    /// for change in ["created", "renamed", "closed"] {
    ///     queue
    ///         .task("sync_account", &change)?
    ///         .ordering_key("account-17")
    ///         .submit()
    ///         .await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// Sets what happens to the next tasks with the same ordering key if this one fails permanently. Default: the next one runs.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = Some(on_failure);
        self
    }

    /// Sets the limit key: the limits with this key apply to the task ([`Queue::limits`]). A key without a limit has no effect.
    pub fn limit_key(mut self, key: impl Into<String>) -> Self {
        self.limit_key = Some(key.into());
        self
    }

    /// Sets the group, such as a tenant: the groups of a queue are served in turn, so that the many tasks of one do not delay those of
    /// another. [`QueueSettings::group_weights`](crate::QueueSettings::group_weights) gives some more turns.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Sets the W3C trace context. The handler reads it from the task.
    pub fn traceparent(mut self, parent: TraceParent) -> Self {
        self.traceparent = Some(parent);
        self
    }

    /// Validates the task and returns the request, for [`Queue::submit_many`].
    pub fn build(self) -> Result<SubmitRequest, Error> {
        let mut request = SubmitRequest::new(TaskType::new(&self.task_type)?, self.input);
        request.id = self.id;
        if let Some(queue) = self.queue {
            request.queue = QueueName::new(&queue)?;
        }
        request.priority = self.priority.unwrap_or(request.priority);
        request.available = self.available;
        request.traceparent = self.traceparent;
        request.expires = self.expires;
        if let Some(timeout) = self.timeout {
            let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
            request.timeout_seconds = Some(seconds);
        }
        request.max_retries = self.retries;
        request.retry_policy = self.retry_policy.unwrap_or(request.retry_policy);
        request.idempotency = match self.key {
            Some(key) => Some(IdempotencyRequest {
                key: IdempotencyKey::new(&key)?,
                scope: self.scope.unwrap_or_default(),
                window_ms: self.window.map(millis),
            }),
            None if self.scope.is_some() => {
                return Err(requires("idempotency_scope", "idempotency_key"));
            }
            None if self.hold.is_some() => {
                return Err(requires("idempotency_hold", "idempotency_key"));
            }
            None if self.on_conflict.is_some() => {
                return Err(requires("on_conflict", "idempotency_key"));
            }
            None if self.window.is_some() => {
                return Err(requires("idempotency_window", "idempotency_key"));
            }
            None => None,
        };
        request.uniqueness = Uniqueness {
            hold: self.hold.unwrap_or_default(),
            on_conflict: self.on_conflict.unwrap_or_default(),
        };
        request.ordering = match self.ordering_key {
            Some(key) => Some(OrderingRule {
                key: OrderingKey::new(&key)?,
                on_failure: self.on_failure.unwrap_or_default(),
            }),
            None if self.on_failure.is_some() => {
                return Err(requires("on_failure", "ordering_key"));
            }
            None => None,
        };
        request.limit_key = self.limit_key.as_deref().map(LimitKey::new).transpose()?;
        let group = self.group.as_deref().map(FairnessGroup::new);
        request.fairness_group = group.transpose()?;
        for tag in &self.tags {
            request.tags.push(Tag::new(tag)?);
        }
        Ok(request)
    }

    /// Validates and submits the task. It is durable when this returns.
    pub async fn submit(self) -> Result<Submitted, Error> {
        let target = self.target.clone();
        target.submit(self.build()?).await
    }
}

fn requires(option: &'static str, needed: &'static str) -> Error {
    Error::OptionWithout { option, needed }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
