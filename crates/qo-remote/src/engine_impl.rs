//! The [`Engine`] implementation of remote mode.

use std::time::Duration;

use async_trait::async_trait;
use qo_core::limits::CLAIM_MAX_TASKS;
use qo_core::task::Event;
use qo_core::{
    Json, PauseNote, PauseTarget, Pauses, Payload, PayloadRef, Rejection, Status, Task, TaskId,
    Timestamp, WorkerId,
};
use qo_engine::api::{
    ClaimRequest, Document, DocumentQuery, DocumentWrite, Duty, Stats, SubmitRequest, Submitted,
    TaskPage, TaskQuery, VersionedTask, WaitReason, WorkerInfo, WorkerRequest,
};
use qo_engine::{Engine, EngineError, Operation};
use qo_store::StoreError;
use serde::Deserialize;
use url::form_urlencoded::Serializer;

use super::http_request::HttpRequest;
use super::{NoBody, RemoteEngine};
use crate::wire::{
    ClaimBody, ClaimResponse, HeartbeatResponse, ListQuery, OutcomeItem, PageResponse, PauseBody,
    PausesResponse, SettingsBody, SettingsEntry, SettingsResponse, SettingsWritten, StatsResponse,
    VERSIONS_MAX, VersionsResponse, WaitsForResponse,
};

/// The longest wait of one claim request. Proxies on the way often time out after 30 s.
const WAIT_SLICE_MS: u64 = 25_000;

