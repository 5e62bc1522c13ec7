//! The one trait that every mode implements.

use std::fmt::Debug;
use std::sync::Weak;

use async_trait::async_trait;
use futures_util::StreamExt;
use qo_core::task::Event;
use qo_core::transition::{Failure, ProgressReport};
use qo_core::{Json, LeaseId, QueueName, Task, TaskId, Timestamp, WorkerId};

use crate::api::{
    ClaimRequest, Completion, Stats, SubmitRequest, Submitted, TaskFilter, TaskPage, VersionedTask,
    WorkerInfo,
};
use crate::error::EngineError;
use crate::watch::Watcher;

/// How many of many attempts are ended at once where each is a request of its own.
const COMPLETED_AT_ONCE: usize = 64;

/// A queue, whatever it is kept in.
///
/// Every operation is durable when it returns, and one that returns an error has either changed nothing or says that it is in
/// doubt. Operations of a worker present the lease of their claim; a stale one gets [`qo_core::Rejection::LeaseLost`].
#[async_trait]
pub trait Engine: Debug + Send + Sync + 'static {
    /// The time by which the queue judges.
    fn now(&self) -> Timestamp;

    /// Adds a task.
    async fn submit(&self, request: SubmitRequest) -> Result<Submitted, EngineError>;

    /// Adds many tasks at once and reports each, in the order in which they were given.
    async fn submit_many(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>>;

    /// Hands out tasks that are due, the most urgent first. Each carries its lease id and its attempt number. Where all queues
    /// that are asked for are paused until the wait is over, [`EngineError::QueuePaused`] says why there is nothing.
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError>;

    /// Keeps an attempt alive. The answer tells whether a cancel was requested.
    async fn renew(
        &self,
        id: TaskId,
        lease: LeaseId,
        lease_ms: Option<u64>,
    ) -> Result<Task, EngineError>;

    /// Says how far an attempt is.
    async fn progress(
        &self,
        id: TaskId,
        lease: LeaseId,
        report: ProgressReport,
    ) -> Result<Task, EngineError>;

    /// Ends an attempt, and the task, with success.
    async fn complete(
        &self,
        id: TaskId,
        lease: LeaseId,
        output: Option<Json>,
    ) -> Result<Task, EngineError>;

    /// Ends many attempts with success and reports each, in the order in which they were given.
    async fn complete_many(&self, completions: Vec<Completion>) -> Vec<Result<Task, EngineError>> {
        futures_util::stream::iter(completions)
            .map(|completion| self.complete(completion.id, completion.lease, completion.output))
            .buffered(COMPLETED_AT_ONCE)
            .collect()
            .await
    }

    /// Ends an attempt without success.
    async fn fail(&self, id: TaskId, lease: LeaseId, failure: Failure)
    -> Result<Task, EngineError>;

    /// Gives a task back, not counted against its retries.
    async fn release(&self, id: TaskId, lease: LeaseId) -> Result<Task, EngineError>;

    /// Puts a task off, not counted against its retries.
    async fn snooze(&self, id: TaskId, lease: LeaseId, delay_ms: u64) -> Result<Task, EngineError>;

    /// Calls a task off: a pending one at once, a running one by asking its worker.
    async fn cancel(&self, id: TaskId, reason: Option<String>) -> Result<Task, EngineError>;

    /// Makes a pending task due at once that would be due later.
    async fn run_now(&self, id: TaskId) -> Result<Task, EngineError>;

    /// Starts over a task that has come to its end.
    async fn replay(&self, id: TaskId) -> Result<Task, EngineError>;

    /// Puts away a task that has come to its end.
    async fn archive(&self, id: TaskId) -> Result<Task, EngineError>;

    /// Undoes an archive.
    async fn unarchive(&self, id: TaskId) -> Result<Task, EngineError>;

    /// Removes a task that has come to its end, with its payloads, its index entries and its versions. One that fails half-way
    /// leaves the task archived, and can be repeated.
    async fn purge(&self, id: TaskId) -> Result<(), EngineError>;

    /// A task.
    async fn get(&self, id: TaskId) -> Result<Task, EngineError>;

    /// A task's input, wherever it is kept.
    async fn input(&self, task: &Task) -> Result<Json, EngineError>;

    /// A task's output, wherever it is kept.
    async fn output(&self, task: &Task) -> Result<Option<Json>, EngineError>;

    /// Some of the tasks that match, from the place that `cursor` names, at most `limit` of them.
    async fn list(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<TaskPage, EngineError>;

    /// What happened to a task, oldest first.
    async fn history(&self, id: TaskId) -> Result<Vec<Event>, EngineError>;

    /// The newest `limit` stored versions of a task, oldest first, where the store keeps them.
    async fn versions(&self, id: TaskId, limit: usize) -> Result<Vec<VersionedTask>, EngineError>;

    /// How many tasks there are.
    async fn stats(&self) -> Result<Stats, EngineError>;

    /// The workers that have said of themselves that they are there.
    async fn workers(&self) -> Result<Vec<WorkerInfo>, EngineError>;

    /// Says that a worker is there, or still there.
    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<(), EngineError>;

    /// Says that a worker is gone.
    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError>;

    /// Lets claims pass a queue by.
    async fn pause(&self, queue: &QueueName) -> Result<(), EngineError>;

    /// Lets claims serve a queue again.
    async fn resume(&self, queue: &QueueName) -> Result<(), EngineError>;

    /// Tells somebody from now on what becomes durable through this engine, as long as there is that somebody. False where the
    /// engine does not tell.
    fn watch(&self, _watcher: Weak<dyn Watcher>) -> bool {
        false
    }

    /// Finishes what goes on in the background. Nothing is lost without it; stale index entries are cleared sooner with it.
    async fn close(&self);
}
