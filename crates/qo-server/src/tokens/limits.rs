//! Tokens that are limited to queues and types.
//!
//! A limited token may use only the routes that enforce its limits; all others refuse it, so a route that is added later cannot forget
//! them. A route under `/v1/tasks/{id}` looks the task up before its handler runs. The type of a task never changes, and its queue only by a
//! redrive of someone who may use both queues. A task outside the limits is reported as not found.

use std::collections::BTreeSet;
use std::mem;

use http::Method;
use qo::{
    ClaimRequest, IdempotencyScope, OnConflict, Pauses, QueueName, Stats, Status, SubmitRequest,
    Task, TaskFilter, TaskId, TaskType,
};
use qo_core::Rejection;
use qo_engine::EngineError;
use qo_remote::wire::Condition;
use serde::{Deserialize, Serialize};

use super::record::Scope;
use crate::activity::OTHER;
use crate::response::ApiError;

/// The queues and types to which a token is limited.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenLimits {
    /// These queues; all if empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub queues: BTreeSet<QueueName>,
    /// These types; all if empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub types: BTreeSet<TaskType>,
}

/// What a limited token allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitedGrant {
    /// Its scopes, within its limits.
    pub scopes: BTreeSet<Scope>,
    /// Its limits.
    #[serde(flatten)]
    pub limits: TokenLimits,
}

/// How a route treats limited tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitedAccess {
    /// The route refuses them.
    Refused,
    /// The handler enforces the limits, or the route reveals and changes nothing of tasks.
    Enforced,
    /// The task in the path must be within the limits.
    OfTask,
    /// The queue in the path must be, and the token must be for all its types.
    OfQueue,
    /// The type in the path must be, and the token must be for all queues.
    OfType,
}

impl LimitedAccess {
    /// How a route treats limited tokens. The others have no filter that would make them safe.
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        match (method.as_str(), path) {
            (_, path) if path.starts_with("/v1/tasks/{id}") => Self::OfTask,
            (_, path) if path.starts_with("/v1/queues/{queue}/") => Self::OfQueue,
            (_, path) if path.starts_with("/v1/types/{type}/") => Self::OfType,
            (_, "/v1/tasks" | "/v1/claim" | "/v1/outcomes" | "/v1/bulk")
            | ("PUT" | "DELETE", "/v1/workers/{worker}")
            | ("GET", "/v1/stats" | "/v1/activity" | "/v1/events" | "/v1/pauses" | "/v1/info") => {
                Self::Enforced
            }
            _ => Self::Refused,
        }
    }
}

fn forbidden(detail: String) -> ApiError {
    ApiError::new(Condition::Forbidden, detail)
}