/// The pause after an empty response that came too early, for example from a server that is stopping.
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
    /// Sends one claim request.
    async fn claim_once(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        let body = ClaimBody::from_request(request);
        let mut http_request = HttpRequest::post("/v1/claim".to_owned(), &body)?;
        http_request.wait = Duration::from_millis(request.wait_ms);
        let response: ClaimResponse = self.connection().json(http_request).await?;
        self.shared.leases.remember(&response.tasks);
        self.shared.inputs.remember(&response.tasks);
        Ok(response.tasks)
    }

    /// Reads a payload that is its own object.
    async fn payload(
        &self,
        id: TaskId,
        field: &str,
        reference: &PayloadRef,
    ) -> Result<Json, EngineError> {
        let request = HttpRequest::get(format!("/v1/tasks/{id}/{field}"));
        let bytes = self.connection().bytes(request).await?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        let corrupt = |detail: String| {
            EngineError::Store(StoreError::Corrupt {
                key: format!("the {field} of task {id}"),
                detail,
            })
        };
        if digest.as_ref() != reference.sha256.as_bytes() {
            return Err(corrupt(
                "its hash differs from the record's; the task may have changed since it was read"
                    .to_owned(),
            ));
        }
        let text = String::from_utf8(bytes.to_vec()).map_err(|error| corrupt(error.to_string()))?;
        Json::parse(text).map_err(|error| corrupt(error.to_string()))
    }

    /// Sends a request whose response has no content.
    async fn send(&self, request: HttpRequest) -> Result<(), EngineError> {
        self.connection().bytes(request).await.map(drop)
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
            let requested = runtime.monotonic();
            let left = wait.saturating_sub(requested.saturating_sub(started));
            let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            let slice = ClaimRequest {
                wait_ms: left_ms.min(WAIT_SLICE_MS),
                max: request.max.min(CLAIM_MAX_TASKS),
                ..request.clone()
            };
            let claimed = self.claim_once(&slice).await;
            let is_over = runtime.monotonic().saturating_sub(started) >= wait;
            match claimed {
                Ok(tasks) if tasks.is_empty() && !is_over => {}
                // The queue may be resumed before the wait is over.
                Err(EngineError::QueuePaused { .. }) if !is_over => {}
                claimed => return claimed,
            }
            if runtime.monotonic().saturating_sub(requested) < EMPTY_PAUSE {
                runtime.sleep(EMPTY_PAUSE.min(left)).await;
            }
        }
    }

    async fn act(&self, id: TaskId, operation: Operation) -> Result<Task, EngineError> {
        // JSON cannot represent such a number.
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

    /// Sends all operations concurrently, so that they are batched into few requests.
    async fn act_many(
        &self,
        operations: Vec<(TaskId, Operation)>,
    ) -> Vec<Result<Task, EngineError>> {
        let acts = operations.into_iter();
        futures_util::future::join_all(acts.map(|(id, operation)| self.act(id, operation))).await
    }

    async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        self.send(HttpRequest::delete(format!("/v1/tasks/{id}")))
            .await
    }

    async fn get(&self, id: TaskId) -> Result<Task, EngineError> {
        self.connection().read(&format!("/v1/tasks/{id}")).await
    }

    async fn waits_for(&self, task: &Task) -> Result<Option<WaitReason>, EngineError> {
        if task.status != Status::Pending {
            return Ok(None);
        }
        let path = format!("/v1/tasks/{}/waits_for", task.id);
        let response: WaitsForResponse = self.connection().read(&path).await?;
        Ok(response.waits_for)
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

    async fn list(&self, query: TaskQuery<'_>) -> Result<TaskPage, EngineError> {
        let query = ListQuery::new(query);
        let pairs = Serializer::new(String::new())
            .extend_pairs(query.pairs())
            .finish();
        let text = format!("/v1/tasks?{pairs}");
        let page: PageResponse = self.connection().read(&text).await?;
        Ok(page.into())
    }

    async fn history(&self, id: TaskId) -> Result<Vec<Event>, EngineError> {
        let response: Events = self
            .connection()
            .read(&format!("/v1/tasks/{id}/history"))
            .await?;
        Ok(response.events)
    }

    async fn versions(&self, id: TaskId, limit: usize) -> Result<Vec<VersionedTask>, EngineError> {
        let limit = limit.clamp(1, VERSIONS_MAX);
        let path = format!("/v1/tasks/{id}/versions?limit={limit}");
        let response: VersionsResponse = self.connection().read(&path).await?;
        Ok(response.into())
    }

    async fn stats(&self) -> Result<Stats, EngineError> {
        let response: StatsResponse = self.connection().read("/v1/stats").await?;
        Ok(response.into())
    }

    async fn workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        let response: Workers = self.connection().read("/v1/workers").await?;
        Ok(response.workers)
    }

    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<Option<WorkerRequest>, EngineError> {
        let path = format!("/v1/workers/{}", worker.worker_id);
        let request = HttpRequest::put(path, worker)?;
        let body = self.connection().bytes(request).await?;
        // A server responds with a body only if there is a request.
        let response: HeartbeatResponse = serde_json::from_slice(&body).unwrap_or_default();
        Ok(response.request)
    }

    async fn ask_worker(
        &self,
        worker: &WorkerId,
        request: Option<WorkerRequest>,
    ) -> Result<WorkerInfo, EngineError> {
        let name = (request.as_ref()).map_or("resume", |request| request.action.name());
        let path = format!("/v1/workers/{worker}/{name}");
        let mut http = HttpRequest::post(path, &NoBody {})?;
        http.actor = request.and_then(|request| request.by);
        self.connection().json(http).await
    }

    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError> {
        self.send(HttpRequest::delete(format!("/v1/workers/{worker}")))
            .await
    }

    async fn set_pause(
        &self,
        target: &PauseTarget,
        note: Option<PauseNote>,
    ) -> Result<(), EngineError> {
        let path = match target {
            PauseTarget::Queue(queue) => format!("/v1/queues/{queue}"),
            PauseTarget::Type(task_type) => format!("/v1/types/{task_type}"),
        };
        let request = match note {
            None => HttpRequest::post(format!("{path}/resume"), &NoBody {})?,
            Some(PauseNote { by, reason }) => {
                let body = PauseBody { reason };
                let mut request = HttpRequest::post(format!("{path}/pause"), &body)?;
                request.actor = by;
                request
            }
        };
        self.send(request).await
    }

    async fn pauses(&self) -> Result<Pauses, EngineError> {
        let response: PausesResponse = self.connection().read("/v1/pauses").await?;
        Ok(response.into())
    }

    async fn documents(&self, query: &DocumentQuery) -> Result<Vec<Document>, EngineError> {
        let path = format!("/v1/settings/{}", query.kind);
        let path = match &query.name {
            Some(name) => format!("{path}?name={name}"),
            None => path,
        };
        let response: SettingsResponse = self.connection().read(&path).await?;
        let of = |body: SettingsEntry| body.into_document(query.kind);
        Ok(response.settings.into_iter().map(of).collect())
    }

    async fn write_document(&self, write: DocumentWrite) -> Result<Option<Document>, EngineError> {
        write.validate()?;
        let kind = write.id.kind;
        let body = SettingsBody::from_write(write);
        let request = HttpRequest::post(format!("/v1/settings/{kind}"), &body)?;
        let response: SettingsWritten = self.connection().json(request).await?;
        Ok(response.setting.map(|entry| entry.into_document(kind)))
    }

    /// The server does the work of the queue.
    fn duty(&self) -> Duty {
        Duty::None
    }

    /// There is nothing to close: no background task outlives its requests.
    async fn close(&self) {}
}
