//! Implements [`Engine`] for direct mode.

use std::sync::Weak;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use qo_core::keys::Key;
use qo_core::task::Event;
use qo_core::{Json, PauseNote, PauseTarget, Pauses, Task, TaskId, Timestamp, WorkerId};
use qo_engine::api::{
    ClaimRequest, Document, DocumentQuery, DocumentWrite, Duty, Stats, SubmitRequest, Submitted,
    TaskPage, TaskQuery, VersionedTask, WaitReason, WorkerInfo, WorkerRequest,
};
use qo_engine::watch::Watcher;
use qo_engine::{Engine, EngineError, Operation, worker_records};
use qo_store::runtime::RuntimeExt;

use super::DirectEngine;
use super::claim::ClaimSink;
use super::submit::Admission;

#[async_trait]
impl Engine for DirectEngine {
    fn now(&self) -> Timestamp {
        self.client().now()
    }

    async fn submit(&self, request: SubmitRequest) -> Result<Submitted, EngineError> {
        self.submit_one(request, Admission::Bounded).await
    }

    async fn submit_many(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        self.submit_all(requests, Admission::Bounded).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        let mut claimed = Vec::new();
        self.claim_each(request, &mut |task| claimed.push(task))
            .await?;
        claimed.sort_by_key(|task| (task.priority, task.available_at));
        Ok(claimed)
    }

    async fn claim_each(
        &self,
        request: &ClaimRequest,
        each: &mut (dyn FnMut(Task) + Send),
    ) -> Result<(), EngineError> {
        self.claim_waiting(request, &mut ClaimSink::new(each)).await
    }

    fn end_waits(&self) -> bool {
        self.shared.waits_ended.fetch_add(1, Ordering::Relaxed);
        self.shared.signal.wake();
        true
    }

    async fn act(&self, id: TaskId, operation: Operation) -> Result<Task, EngineError> {
        self.operate(id, operation).await
    }

    async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        self.purge_task(id).await
    }

    async fn get(&self, id: TaskId) -> Result<Task, EngineError> {
        Ok(self.read(id).await?.task)
    }

    async fn waits_for(&self, task: &Task) -> Result<Option<WaitReason>, EngineError> {
        self.find_wait_reason(task).await
    }

    async fn input(&self, task: &Task) -> Result<Json, EngineError> {
        let id = task.id;
        self.load_payload(task.input(), |sha256| Key::Input { id, sha256 })
            .await
    }

    async fn output(&self, task: &Task) -> Result<Option<Json>, EngineError> {
        let key = Self::output_key(task.id, task.attempt);
        match task.output() {
            None => Ok(None),
            Some(output) => self.load_payload(output, |_| key).await.map(Some),
        }
    }

    async fn list(&self, query: TaskQuery<'_>) -> Result<TaskPage, EngineError> {
        self.list_tasks(query).await
    }

    async fn history(&self, id: TaskId) -> Result<Vec<Event>, EngineError> {
        Ok(self.read(id).await?.task.events.to_vec())
    }

    async fn versions(&self, id: TaskId, limit: usize) -> Result<Vec<VersionedTask>, EngineError> {
        self.list_versions(id, limit).await
    }

    async fn stats(&self) -> Result<Stats, EngineError> {
        self.count().await
    }

    async fn stats_within(&self, reads_max: usize) -> Result<Stats, EngineError> {
        self.count_within(reads_max).await
    }

    async fn workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        self.list_workers().await
    }

    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<Option<WorkerRequest>, EngineError> {
        self.put_worker(worker).await
    }

    async fn ask_worker(
        &self,
        worker: &WorkerId,
        request: Option<WorkerRequest>,
    ) -> Result<WorkerInfo, EngineError> {
        let op = self.runtime().new_op_id();
        worker_records::ask(self.client(), worker, request, op).await
    }

    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError> {
        self.remove_worker(worker).await
    }

    async fn set_pause(
        &self,
        target: &PauseTarget,
        note: Option<PauseNote>,
    ) -> Result<(), EngineError> {
        self.change_pause(target, note).await
    }

    async fn pauses(&self) -> Result<Pauses, EngineError> {
        Ok((*self.pauses_now().await?).clone())
    }

    async fn documents(&self, query: &DocumentQuery) -> Result<Vec<Document>, EngineError> {
        self.read_documents(query).await
    }

    async fn write_document(&self, write: DocumentWrite) -> Result<Option<Document>, EngineError> {
        self.change_document(write).await
    }

    fn duty(&self) -> Duty {
        if self.is_among_first() {
            Duty::Shared
        } else {
            Duty::Reserve
        }
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) -> bool {
        self.shared.watchers.add(watcher);
        true
    }

    async fn close(&self) {
        self.shared.signal.flush().await;
        self.shared.index_gc.flush().await;
    }
}
