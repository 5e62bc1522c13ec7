//! An engine that records the calls it receives, so that programs that know nothing of the checks are checked as well.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use qo_core::task::Event;
use qo_core::{Json, LeaseId, PauseNote, PauseTarget, Task, TaskId, Timestamp, WorkerId};
use qo_engine::api::{
    ClaimRequest, Document, DocumentQuery, DocumentWrite, Duty, Stats, SubmitRequest, Submitted,
    TaskPage, TaskQuery, VersionedTask, WaitReason, WorkerInfo, WorkerRequest,
};
use qo_engine::{Engine, EngineError, Operation};

use crate::call::{CallKind, CallerId, Reply, TaskView, reply_to};
use crate::call_log::CallLog;

/// The engine of one process, with the log of its calls.
pub struct Recorder {
    caller: CallerId,
    engine: Arc<dyn Engine>,
    log: CallLog,
}

impl Recorder {
    /// Records the calls of a process to an engine.
    pub fn new(caller: CallerId, engine: Arc<dyn Engine>, log: CallLog) -> Self {
        Self {
            caller,
            engine,
            log,
        }
    }

    async fn record(
        &self,
        kind: CallKind,
        id: TaskId,
        lease: Option<LeaseId>,
        call: impl Future<Output = Result<Task, EngineError>>,
    ) -> Result<Task, EngineError> {
        let open = self.log.open(self.caller, kind, Some(id));
        self.log.amend(&open, |call| call.lease = lease);
        let result = call.await;
        let reply = reply_to(&result, |task| Reply::Done(Some(TaskView::of(task))));
        self.log.close(&open, reply);
        result
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

#[async_trait]
impl Engine for Recorder {
    fn now(&self) -> Timestamp {
        self.engine.now()
    }

    async fn submit(&self, request: SubmitRequest) -> Result<Submitted, EngineError> {
        let open = self.log.open(self.caller, CallKind::Submit, request.id);
        let key = request.idempotency.as_ref().map(|known| known.key.clone());
        self.log.amend(&open, |call| call.key = key);
        let result = self.engine.submit(request).await;
        if let Ok(submitted) = &result {
            let id = submitted.task.id;
            self.log.amend(&open, |call| call.task = Some(id));
        }
        self.log.close(&open, reply_to(&result, Reply::to_submit));
        result
    }

    async fn submit_many(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        futures_util::future::join_all(requests.into_iter().map(|request| self.submit(request)))
            .await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        let open = self.log.open(self.caller, CallKind::Claim, None);
        let result = self.engine.claim(request).await;
        self.log
            .close(&open, reply_to(&result, |_| Reply::Done(None)));
        if let Ok(tasks) = &result {
            for task in tasks {
                self.log.handed_out(self.caller, &open, task);
            }
        }
        result
    }

    async fn act(&self, id: TaskId, operation: Operation) -> Result<Task, EngineError> {
        let plain = match operation.clone().split().0 {
            Operation::Logged { operation, .. } => *operation,
            plain => plain,
        };
        let kind = match plain {
            Operation::Renew { .. } | Operation::Progress { .. } => CallKind::Renew,
            Operation::Complete { .. } => CallKind::Complete,
            Operation::Fail { .. } => CallKind::Fail,
            Operation::Release { .. } => CallKind::Release,
            Operation::Snooze { .. } => CallKind::Snooze,
            Operation::Cancel { .. } => CallKind::Cancel,
            Operation::Replay => CallKind::Replay,
            Operation::Redrive { .. } => CallKind::Redrive,
            Operation::Archive => CallKind::Archive,
            Operation::Unarchive => CallKind::Unarchive,
            // No test calls others yet, so the checks do not cover them.
            _ => return self.engine.act(id, operation).await,
        };
        let lease = operation.lease();
        self.record(kind, id, lease, self.engine.act(id, operation))
            .await
    }

    async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        let open = self.log.open(self.caller, CallKind::Purge, Some(id));
        let result = self.engine.purge(id).await;
        self.log
            .close(&open, reply_to(&result, |()| Reply::Done(None)));
        result
    }

    async fn get(&self, id: TaskId) -> Result<Task, EngineError> {
        self.record(CallKind::Get, id, None, self.engine.get(id))
            .await
    }

    async fn waits_for(&self, task: &Task) -> Result<Option<WaitReason>, EngineError> {
        self.engine.waits_for(task).await
    }

    async fn input(&self, task: &Task) -> Result<Json, EngineError> {
        self.engine.input(task).await
    }

    async fn output(&self, task: &Task) -> Result<Option<Json>, EngineError> {
        self.engine.output(task).await
    }

    async fn list(&self, query: TaskQuery<'_>) -> Result<TaskPage, EngineError> {
        self.engine.list(query).await
    }

    async fn history(&self, id: TaskId) -> Result<Vec<Event>, EngineError> {
        self.engine.history(id).await
    }

    async fn versions(&self, id: TaskId, limit: usize) -> Result<Vec<VersionedTask>, EngineError> {
        self.engine.versions(id, limit).await
    }

    async fn stats(&self) -> Result<Stats, EngineError> {
        self.engine.stats().await
    }

    async fn workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        self.engine.workers().await
    }

    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<Option<WorkerRequest>, EngineError> {
        self.engine.heartbeat(worker).await
    }

    async fn ask_worker(
        &self,
        worker: &WorkerId,
        request: Option<WorkerRequest>,
    ) -> Result<WorkerInfo, EngineError> {
        self.engine.ask_worker(worker, request).await
    }

    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError> {
        self.engine.deregister(worker).await
    }

    async fn set_pause(
        &self,
        target: &PauseTarget,
        note: Option<PauseNote>,
    ) -> Result<(), EngineError> {
        self.engine.set_pause(target, note).await
    }

    async fn documents(&self, query: &DocumentQuery) -> Result<Vec<Document>, EngineError> {
        self.engine.documents(query).await
    }

    async fn write_document(&self, write: DocumentWrite) -> Result<Option<Document>, EngineError> {
        self.engine.write_document(write).await
    }

    fn duty(&self) -> Duty {
        self.engine.duty()
    }

    async fn close(&self) {
        self.engine.close().await;
    }
}
