//! The queue of a cluster as this node offers it: the leader's engine, or the error that another node leads.

use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use qo_broker::BrokerEngine;
use qo_core::task::Event;
use qo_core::{Json, QueueName, Task, TaskId, Timestamp, WorkerId};
use qo_engine::api::{
    ClaimRequest, Document, DocumentQuery, DocumentWrite, DueTask, Duty, Stats, SubmitRequest,
    Submitted, TaskFilter, TaskPage, VersionedTask, WaitReason, WorkerInfo,
};
use qo_engine::watch::Watcher;
use qo_engine::{Engine, EngineError, Operation};

use crate::leader::{Freshness, view};
use crate::node::NodeShared;

/// The queue of a cluster. Its operations fail with [`EngineError::NotLeader`] while another node leads. Clones share everything.
#[derive(Clone)]
pub struct ClusterEngine(pub(crate) Arc<NodeShared>);

impl fmt::Debug for ClusterEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterEngine")
            .field("node", &self.0.config.node)
            .finish_non_exhaustive()
    }
}

impl ClusterEngine {
    /// Ends expired leases without waiting for the next interval.
    pub async fn maintain(&self) -> Result<(), EngineError> {
        self.leading()?.maintain().await
    }

    fn leading(&self) -> Result<BrokerEngine, EngineError> {
        self.0.serving().ok_or(EngineError::NotLeader)
    }

    /// Runs a read on the leader's engine. If the disk is full, what is applied is read instead, because the engine would wait for changes that
    /// are not written. What is applied is everything that was acknowledged.
    async fn read<T, C: Future<Output = Result<T, EngineError>>>(
        &self,
        call: impl Fn(BrokerEngine) -> C,
    ) -> Result<T, EngineError> {
        let engine = self.leading()?;
        let (full, runtime) = (self.0.log.full(), self.0.runtime.as_ref());
        if !full.is_full() {
            let read = full.guard(runtime, false, call(engine)).await;
            if read.is_ok() || !full.is_full() {
                return read;
            }
        }
        let objects = self.0.serving_objects().ok_or(EngineError::NotLeader)?;
        let read = async {
            objects.confirm().await?;
            call(view(&self.0, Freshness::Applied).await?).await
        };
        full.guard(runtime, false, read).await
    }

    /// Runs a change on the leader's engine.
    async fn change<T, C: Future<Output = Result<T, EngineError>>>(
        &self,
        call: impl FnOnce(BrokerEngine) -> C,
    ) -> Result<T, EngineError> {
        let call = call(self.leading()?);
        let full = self.0.log.full();
        full.guard(self.0.runtime.as_ref(), true, call).await
    }

    /// Runs changes on the leader's engine.
    async fn change_many<T, C: Future<Output = Vec<Result<T, EngineError>>>>(
        &self,
        count: usize,
        call: impl FnOnce(BrokerEngine) -> C,
    ) -> Vec<Result<T, EngineError>> {
        let all = self.change(|engine| {
            let call = call(engine);
            async move { Ok(call.await) }
        });
        match all.await {
            Ok(results) => results,
            Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
        }
    }
}

#[async_trait]
impl Engine for ClusterEngine {
    fn now(&self) -> Timestamp {
        match self.0.serving() {
            Some(engine) => engine.now(),
            None => self.0.runtime.now(),
        }
    }

    async fn submit(&self, request: SubmitRequest) -> Result<Submitted, EngineError> {
        self.change(|engine| async move { engine.submit(request).await })
            .await
    }

    async fn submit_many(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        let count = requests.len();
        self.change_many(
            count,
            |engine| async move { engine.submit_many(requests).await },
        )
        .await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        self.change(|engine| async move { engine.claim(request).await })
            .await
    }

    async fn due(&self, request: &ClaimRequest) -> Result<Option<Vec<DueTask>>, EngineError> {
        self.read(|engine| async move { engine.due(request).await })
            .await
    }

    async fn act(&self, id: TaskId, operation: Operation) -> Result<Task, EngineError> {
        self.change(|engine| async move { engine.act(id, operation).await })
            .await
    }

    async fn act_many(
        &self,
        operations: Vec<(TaskId, Operation)>,
    ) -> Vec<Result<Task, EngineError>> {
        let count = operations.len();
        self.change_many(
            count,
            |engine| async move { engine.act_many(operations).await },
        )
        .await
    }

    async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        self.change(|engine| async move { engine.purge(id).await })
            .await
    }

    async fn get(&self, id: TaskId) -> Result<Task, EngineError> {
        self.read(|engine| async move { engine.get(id).await })
            .await
    }

    async fn waits_for(&self, task: &Task) -> Result<Option<WaitReason>, EngineError> {
        self.read(|engine| async move { engine.waits_for(task).await })
            .await
    }

    async fn input(&self, task: &Task) -> Result<Json, EngineError> {
        self.read(|engine| async move { engine.input(task).await })
            .await
    }

    async fn output(&self, task: &Task) -> Result<Option<Json>, EngineError> {
        self.read(|engine| async move { engine.output(task).await })
            .await
    }

    async fn list(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<TaskPage, EngineError> {
        self.read(|engine| async move { engine.list(filter, cursor, limit).await })
            .await
    }

    async fn history(&self, id: TaskId) -> Result<Vec<Event>, EngineError> {
        self.read(|engine| async move { engine.history(id).await })
            .await
    }

    async fn versions(&self, id: TaskId, limit: usize) -> Result<Vec<VersionedTask>, EngineError> {
        self.read(|engine| async move { engine.versions(id, limit).await })
            .await
    }

    async fn stats(&self) -> Result<Stats, EngineError> {
        self.read(|engine| async move { engine.stats().await })
            .await
    }

    async fn workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        self.read(|engine| async move { engine.workers().await })
            .await
    }

    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<(), EngineError> {
        self.change(|engine| async move { engine.heartbeat(worker).await })
            .await
    }

    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError> {
        self.change(|engine| async move { engine.deregister(worker).await })
            .await
    }

    async fn pause(&self, queue: &QueueName) -> Result<(), EngineError> {
        self.change(|engine| async move { engine.pause(queue).await })
            .await
    }

    async fn resume(&self, queue: &QueueName) -> Result<(), EngineError> {
        self.change(|engine| async move { engine.resume(queue).await })
            .await
    }

    async fn documents(&self, query: &DocumentQuery) -> Result<Vec<Document>, EngineError> {
        self.read(|engine| async move { engine.documents(query).await })
            .await
    }

    async fn write_document(&self, write: DocumentWrite) -> Result<Option<Document>, EngineError> {
        self.change(|engine| async move { engine.write_document(write).await })
            .await
    }

    /// The leader does all work of the queue.
    fn duty(&self) -> Duty {
        self.leading().map_or(Duty::None, |engine| engine.duty())
    }

    /// A watcher is notified of the changes that this node makes while it leads.
    fn watch(&self, watcher: Weak<dyn Watcher>) -> bool {
        self.0.watch(watcher);
        true
    }

    /// The queue belongs to the cluster, so this only ends what the caller has of it. Stop the node with
    /// [`ClusterNode::shutdown`](crate::ClusterNode::shutdown).
    async fn close(&self) {}
}
