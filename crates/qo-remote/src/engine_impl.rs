//! The remote queue as an [`Engine`].

use std::time::Duration;

use async_trait::async_trait;
use qo_core::limits::CLAIM_MAX_TASKS;
use qo_core::task::Event;
use qo_core::{Json, Payload, PayloadRef, QueueName, Rejection, Task, TaskId, Timestamp, WorkerId};
use qo_engine::api::{
    ClaimRequest, Stats, SubmitRequest, Submitted, TaskFilter, TaskPage, VersionedTask, WorkerInfo,
};
use qo_engine::{Engine, EngineError, Operation};
use qo_store::StoreError;
use serde::Deserialize;
use url::form_urlencoded::Serializer;

use super::connection::Ask;
use super::{NoBody, RemoteEngine};
use crate::wire::{
    ClaimAnswer, ClaimBody, ListQuery, OutcomeItem, PageAnswer, StatsAnswer, VERSIONS_MAX,
    VersionsAnswer,
};

/// How long one request of a claim waits at the most: proxies between here and the server often give up after 30 s.
const WAIT_SLICE_MS: u64 = 25_000;

/// An empty answer that comes sooner than it should, as from a server that is stopping, is not asked for again at once.
const EMPTY_PAUSE: Duration = Duration::from_millis(200);

#[derive(Deserialize)]
struct Events {
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Workers {
    workers: Vec<WorkerInfo>,
}

impl RemoteEngine {
    /// One look for work.
    async fn claim_once(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        let mut ask = Ask::post("/v1/claim".to_owned(), &ClaimBody::from_request(request))?;
        ask.wait = Duration::from_millis(request.wait_ms);
        let answer: ClaimAnswer = self.connection().ask(ask).await?;
        self.shared.leases.remember(&answer.tasks);
        self.shared.inputs.remember(&answer.tasks);
        Ok(answer.tasks)
    }

    /// A payload that is kept beside the record.
    async fn payload(
        &self,
        id: TaskId,
        field: &str,
        reference: &PayloadRef,
    ) -> Result<Json, EngineError> {
        let ask = Ask::get(format!("/v1/tasks/{id}/{field}"));
        let bytes = self.connection().bytes(ask).await?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        let corrupt = |detail: String| {
            EngineError::Store(StoreError::Corrupt {
                key: format!("the {field} of task {id}"),
                detail,
            })
        };
        if digest.as_ref() != reference.sha256.as_bytes() {
            return Err(corrupt(
                "it is not what the record says; the task may have changed since it was read"
                    .to_owned(),
            ));
        }
        let text = String::from_utf8(bytes.to_vec()).map_err(|error| corrupt(error.to_string()))?;
        Json::parse(text).map_err(|error| corrupt(error.to_string()))
    }

    async fn without_answer(&self, ask: Ask) -> Result<(), EngineError> {
        self.connection().bytes(ask).await.map(drop)
    }
}

#[async_trait]
impl Engine for RemoteEngine {
    fn now(&self) -> Timestamp {
        self.connection().now()
    }

    async fn submit(&self, request: SubmitRequest) -> Result<Submitted, EngineError> {
        self.submit_one(request).await
    }

    async fn submit_many(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        self.submit_all(requests).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        if request.max == 0 {
            return Ok(Vec::new());
        }
        let runtime = &self.shared.runtime;
        let started = runtime.monotonic();
        let wait = Duration::from_millis(request.wait_ms);
        loop {
            let asked = runtime.monotonic();
            let left = wait.saturating_sub(asked.saturating_sub(started));
            let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            let slice = ClaimRequest {
                wait_ms: left_ms.min(WAIT_SLICE_MS),
                max: request.max.min(CLAIM_MAX_TASKS),
                ..request.clone()
            };
            let found = self.claim_once(&slice).await;
            let is_over = runtime.monotonic().saturating_sub(started) >= wait;
            match found {
                Ok(tasks) if tasks.is_empty() && !is_over => {}
                // A queue may be resumed while there is time.
                Err(EngineError::QueuePaused { .. }) if !is_over => {}
                found => return found,
            }
            if runtime.monotonic().saturating_sub(asked) < EMPTY_PAUSE {
                runtime.sleep(EMPTY_PAUSE.min(left)).await;
            }
        }
    }

