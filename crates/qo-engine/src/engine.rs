//! The trait that every mode implements.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Weak;

use async_trait::async_trait;
use futures_util::StreamExt;
use qo_core::task::Event;
use qo_core::transition::{Failure, ProgressReport};
use qo_core::{
    DocumentName, Json, LeaseId, Limit, LimitUsage, PauseNote, PauseTarget, Pauses, QueueName,
    Task, TaskId, Timestamp, WorkerId,
};

use crate::api::{
    ClaimRequest, Document, DocumentQuery, DocumentWrite, DueTask, Duty, Stats, SubmitRequest,
    Submitted, TaskPage, TaskQuery, VersionedTask, WaitReason, WorkerInfo, WorkerRequest,
};
use crate::error::EngineError;
use crate::operation::Operation;
use crate::watch::Watcher;

/// How many operations [`Engine::act_many`] runs concurrently by default.
const ACT_MANY_CONCURRENCY: usize = 64;

/// A queue, in any mode.
///
/// Every operation is durable when it returns. An operation that returns an error has changed nothing, unless the error says that
/// the result is in doubt.
#[async_trait]
pub trait Engine: Debug + Send + Sync + 'static {
    /// The current time of the queue: the store's clock, not this machine's.
    fn now(&self) -> Timestamp;

    /// Adds a task.
    async fn submit(&self, request: SubmitRequest) -> Result<Submitted, EngineError>;

    /// Adds many tasks and returns a result for each, in the order of the requests.
    async fn submit_many(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>>;

    /// Claims due tasks, most urgent first. Each returned task has a lease id and an attempt number. Returns
    /// [`EngineError::QueuePaused`] if all requested queues, or all requested types, are still paused when the wait ends.
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError>;

    /// Claims like [`Engine::claim`], and passes each task to `each` as soon as it is claimed, in no particular order. So one slow
    /// claim does not delay the tasks claimed with it. Fails only if it has passed no task.
    async fn claim_each(
        &self,
        request: &ClaimRequest,
        each: &mut (dyn FnMut(Task) + Send),
    ) -> Result<(), EngineError> {
        self.claim(request).await?.into_iter().for_each(each);
        Ok(())
    }

    /// Ends the waits of the claims that wait now, because whoever made them stops: each returns the tasks that it has, as soon as its
    /// requests to the store have ended. Returns false if the engine cannot do that. Then a claim that is no longer wanted is dropped.
    fn end_waits(&self) -> bool {
        false
    }

    /// Returns the tasks that a claim would return now, most urgent first, and changes nothing. Waits for the first one as long as a
    /// claim would, and the caller may stop waiting at any time. Returns `None` if the engine cannot tell.
    async fn due(&self, _request: &ClaimRequest) -> Result<Option<Vec<DueTask>>, EngineError> {
        Ok(None)
    }

    /// Performs an operation on one task and returns the updated task.
    async fn act(&self, id: TaskId, operation: Operation) -> Result<Task, EngineError>;

    /// Performs many operations and returns a result for each, in the order of the operations.
    async fn act_many(
        &self,
        operations: Vec<(TaskId, Operation)>,
    ) -> Vec<Result<Task, EngineError>> {
        futures_util::stream::iter(operations)
            .map(|(id, operation)| self.act(id, operation))
            .buffered(ACT_MANY_CONCURRENCY)
            .collect()
            .await
    }

    /// Deletes a finished task with its payloads, index entries and versions. A purge that fails half-way leaves the task
    /// archived and can be repeated.
    async fn purge(&self, id: TaskId) -> Result<(), EngineError>;

    /// Reads a task.
    async fn get(&self, id: TaskId) -> Result<Task, EngineError>;

    /// Says what a pending task waits for besides its due time and a worker, if there is anything.
    async fn waits_for(&self, _task: &Task) -> Result<Option<WaitReason>, EngineError> {
        Ok(None)
    }

    /// Says what is used of these limits. A limit that the engine does not know, or knows nothing of yet, may be missing.
    async fn limit_usage(
        &self,
        _limits: &[(DocumentName, Limit)],
    ) -> Result<BTreeMap<DocumentName, LimitUsage>, EngineError> {
        Ok(BTreeMap::new())
    }

    /// Reads a task's input, from the task's record or from its own object.
    async fn input(&self, task: &Task) -> Result<Json, EngineError>;

    /// Reads a task's output, from the task's record or from its own object.
    async fn output(&self, task: &Task) -> Result<Option<Json>, EngineError>;

    /// Returns a page of matching tasks.
    async fn list(&self, query: TaskQuery<'_>) -> Result<TaskPage, EngineError>;

    /// Returns the events of a task, oldest first.
    async fn history(&self, id: TaskId) -> Result<Vec<Event>, EngineError>;

    /// Returns the newest `limit` stored versions of a task, oldest first. Needs a store that keeps versions.
    async fn versions(&self, id: TaskId, limit: usize) -> Result<Vec<VersionedTask>, EngineError>;

    /// Counts tasks by queue, type and status.
    async fn stats(&self) -> Result<Stats, EngineError>;

    /// Counts tasks like [`Engine::stats`], for callers that count often: it reads at most `reads_max` tasks from the store, and
    /// uses what it knows of the others. Counts that are not complete are marked as partial.
    async fn stats_within(&self, _reads_max: usize) -> Result<Stats, EngineError> {
        self.stats().await
    }

    /// Lists the registered workers.
    async fn workers(&self) -> Result<Vec<WorkerInfo>, EngineError>;

    /// Registers a worker, or renews its registration. Returns what an operator asks the worker to do.
    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<Option<WorkerRequest>, EngineError>;

    /// Sends a request to a worker, or withdraws it. The worker sees it with its next heartbeat.
    async fn ask_worker(
        &self,
        worker: &WorkerId,
        request: Option<WorkerRequest>,
    ) -> Result<WorkerInfo, EngineError>;

    /// Removes a worker's registration.
    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError>;

    /// Makes claims skip a queue or a type, or serve it again if there is no note. Running tasks continue.
    async fn set_pause(
        &self,
        target: &PauseTarget,
        note: Option<PauseNote>,
    ) -> Result<(), EngineError>;

    /// The paused queues and types.
    async fn pauses(&self) -> Result<Pauses, EngineError> {
        Ok(self.stats().await?.pauses)
    }

    /// Stops claims from a queue. See [`Engine::set_pause`].
    async fn pause(&self, queue: &QueueName) -> Result<(), EngineError> {
        let note = PauseNote::default();
        self.set_pause(&PauseTarget::Queue(queue.clone()), Some(note))
            .await
    }

    /// Allows claims from a queue again. See [`Engine::set_pause`].
    async fn resume(&self, queue: &QueueName) -> Result<(), EngineError> {
        self.set_pause(&PauseTarget::Queue(queue.clone()), None)
            .await
    }

    /// Reads documents, ordered by name: schedules, settings of queues, limits.
    async fn documents(&self, query: &DocumentQuery) -> Result<Vec<Document>, EngineError>;

    /// Changes a document by compare-and-swap, and submits tasks with it. Returns the document, or `None` if it is removed. Fails with
    /// [`EngineError::DocumentConflict`] if the document is not in the expected version.
    async fn write_document(&self, write: DocumentWrite) -> Result<Option<Document>, EngineError>;

    /// This process's part in work that is done once for the whole queue. It may change at any time.
    fn duty(&self) -> Duty {
        Duty::Shared
    }

    /// Notifies `watcher` of durable changes until it is dropped. Returns false if the engine does not notify.
    fn watch(&self, _watcher: Weak<dyn Watcher>) -> bool {
        false
    }

    /// Finishes background work. Skipping it loses nothing: it only deletes stale index entries sooner.
    async fn close(&self);

    /// See [`Operation::Renew`].
    async fn renew(
        &self,
        id: TaskId,
        lease: LeaseId,
        lease_ms: Option<u64>,
    ) -> Result<Task, EngineError> {
        self.act(id, Operation::Renew { lease, lease_ms }).await
    }

    /// See [`Operation::Progress`].
    async fn progress(
        &self,
        id: TaskId,
        lease: LeaseId,
        report: ProgressReport,
    ) -> Result<Task, EngineError> {
        self.act(id, Operation::Progress { lease, report }).await
    }

    /// See [`Operation::Complete`].
    async fn complete(
        &self,
        id: TaskId,
        lease: LeaseId,
        output: Option<Json>,
    ) -> Result<Task, EngineError> {
        self.act(id, Operation::Complete { lease, output }).await
    }

    /// See [`Operation::Fail`].
    async fn fail(
        &self,
        id: TaskId,
        lease: LeaseId,
        failure: Failure,
    ) -> Result<Task, EngineError> {
        self.act(id, Operation::Fail { lease, failure }).await
    }

    /// See [`Operation::Release`].
    async fn release(&self, id: TaskId, lease: LeaseId) -> Result<Task, EngineError> {
        self.act(id, Operation::Release { lease }).await
    }

    /// See [`Operation::Snooze`].
    async fn snooze(&self, id: TaskId, lease: LeaseId, delay_ms: u64) -> Result<Task, EngineError> {
        self.act(id, Operation::Snooze { lease, delay_ms }).await
    }

    /// See [`Operation::Cancel`].
    async fn cancel(&self, id: TaskId, reason: Option<String>) -> Result<Task, EngineError> {
        self.act(id, Operation::Cancel { reason }).await
    }

    /// See [`Operation::RunNow`].
    async fn run_now(&self, id: TaskId) -> Result<Task, EngineError> {
        self.act(id, Operation::RunNow).await
    }

    /// See [`Operation::Replay`].
    async fn replay(&self, id: TaskId) -> Result<Task, EngineError> {
        self.act(id, Operation::Replay).await
    }

    /// See [`Operation::Redrive`].
    async fn redrive(&self, id: TaskId, to: QueueName) -> Result<Task, EngineError> {
        self.act(id, Operation::Redrive { to }).await
    }

    /// See [`Operation::Archive`].
    async fn archive(&self, id: TaskId) -> Result<Task, EngineError> {
        self.act(id, Operation::Archive).await
    }

    /// See [`Operation::Unarchive`].
    async fn unarchive(&self, id: TaskId) -> Result<Task, EngineError> {
        self.act(id, Operation::Unarchive).await
    }
}
