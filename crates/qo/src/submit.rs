//! Describing a task, word by word.
//!
//! The words take plain text and plain durations, and never fail; [`TaskBuilder::build`] and [`TaskBuilder::submit`] say what is
//! wrong with them, before anything is written.

use std::time::Duration;

use qo_core::task::IdempotencyScope;
use qo_core::{
    IdempotencyKey, Json, QueueName, RetryPolicy, Tag, TaskId, TaskType, Timestamp, TraceParent,
};
use qo_engine::api::{IdempotencyRequest, SubmitRequest, Submitted, When};
use serde::Serialize;

use crate::error::Error;
use crate::queue::Queue;

/// A task to be. What is not said has the default of the data model.
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
    tags: Vec<String>,
    traceparent: Option<TraceParent>,
}

impl Queue {
    /// Begins to describe a task. Fails if the input cannot be written as JSON.
    pub fn task(
        &self,
        task_type: impl Into<String>,
        input: &(impl Serialize + ?Sized),
    ) -> Result<TaskBuilder, Error> {
        Ok(self.task_with(task_type, Json::from_value(&input)?))
    }

    /// Begins to describe a task whose input is JSON already.
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
            tags: Vec::new(),
            traceparent: None,
        }
    }
}

impl TaskBuilder {
    /// Its own id; a second submit of the same id returns the first task and says so.
    pub fn id(mut self, id: TaskId) -> Self {
        self.id = Some(id);
        self
    }

    /// The queue to wait in.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// 0 to 9, lower first.
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Not to be claimed before this time has passed.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.available = When::InMillis(millis(delay));
        self
    }

    /// Not to be claimed before this time.
    pub fn at(mut self, time: Timestamp) -> Self {
        self.available = When::At(time);
        self
    }

    /// The longest time that an attempt may take, in whole seconds; what is finer is rounded up.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How often it may be retried.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = Some(retries);
        self
    }

    /// How long it waits before a retry.
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.retry_policy = Some(policy);
        self
    }

    /// What makes another submit the same as this one.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Among which tasks the key must be unique; those of the queue, if not said.
    pub fn idempotency_scope(mut self, scope: IdempotencyScope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// How long the key holds; as long as the task is kept, if not said.
    pub fn idempotency_window(mut self, window: Duration) -> Self {
        self.window = Some(window);
        self
    }

    /// No longer worth starting once this time has passed.
    pub fn expires_in(mut self, duration: Duration) -> Self {
        self.expires = Some(When::InMillis(millis(duration)));
        self
    }

    /// No longer worth starting from this time on.
    pub fn expires_at(mut self, time: Timestamp) -> Self {
        self.expires = Some(When::At(time));
        self
    }

    /// A word to find it by. Several are kept.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// The trace that it is a part of; the handler finds it in the task.
    pub fn traceparent(mut self, parent: TraceParent) -> Self {
        self.traceparent = Some(parent);
        self
    }

    /// Checks the words and gives the request, to be submitted with others by [`Queue::submit_many`].
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
            request.timeout_seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        }
        request.max_retries = self.retries.unwrap_or(request.max_retries);
        request.retry_policy = self.retry_policy.unwrap_or(request.retry_policy);
        request.idempotency = match self.key {
            Some(key) => Some(IdempotencyRequest {
                key: IdempotencyKey::new(&key)?,
                scope: self.scope.unwrap_or_default(),
                window_ms: self.window.map(millis),
            }),
            None if self.scope.is_some() => return Err(needs_a_key("idempotency_scope")),
            None if self.window.is_some() => return Err(needs_a_key("idempotency_window")),
            None => None,
        };
        for tag in &self.tags {
            request.tags.push(Tag::new(tag)?);
        }
        Ok(request)
    }

    /// Submits the task.
    pub async fn submit(self) -> Result<Submitted, Error> {
        let target = self.target.clone();
        target.submit(self.build()?).await
    }
}

fn needs_a_key(option: &'static str) -> Error {
    Error::OptionWithout {
        option,
        needed: "idempotency_key",
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
