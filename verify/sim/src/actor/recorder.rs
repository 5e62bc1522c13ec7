//! An engine that notes in the journal what is asked of it, so that programs which know nothing of the simulator are judged too.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use qo_core::task::Event;
use qo_core::{Json, LeaseId, QueueName, Task, TaskId, Timestamp, WorkerId};
use qo_engine::api::{
    ClaimRequest, Stats, SubmitRequest, Submitted, TaskFilter, TaskPage, VersionedTask, WorkerInfo,
};
use qo_engine::{Engine, EngineError, Operation};

use crate::journal::{Asked, Journal, Seen, Told, told, told_of_submit};
use crate::sched::ProcessId;

/// The engine of a process, with its journal.
pub(crate) struct Recorder {
    process: ProcessId,
    engine: Arc<dyn Engine>,
    journal: Arc<Journal>,
}

impl Recorder {
    pub(crate) fn new(process: ProcessId, engine: Arc<dyn Engine>, journal: Arc<Journal>) -> Self {
        Self {
            process,
            engine,
            journal,
        }
    }

    async fn note(
        &self,
        asked: Asked,
        id: TaskId,
        lease: Option<LeaseId>,
        call: impl Future<Output = Result<Task, EngineError>>,
    ) -> Result<Task, EngineError> {
        let open = self.journal.open(self.process, asked, Some(id));
        self.journal.with(&open, |call| call.lease = lease);
        let answer = call.await;
        let told = told(&answer, |task| Told::Done(Some(Seen::of(task))));
        self.journal.close(&open, told);
        answer
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
        let open = self.journal.open(self.process, Asked::Submit, request.id);
        let key = request.idempotency.as_ref().map(|known| known.key.clone());
        self.journal.with(&open, |call| call.key = key);
        let answer = self.engine.submit(request).await;
        if let Ok(submitted) = &answer {
            let id = submitted.task.id;
            self.journal.with(&open, |call| call.task = Some(id));
        }
        self.journal.close(&open, told(&answer, told_of_submit));
        answer
    }

    async fn submit_many(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        futures_util::future::join_all(requests.into_iter().map(|request| self.submit(request)))
            .await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        let open = self.journal.open(self.process, Asked::Claim, None);
        let answer = self.engine.claim(request).await;
        self.journal
            .close(&open, told(&answer, |_| Told::Done(None)));
        if let Ok(tasks) = &answer {
            let called = self.journal.called(&open);
            for task in tasks {
                self.journal.handed_out(self.process, called, task);
            }
        }
        answer
    }

    async fn act(&self, id: TaskId, operation: Operation) -> Result<Task, EngineError> {
        let asked = match &operation {
            Operation::Renew { .. } | Operation::Progress { .. } => Asked::Keep,
            Operation::Complete { .. } => Asked::Complete,
            Operation::Fail { .. } => Asked::Fail,
            Operation::Release { .. } => Asked::Release,
            Operation::Snooze { .. } => Asked::Snooze,
            Operation::Cancel { .. } => Asked::Cancel,
            Operation::Replay => Asked::Replay,
            Operation::Archive => Asked::Archive,
            Operation::Unarchive => Asked::Unarchive,
            // No actor asks for others yet, so that the checks need not know them.
            _ => return self.engine.act(id, operation).await,
        };
        let lease = operation.lease();
        self.note(asked, id, lease, self.engine.act(id, operation))
            .await
    }

    async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        let open = self.journal.open(self.process, Asked::Purge, Some(id));
        let answer = self.engine.purge(id).await;
        self.journal
            .close(&open, told(&answer, |()| Told::Done(None)));
        answer
    }

    async fn get(&self, id: TaskId) -> Result<Task, EngineError> {
        self.note(Asked::Get, id, None, self.engine.get(id)).await
    }

    async fn input(&self, task: &Task) -> Result<Json, EngineError> {
        self.engine.input(task).await
    }

    async fn output(&self, task: &Task) -> Result<Option<Json>, EngineError> {
        self.engine.output(task).await
    }

    async fn list(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<TaskPage, EngineError> {
        self.engine.list(filter, cursor, limit).await
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

    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<(), EngineError> {
        self.engine.heartbeat(worker).await
    }

    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError> {
        self.engine.deregister(worker).await
    }

    async fn pause(&self, queue: &QueueName) -> Result<(), EngineError> {
        self.engine.pause(queue).await
    }

    async fn resume(&self, queue: &QueueName) -> Result<(), EngineError> {
        self.engine.resume(queue).await
    }

    async fn close(&self) {
        self.engine.close().await;
    }
}
