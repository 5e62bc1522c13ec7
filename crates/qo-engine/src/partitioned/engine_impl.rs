//! The [`Engine`] implementation over partitions.

use std::sync::Weak;

use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use qo_core::schedule::Schedule;
use qo_core::task::Event;
use qo_core::{
    DocumentKind, Json, PauseNote, PauseTarget, Route, Task, TaskId, Timestamp, WorkerId,
};

use super::PartitionedEngine;
use crate::api::{
    ClaimRequest, Document, DocumentQuery, DocumentWrite, Duty, Stats, SubmitRequest, Submitted,
    TaskPage, TaskQuery, VersionedTask, WaitReason, WorkerInfo, WorkerRequest,
};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::operation::Operation;
use crate::watch::Watcher;

impl PartitionedEngine {
    /// The partition in which a worker is registered.
    fn of_worker(&self, worker: &WorkerId) -> &dyn Engine {
        let route = Route::of(worker.as_str());
        self.partition(route.partition(self.partitions.len()))
    }
}

#[async_trait]
impl Engine for PartitionedEngine {
    /// A time that all partitions have reached.
    fn now(&self) -> Timestamp {
        let times = self.partitions.iter().map(|engine| engine.now());
        times.min().unwrap_or(Timestamp::MIN)
    }

    async fn submit(&self, mut request: SubmitRequest) -> Result<Submitted, EngineError> {
        let partition = self.route(&mut request)?;
        self.partition(partition).submit(request).await
    }

    async fn submit_many(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        let routed = requests.into_iter().map(|mut request| {
            let partition = self.route(&mut request)?;
            Ok((partition, request))
        });
        self.split(routed.collect(), |engine, requests| {
            engine.submit_many(requests)
        })
        .await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        if request.max == 0 {
            return Ok(Vec::new());
        }
        self.claim_together(request).await
    }

    async fn claim_each(
        &self,
        request: &ClaimRequest,
        each: &mut (dyn FnMut(Task) + Send),
    ) -> Result<(), EngineError> {
        if request.max == 0 {
            return Ok(());
        }
        self.claim_from_all(request, each).await
    }

    async fn act(&self, id: TaskId, operation: Operation) -> Result<Task, EngineError> {
        self.of(id).act(id, operation).await
    }

    async fn act_many(
        &self,
        operations: Vec<(TaskId, Operation)>,
    ) -> Vec<Result<Task, EngineError>> {
        let routed = operations
            .into_iter()
            .map(|(id, operation)| Ok((self.partition_of(id), (id, operation))));
        self.split(routed.collect(), |engine, operations| {
            engine.act_many(operations)
        })
        .await
    }

    async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        self.of(id).purge(id).await
    }

    async fn get(&self, id: TaskId) -> Result<Task, EngineError> {
        self.of(id).get(id).await
    }

    async fn waits_for(&self, task: &Task) -> Result<Option<WaitReason>, EngineError> {
        self.of(task.id).waits_for(task).await
    }

    async fn input(&self, task: &Task) -> Result<Json, EngineError> {
        self.of(task.id).input(task).await
    }

    async fn output(&self, task: &Task) -> Result<Option<Json>, EngineError> {
        self.of(task.id).output(task).await
    }

    async fn list(&self, query: TaskQuery<'_>) -> Result<TaskPage, EngineError> {
        self.page(query).await
    }

    async fn history(&self, id: TaskId) -> Result<Vec<Event>, EngineError> {
        self.of(id).history(id).await
    }

    async fn versions(&self, id: TaskId, limit: usize) -> Result<Vec<VersionedTask>, EngineError> {
        self.of(id).versions(id, limit).await
    }

    async fn stats(&self) -> Result<Stats, EngineError> {
        let parts = self.partitions.iter().map(|engine| engine.stats());
        Ok(Self::sum(try_join_all(parts).await?))
    }

    async fn stats_within(&self, reads_max: usize) -> Result<Stats, EngineError> {
        let share = reads_max / self.partitions.len();
        let parts = self
            .partitions
            .iter()
            .map(|engine| engine.stats_within(share));
        Ok(Self::sum(try_join_all(parts).await?))
    }

    async fn workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        self.all_workers().await
    }

    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<Option<WorkerRequest>, EngineError> {
        self.of_worker(&worker.worker_id).heartbeat(worker).await
    }

    async fn ask_worker(
        &self,
        worker: &WorkerId,
        request: Option<WorkerRequest>,
    ) -> Result<WorkerInfo, EngineError> {
        self.of_worker(worker).ask_worker(worker, request).await
    }

    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError> {
        self.of_worker(worker).deregister(worker).await
    }

    async fn set_pause(
        &self,
        target: &PauseTarget,
        note: Option<PauseNote>,
    ) -> Result<(), EngineError> {
        let parts = self.partitions.iter();
        let parts = parts.map(|engine| engine.set_pause(target, note.clone()));
        join_all(parts).await.into_iter().collect()
    }

    /// Documents are in the first partition.
    async fn documents(&self, query: &DocumentQuery) -> Result<Vec<Document>, EngineError> {
        self.partition(0).documents(query).await
    }

    /// So are the tasks that are submitted with them.
    async fn write_document(&self, write: DocumentWrite) -> Result<Option<Document>, EngineError> {
        if write.id.kind == DocumentKind::Queues {
            // Each partition would have to know them, and only all together know how many tasks wait.
            return Err(EngineError::BadRequest(
                "a partitioned queue, such as a cluster with several groups (--groups), cannot have queue settings".to_owned(),
            ));
        }
        write.validate()?;
        if write.id.kind == DocumentKind::Limits && write.body.is_some() {
            // The partitions count on their own.
            return Err(EngineError::BadRequest(
                "a partitioned queue, such as a cluster with several groups (--groups), cannot have limits".to_owned(),
            ));
        }
        let is_ordered = write
            .submits
            .iter()
            .any(|request| request.ordering.is_some());
        if is_ordered || orders_tasks(&write) {
            // Tasks of schedules are in the first partition, and the line of a key may be in another one.
            return Err(EngineError::BadRequest(
                "a partitioned queue, such as a cluster with several groups (--groups), cannot have schedules with an ordering key".to_owned(),
            ));
        }
        if write.id.kind == DocumentKind::Webhooks && write.body.is_some() {
            // Each partition would have to know them.
            return Err(EngineError::BadRequest(
                "a partitioned queue, such as a cluster with several groups (--groups), cannot have webhooks".to_owned(),
            ));
        }
        self.partition(0).write_document(write).await
    }

    fn duty(&self) -> Duty {
        self.partition(0).duty()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) -> bool {
        let mut all_notify = true;
        for engine in self.partitions.iter() {
            all_notify &= engine.watch(Weak::clone(&watcher));
        }
        all_notify
    }

    async fn close(&self) {
        join_all(self.partitions.iter().map(|engine| engine.close())).await;
    }
}

/// Whether the document is a schedule whose tasks have an ordering key.
fn orders_tasks(write: &DocumentWrite) -> bool {
    let body = write.body.as_ref();
    let schedule: Option<Schedule> = body
        .filter(|_| write.id.kind == DocumentKind::Schedules)
        .and_then(|body| body.to_value().ok());
    schedule.is_some_and(|schedule| schedule.spec.task.ordering_key.is_some())
}
