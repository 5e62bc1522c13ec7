//! Engines that forward their calls to another engine.
//!
//! Such an engine says where its reads and its changes run. It does not spell out every operation, so a new operation is forwarded without
//! further code.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use qo_core::task::Event;
use qo_core::{Json, PauseNote, PauseTarget, Pauses, Task, TaskId, Timestamp, WorkerId};

use crate::api::{
    ClaimRequest, Document, DocumentQuery, DocumentWrite, DueTask, Duty, Stats, SubmitRequest,
    Submitted, TaskPage, TaskQuery, VersionedTask, WaitReason, WorkerInfo, WorkerRequest,
};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::operation::Operation;
use crate::watch::Watcher;

/// A call that runs on the engine behind a [`ForwardingEngine`].
pub type EngineCall<'a, T> = Pin<Box<dyn Future<Output = Result<T, EngineError>> + Send + 'a>>;

/// A read, which can run more than once.
pub trait ReadCall<'a, T>: Fn(Arc<dyn Engine>) -> EngineCall<'a, T> + Send + Sync + 'a {}

impl<'a, T, F> ReadCall<'a, T> for F where
    F: Fn(Arc<dyn Engine>) -> EngineCall<'a, T> + Send + Sync + 'a
{
}

/// A change, which runs once.
pub trait ChangeCall<'a, T>: FnOnce(Arc<dyn Engine>) -> EngineCall<'a, T> + Send + 'a {}

impl<'a, T, F> ChangeCall<'a, T> for F where
    F: FnOnce(Arc<dyn Engine>) -> EngineCall<'a, T> + Send + 'a
{
}

/// An engine that forwards its calls to another engine, which may change from call to call. It implements [`Engine`].
pub trait ForwardingEngine: Debug + Send + Sync + 'static {
    /// See [`Engine::now`].
    fn now(&self) -> Timestamp;

    /// Runs a read on the engine behind this one, once or more often.
    fn read<'a, T: Send + 'a>(
        &'a self,
        call: impl ReadCall<'a, T>,
    ) -> impl Future<Output = Result<T, EngineError>> + Send;

    /// Runs a change on the engine behind this one.
    fn change<'a, T: Send + 'a>(
        &'a self,
        call: impl ChangeCall<'a, T>,
    ) -> impl Future<Output = Result<T, EngineError>> + Send;

    /// Whether [`Engine::due`] is forwarded. Otherwise the engine cannot tell what is due.
    fn forwards_due(&self) -> bool {
        true
    }

    /// See [`Engine::duty`].
    fn duty(&self) -> Duty;

    /// See [`Engine::watch`].
    fn watch(&self, watcher: Weak<dyn Watcher>) -> bool;

    /// See [`Engine::close`].
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// The results of `count` calls that ran together, or failed together.
fn each<T>(
    results: Result<Vec<Result<T, EngineError>>, EngineError>,
    count: usize,
) -> Vec<Result<T, EngineError>> {
    results.unwrap_or_else(|error| (0..count).map(|_| Err(error.clone())).collect())
}

#[async_trait]
impl<F: ForwardingEngine> Engine for F {
    fn now(&self) -> Timestamp {
        ForwardingEngine::now(self)
    }

    async fn submit(&self, request: SubmitRequest) -> Result<Submitted, EngineError> {
        self.change(|engine| Box::pin(async move { engine.submit(request).await }))
            .await
    }

    async fn submit_many(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        let count = requests.len();
        let all =
            self.change(|engine| Box::pin(async move { Ok(engine.submit_many(requests).await) }));
        each(all.await, count)
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        self.change(|engine| Box::pin(async move { engine.claim(request).await }))
            .await
    }

    async fn claim_each(
        &self,
        request: &ClaimRequest,
        each: &mut (dyn FnMut(Task) + Send),
    ) -> Result<(), EngineError> {
        self.change(|engine| Box::pin(async move { engine.claim_each(request, each).await }))
            .await
    }

    async fn due(&self, request: &ClaimRequest) -> Result<Option<Vec<DueTask>>, EngineError> {
        if !self.forwards_due() {
            return Ok(None);
        }
        self.read(|engine| Box::pin(async move { engine.due(request).await }))
            .await
    }