    async fn act(&self, id: TaskId, operation: Operation) -> Result<Task, EngineError> {
        // JSON has no form for such a number.
        if let Operation::Progress { report, .. } = &operation
            && !report.percent.is_finite()
        {
            return Err(Rejection::OutOfBounds {
                field: "percent",
                allowed: "a number from 0 to 100",
            }
            .into());
        }
        match OutcomeItem::new(id, operation.clone()) {
            Ok(item) => self.act_as_worker(item, &operation).await,
            Err(operation) => self.act_as_operator(id, operation).await,
        }
    }

    /// All at once: they are batched into few requests.
    async fn act_many(
        &self,
        operations: Vec<(TaskId, Operation)>,
    ) -> Vec<Result<Task, EngineError>> {
        let acts = operations.into_iter();
        futures_util::future::join_all(acts.map(|(id, operation)| self.act(id, operation))).await
    }

    async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        self.without_answer(Ask::delete(format!("/v1/tasks/{id}")))
            .await
    }

    async fn get(&self, id: TaskId) -> Result<Task, EngineError> {
        self.connection().read(&format!("/v1/tasks/{id}")).await
    }

    async fn input(&self, task: &Task) -> Result<Json, EngineError> {
        match task.input() {
            Payload::Inline(json) => Ok(json),
            Payload::Stored(reference) => self.payload(task.id, "input", &reference).await,
        }
    }

    async fn output(&self, task: &Task) -> Result<Option<Json>, EngineError> {
        match task.output() {
            None => Ok(None),
            Some(Payload::Inline(json)) => Ok(Some(json)),
            Some(Payload::Stored(reference)) => {
                self.payload(task.id, "output", &reference).await.map(Some)
            }
        }
    }

    async fn list(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<TaskPage, EngineError> {
        let query = ListQuery::new(filter, cursor, limit);
        let pairs = Serializer::new(String::new())
            .extend_pairs(query.pairs())
            .finish();
        let text = format!("/v1/tasks?{pairs}");
        let page: PageAnswer = self.connection().read(&text).await?;
        Ok(page.into())
    }

    async fn history(&self, id: TaskId) -> Result<Vec<Event>, EngineError> {
        let answer: Events = self
            .connection()
            .read(&format!("/v1/tasks/{id}/history"))
            .await?;
        Ok(answer.events)
    }

    async fn versions(&self, id: TaskId, limit: usize) -> Result<Vec<VersionedTask>, EngineError> {
        let limit = limit.clamp(1, VERSIONS_MAX);
        let path = format!("/v1/tasks/{id}/versions?limit={limit}");
        let answer: VersionsAnswer = self.connection().read(&path).await?;
        Ok(answer.into())
    }

    async fn stats(&self) -> Result<Stats, EngineError> {
        let answer: StatsAnswer = self.connection().read("/v1/stats").await?;
        Ok(answer.into())
    }

    async fn workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        let answer: Workers = self.connection().read("/v1/workers").await?;
        Ok(answer.workers)
    }

    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<(), EngineError> {
        let path = format!("/v1/workers/{}", worker.worker_id);
        self.without_answer(Ask::put(path, worker)?).await
    }

    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError> {
        self.without_answer(Ask::delete(format!("/v1/workers/{worker}")))
            .await
    }

    async fn pause(&self, queue: &QueueName) -> Result<(), EngineError> {
        let path = format!("/v1/queues/{queue}/pause");
        self.without_answer(Ask::post(path, &NoBody {})?).await
    }

    async fn resume(&self, queue: &QueueName) -> Result<(), EngineError> {
        let path = format!("/v1/queues/{queue}/resume");
        self.without_answer(Ask::post(path, &NoBody {})?).await
    }

    /// Nothing goes on here in the background that has an end of its own.
    async fn close(&self) {}
}
