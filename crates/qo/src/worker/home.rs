//! The queue of handlers: its requests use the runtime of the worker.
//!
//! A client such as an HTTP connection consists of background tasks and timers, which belong to the runtime in which a request is
//! polled. On the handler threads they would stand still while all of these threads are blocked: a handler that blocks its thread
//! until the queue responds would wait for ever, and so would a lease renewal on the same connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use qo_core::task::Event;
use qo_core::{Json, QueueName, Task, TaskId, Timestamp, WorkerId};
use qo_engine::api::{
    ClaimRequest, Document, DocumentQuery, DocumentWrite, DueTask, Duty, Stats, SubmitRequest,
    Submitted, TaskFilter, TaskPage, VersionedTask, WaitReason, WorkerInfo,
};
use qo_engine::watch::Watcher;
use qo_engine::{Engine, EngineError, Operation};
use qo_store::runtime::{BoxFuture, Runtime};
use tokio::runtime::Handle;

use crate::queue::Queue;

/// The same queue, with its requests in the runtime `home`.
pub(super) fn queue_at(home: Handle, queue: &Queue) -> Queue {
    let engine = HomeEngine {
        engine: Arc::clone(queue.engine()),
        home: home.clone(),
    };
    let runtime = HomeRuntime {
        runtime: Arc::clone(queue.runtime()),
        home,
    };
    queue.with(Arc::new(engine), Arc::new(runtime))
}

/// A future whose tasks, timers and connections belong to the runtime `home`, wherever it is polled.
struct AtHome<F> {
    home: Handle,
    future: F,
}

impl<F: Future + Unpin> Future for AtHome<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let _entered = this.home.enter();
        Pin::new(&mut this.future).poll(context)
    }
}

#[derive(Debug)]
struct HomeRuntime {
    runtime: Arc<dyn Runtime>,
    home: Handle,
}

impl Runtime for HomeRuntime {
    fn now(&self) -> Timestamp {
        self.runtime.now()
    }

    fn monotonic(&self) -> Duration {
        self.runtime.monotonic()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        let _entered = self.home.enter();
        self.runtime.sleep(duration)
    }

    fn spawn(&self, future: BoxFuture<()>) {
        let _entered = self.home.enter();
        self.runtime.spawn(future);
    }

    fn random(&self) -> u64 {
        self.runtime.random()
    }
}

#[derive(Debug)]
struct HomeEngine {
    engine: Arc<dyn Engine>,
    home: Handle,
}

impl HomeEngine {
    fn at_home<F: Future + Unpin>(&self, future: F) -> AtHome<F> {
        AtHome {
            home: self.home.clone(),
            future,
        }
    }
}

#[async_trait]
impl Engine for HomeEngine {
    fn now(&self) -> Timestamp {
        self.engine.now()
    }

    async fn submit(&self, request: SubmitRequest) -> Result<Submitted, EngineError> {
        self.at_home(self.engine.submit(request)).await
    }

    async fn submit_many(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        self.at_home(self.engine.submit_many(requests)).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        self.at_home(self.engine.claim(request)).await
    }

    async fn claim_each(
        &self,
        request: &ClaimRequest,
        each: &mut (dyn FnMut(Task) + Send),
    ) -> Result<(), EngineError> {
        self.at_home(self.engine.claim_each(request, each)).await
    }

    async fn due(&self, request: &ClaimRequest) -> Result<Option<Vec<DueTask>>, EngineError> {
        self.at_home(self.engine.due(request)).await
    }

    async fn act(&self, id: TaskId, operation: Operation) -> Result<Task, EngineError> {
        self.at_home(self.engine.act(id, operation)).await
    }

    async fn act_many(
        &self,
        operations: Vec<(TaskId, Operation)>,
    ) -> Vec<Result<Task, EngineError>> {
        self.at_home(self.engine.act_many(operations)).await
    }

    async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        self.at_home(self.engine.purge(id)).await
    }

    async fn get(&self, id: TaskId) -> Result<Task, EngineError> {
        self.at_home(self.engine.get(id)).await
    }

    async fn waits_for(&self, task: &Task) -> Result<Option<WaitReason>, EngineError> {
        self.at_home(self.engine.waits_for(task)).await
    }

    async fn input(&self, task: &Task) -> Result<Json, EngineError> {
        self.at_home(self.engine.input(task)).await
    }

    async fn output(&self, task: &Task) -> Result<Option<Json>, EngineError> {
        self.at_home(self.engine.output(task)).await
    }

    async fn list(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<TaskPage, EngineError> {
        self.at_home(self.engine.list(filter, cursor, limit)).await
    }

    async fn history(&self, id: TaskId) -> Result<Vec<Event>, EngineError> {
        self.at_home(self.engine.history(id)).await
    }

    async fn versions(&self, id: TaskId, limit: usize) -> Result<Vec<VersionedTask>, EngineError> {
        self.at_home(self.engine.versions(id, limit)).await
    }

    async fn stats(&self) -> Result<Stats, EngineError> {
        self.at_home(self.engine.stats()).await
    }

    async fn stats_within(&self, reads_max: usize) -> Result<Stats, EngineError> {
        self.at_home(self.engine.stats_within(reads_max)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        self.at_home(self.engine.workers()).await
    }

    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<(), EngineError> {
        self.at_home(self.engine.heartbeat(worker)).await
    }

    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError> {
        self.at_home(self.engine.deregister(worker)).await
    }

    async fn pause(&self, queue: &QueueName) -> Result<(), EngineError> {
        self.at_home(self.engine.pause(queue)).await
    }

    async fn resume(&self, queue: &QueueName) -> Result<(), EngineError> {
        self.at_home(self.engine.resume(queue)).await
    }

    async fn documents(&self, query: &DocumentQuery) -> Result<Vec<Document>, EngineError> {
        self.at_home(self.engine.documents(query)).await
    }

    async fn write_document(&self, write: DocumentWrite) -> Result<Option<Document>, EngineError> {
        self.at_home(self.engine.write_document(write)).await
    }

    fn duty(&self) -> Duty {
        self.engine.duty()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) -> bool {
        self.engine.watch(watcher)
    }

    async fn close(&self) {
        self.at_home(self.engine.close()).await;
    }
}