    async fn act(&self, id: TaskId, operation: Operation) -> Result<Task, EngineError> {
        self.change(move |engine| Box::pin(async move { engine.act(id, operation).await }))
            .await
    }

    async fn act_many(
        &self,
        operations: Vec<(TaskId, Operation)>,
    ) -> Vec<Result<Task, EngineError>> {
        let count = operations.len();
        let all =
            self.change(|engine| Box::pin(async move { Ok(engine.act_many(operations).await) }));
        each(all.await, count)
    }

    async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        self.change(move |engine| Box::pin(async move { engine.purge(id).await }))
            .await
    }

    async fn get(&self, id: TaskId) -> Result<Task, EngineError> {
        self.read(move |engine| Box::pin(async move { engine.get(id).await }))
            .await
    }

    async fn waits_for(&self, task: &Task) -> Result<Option<WaitReason>, EngineError> {
        self.read(|engine| Box::pin(async move { engine.waits_for(task).await }))
            .await
    }

    async fn input(&self, task: &Task) -> Result<Json, EngineError> {
        self.read(|engine| Box::pin(async move { engine.input(task).await }))
            .await
    }

    async fn output(&self, task: &Task) -> Result<Option<Json>, EngineError> {
        self.read(|engine| Box::pin(async move { engine.output(task).await }))
            .await
    }

    async fn list(&self, query: TaskQuery<'_>) -> Result<TaskPage, EngineError> {
        self.read(move |engine| Box::pin(async move { engine.list(query).await }))
            .await
    }

    async fn history(&self, id: TaskId) -> Result<Vec<Event>, EngineError> {
        self.read(move |engine| Box::pin(async move { engine.history(id).await }))
            .await
    }

    async fn versions(&self, id: TaskId, limit: usize) -> Result<Vec<VersionedTask>, EngineError> {
        self.read(move |engine| Box::pin(async move { engine.versions(id, limit).await }))
            .await
    }

    async fn stats(&self) -> Result<Stats, EngineError> {
        self.read(|engine| Box::pin(async move { engine.stats().await }))
            .await
    }

    async fn stats_within(&self, reads_max: usize) -> Result<Stats, EngineError> {
        self.read(move |engine| Box::pin(async move { engine.stats_within(reads_max).await }))
            .await
    }

    async fn workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        self.read(|engine| Box::pin(async move { engine.workers().await }))
            .await
    }

    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<Option<WorkerRequest>, EngineError> {
        self.change(|engine| Box::pin(async move { engine.heartbeat(worker).await }))
            .await
    }

    async fn ask_worker(
        &self,
        worker: &WorkerId,
        request: Option<WorkerRequest>,
    ) -> Result<WorkerInfo, EngineError> {
        self.change(|engine| Box::pin(async move { engine.ask_worker(worker, request).await }))
            .await
    }

    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError> {
        self.change(|engine| Box::pin(async move { engine.deregister(worker).await }))
            .await
    }

    async fn set_pause(
        &self,
        target: &PauseTarget,
        note: Option<PauseNote>,
    ) -> Result<(), EngineError> {
        self.change(|engine| Box::pin(async move { engine.set_pause(target, note).await }))
            .await
    }

    async fn pauses(&self) -> Result<Pauses, EngineError> {
        self.read(|engine| Box::pin(async move { engine.pauses().await }))
            .await
    }

    async fn documents(&self, query: &DocumentQuery) -> Result<Vec<Document>, EngineError> {
        self.read(|engine| Box::pin(async move { engine.documents(query).await }))
            .await
    }

    async fn write_document(&self, write: DocumentWrite) -> Result<Option<Document>, EngineError> {
        self.change(|engine| Box::pin(async move { engine.write_document(write).await }))
            .await
    }

    fn duty(&self) -> Duty {
        ForwardingEngine::duty(self)
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) -> bool {
        ForwardingEngine::watch(self, watcher)
    }

    async fn close(&self) {
        ForwardingEngine::close(self).await;
    }
}
