//! The queue of a cluster as this node offers it: the leader's engine, or the error that another node leads.

use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use qo_broker::BrokerEngine;
use qo_core::task::Event;
use qo_core::{Json, QueueName, Task, TaskId, Timestamp, WorkerId};
use qo_engine::api::{
    ClaimRequest, DueTask, Stats, SubmitRequest, Submitted, TaskFilter, TaskPage, VersionedTask,
    WaitReason, WorkerInfo,
};
use qo_engine::watch::Watcher;
use qo_engine::{Engine, EngineError, Operation};

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
        self.leading()?.submit(request).await
    }

    async fn submit_many(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        match self.leading() {
            Ok(engine) => engine.submit_many(requests).await,
            Err(error) => requests.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        self.leading()?.claim(request).await
    }

    async fn due(&self, request: &ClaimRequest) -> Result<Option<Vec<DueTask>>, EngineError> {
        self.leading()?.due(request).await
    }

    async fn act(&self, id: TaskId, operation: Operation) -> Result<Task, EngineError> {
        self.leading()?.act(id, operation).await
    }

    async fn act_many(
        &self,
        operations: Vec<(TaskId, Operation)>,
    ) -> Vec<Result<Task, EngineError>> {
        match self.leading() {
            Ok(engine) => engine.act_many(operations).await,
            Err(error) => operations.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        self.leading()?.purge(id).await
    }

    async fn get(&self, id: TaskId) -> Result<Task, EngineError> {
        self.leading()?.get(id).await
    }

    async fn waits_for(&self, task: &Task) -> Result<Option<WaitReason>, EngineError> {
        self.leading()?.waits_for(task).await
    }

    async fn input(&self, task: &Task) -> Result<Json, EngineError> {
        self.leading()?.input(task).await
    }

    async fn output(&self, task: &Task) -> Result<Option<Json>, EngineError> {
        self.leading()?.output(task).await
    }

    async fn list(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<TaskPage, EngineError> {
        self.leading()?.list(filter, cursor, limit).await
    }

    async fn history(&self, id: TaskId) -> Result<Vec<Event>, EngineError> {
        self.leading()?.history(id).await
    }

    async fn versions(&self, id: TaskId, limit: usize) -> Result<Vec<VersionedTask>, EngineError> {
        self.leading()?.versions(id, limit).await
    }

    async fn stats(&self) -> Result<Stats, EngineError> {
        self.leading()?.stats().await
    }

    async fn workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        self.leading()?.workers().await
    }

    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<(), EngineError> {
        self.leading()?.heartbeat(worker).await
    }

    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError> {
        self.leading()?.deregister(worker).await
    }

    async fn pause(&self, queue: &QueueName) -> Result<(), EngineError> {
        self.leading()?.pause(queue).await
    }

    async fn resume(&self, queue: &QueueName) -> Result<(), EngineError> {
        self.leading()?.resume(queue).await
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