impl TokenLimits {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.types.is_empty()
    }

    fn allow_queue(&self, queue: &QueueName) -> bool {
        self.queues.is_empty() || self.queues.contains(queue)
    }

    fn allow_type(&self, task_type: &TaskType) -> bool {
        self.types.is_empty() || self.types.contains(task_type)
    }

    /// Whether a task of this queue and type is within the limits.
    pub(crate) fn allow(&self, queue: &QueueName, task_type: &TaskType) -> bool {
        self.allow_queue(queue) && self.allow_type(task_type)
    }

    /// Whether counters with these names count only tasks within the limits. The counters that several queues and types share have no
    /// names of their own, and a queue or type may be named as they are, so limited tokens do not see them.
    pub(crate) fn allow_counters(&self, queue: &str, task_type: &str) -> bool {
        let is_shared = queue == OTHER && task_type == OTHER;
        let has_queue = self.queues.iter().any(|name| name.as_str() == queue);
        let has_type = self.types.iter().any(|name| name.as_str() == task_type);
        self.is_empty()
            || !is_shared
                && (self.queues.is_empty() || has_queue)
                && (self.types.is_empty() || has_type)
    }

    fn allow_task(&self, task: &Task) -> bool {
        self.allow(&task.queue, &task.task_type)
    }

    /// The limits in words.
    fn shown(&self) -> String {
        let names = |kind: &str, names: Vec<&str>| match names.as_slice() {
            [] => None,
            names => Some(format!("{kind} {}", names.join(", "))),
        };
        let queues = names(
            "queues",
            self.queues.iter().map(QueueName::as_str).collect(),
        );
        let types = names("types", self.types.iter().map(TaskType::as_str).collect());
        let parts: Vec<_> = queues.into_iter().chain(types).collect();
        parts.join(" and ")
    }

    fn refuse(&self, what: &str) -> ApiError {
        forbidden(format!("{what}: the token is limited to {}", self.shown()))
    }

    /// Refuses a route that does not enforce limits.
    pub(crate) fn refuse_route(&self) -> ApiError {
        let shown = self.shown();
        forbidden(format!(
            "this route is not available to tokens with limits, and the token is limited to {shown}; use one without limits"
        ))
    }

    /// Checks a submit: its task, and that it can change no task beyond the limits that holds its key.
    pub(crate) fn check_submit(&self, request: &SubmitRequest) -> Result<(), ApiError> {
        let SubmitRequest {
            queue, task_type, ..
        } = request;
        if !self.allow(queue, task_type) {
            return Err(self.refuse(&format!("no tasks of type {task_type} in queue {queue}")));
        }
        let scope = request.idempotency.as_ref().map(|key| key.scope);
        let is_within = match scope {
            None | Some(IdempotencyScope::Type) => true,
            Some(IdempotencyScope::Queue) => self.types.is_empty(),
            Some(_) => self.is_empty(),
        };
        if is_within || request.uniqueness.on_conflict == OnConflict::Keep {
            return Ok(());
        }
        Err(self.refuse(
            "in this idempotency scope, the submit could change a task of another queue or type",
        ))
    }

    /// Checks the task that an id or a key of a submit found.
    pub(crate) fn check_duplicate(&self, task: &Task) -> Result<(), ApiError> {
        if self.allow_task(task) {
            return Ok(());
        }
        Err(self.refuse("another task has this id or idempotency key"))
    }

    /// Checks an existing task. One beyond the limits does not exist for the caller.
    pub(crate) fn check_task(&self, task: &Task) -> Result<(), EngineError> {
        if self.allow_task(task) {
            return Ok(());
        }
        Err(not_found(task.id))
    }

    /// Checks the queue of a path: all its types must be within the limits.
    pub(crate) fn check_queue(&self, queue: &str) -> Result<(), ApiError> {
        let queue = queue.parse::<QueueName>();
        if self.types.is_empty() && queue.is_ok_and(|queue| self.allow_queue(&queue)) {
            return Ok(());
        }
        Err(self.refuse("this concerns all tasks of the queue"))
    }

    /// Checks the type of a path: it must be within the limits in all queues.
    pub(crate) fn check_type(&self, task_type: &str) -> Result<(), ApiError> {
        let task_type = task_type.parse::<TaskType>();
        if self.queues.is_empty() && task_type.is_ok_and(|name| self.allow_type(&name)) {
            return Ok(());
        }
        Err(self.refuse("this concerns the tasks of the type in all queues"))
    }

    /// Checks the queue to which tasks are to be moved.
    pub(crate) fn check_target(&self, queue: &QueueName) -> Result<(), ApiError> {
        if self.allow_queue(queue) {
            return Ok(());
        }
        Err(self.refuse(&format!("no tasks can be moved to queue {queue}")))
    }

    /// Narrows a claim: without names it claims what the limits allow.
    pub(crate) fn narrow_claim(&self, request: &mut ClaimRequest) -> Result<(), ApiError> {
        if request.queues.is_empty() {
            request.queues = self.queues.iter().cloned().collect();
        }
        if request.types.is_empty() {
            request.types = self.types.iter().cloned().collect();
        }
        let queues = request.queues.iter().all(|queue| self.allow_queue(queue));
        let types = request.types.iter().all(|name| self.allow_type(name));
        if queues && types {
            return Ok(());
        }
        Err(self.refuse("the claim names other queues or types"))
    }

    /// Narrows a filter to the limits. What it names must be within them; several queues or types become a condition of its search.
    pub(crate) fn narrow_filter(&self, filter: &mut TaskFilter) -> Result<(), ApiError> {
        if filter.queue.is_none() && self.queues.len() == 1 {
            filter.queue = self.queues.first().cloned();
        }
        if filter.task_type.is_none() && self.types.len() == 1 {
            filter.task_type = self.types.first().cloned();
        }
        let (queue, task_type) = (&filter.queue, &filter.task_type);
        if !queue.as_ref().is_none_or(|name| self.allow_queue(name))
            || !task_type.as_ref().is_none_or(|name| self.allow_type(name))
        {
            return Err(self.refuse("the filter names another queue or type"));
        }
        let (no_queues, no_types) = (BTreeSet::new(), BTreeSet::new());
        let queues = queue.as_ref().map_or(&self.queues, |_| &no_queues);
        let types = task_type.as_ref().map_or(&self.types, |_| &no_types);
        *filter = mem::take(filter).within(queues, types);
        Ok(())
    }

    /// Checks what a worker says that it serves.
    pub(crate) fn check_worker(
        &self,
        queues: &[QueueName],
        types: &[TaskType],
    ) -> Result<(), ApiError> {
        let within = (self.queues.is_empty() || !queues.is_empty())
            && (self.types.is_empty() || !types.is_empty())
            && queues.iter().all(|queue| self.allow_queue(queue))
            && types.iter().all(|name| self.allow_type(name));
        if within {
            return Ok(());
        }
        Err(self.refuse("the worker serves other queues or types"))
    }

    /// Removes from the pauses what is beyond the limits.
    pub(crate) fn narrow_pauses(&self, pauses: &mut Pauses) {
        pauses.queues.retain(|queue, _| self.allow_queue(queue));
        pauses.types.retain(|name, _| self.allow_type(name));
    }

    /// Removes from the counts what is beyond the limits. The oldest due time of a queue is that of all its types, so it is removed if
    /// not all types are allowed.
    pub(crate) fn narrow_stats(&self, stats: &mut Stats) {
        stats.queues.retain(|queue, _| self.allow_queue(queue));
        self.narrow_pauses(&mut stats.pauses);
        if self.types.is_empty() {
            return;
        }
        for queue in stats.queues.values_mut() {
            let paused = queue.paused;
            let kept: Vec<(TaskType, Status, u64)> = queue
                .types_by_status
                .iter()
                .filter(|(name, _)| self.allow_type(name))
                .flat_map(|(name, counts)| {
                    let of = |(status, count): (&Status, &u64)| (name.clone(), *status, *count);
                    counts.iter().map(of).collect::<Vec<_>>()
                })
                .collect();
            *queue = qo::QueueStats::default();
            queue.paused = paused;
            for (name, status, count) in kept {
                queue.add(&name, status, count);
            }
        }
    }
}

/// The error for a task that does not exist.
fn not_found(id: TaskId) -> EngineError {
    Rejection::NotFound { id }.into()
}
