//! The queue, task type and worker of one check, and helpers that most checks use.

use std::sync::Arc;
use std::time::Duration;

use qo_core::transition::{Failure, FailureKind};
use qo_core::{
    Json, LeaseId, QueueName, Rejection, Status, Task, TaskId, TaskType, Timestamp, WorkerId,
};
use qo_store::runtime::{BoxFuture, RuntimeExt};
use tokio::sync::oneshot;

use super::Harness;
use crate::api::{ClaimRequest, SubmitRequest, Submitted, TaskFilter, TaskQuery, WorkerInfo};
use crate::engine::Engine;
use crate::error::EngineError;

/// How long a check waits for a condition that is normally met quickly. The limit is generous because test machines can be slow.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
pub(super) const TIMEOUT_MS: u64 = 20_000;

/// How far two readings of the store's clock may differ. A store reports whole seconds, and each response narrows the estimate, so
/// the estimated time can also go back a little.
pub(super) const CLOCK_SLACK_MS: u64 = 1_500;

/// The environment of one check.
pub(super) struct TestContext<'a> {
    pub(super) harness: &'a dyn Harness,
    pub(super) engine: Arc<dyn Engine>,
    pub(super) queue: QueueName,
    pub(super) task_type: TaskType,
    pub(super) worker: WorkerId,
}

impl<'a> TestContext<'a> {
    pub(super) fn new(harness: &'a dyn Harness, engine: Arc<dyn Engine>, check: &str) -> Self {
        let number = harness.runtime().random() >> 32;
        let short: String = check.chars().take(48).collect();
        Self {
            harness,
            engine,
            queue: name(&format!("{short}.{number:x}")),
            task_type: name(&format!("work.{number:x}")),
            worker: name(&format!("worker.{number:x}")),
        }
    }

    /// A new engine on the same store, as in another process.
    pub(super) async fn new_engine(&self) -> Arc<dyn Engine> {
        self.harness.engine().await
    }

    pub(super) fn new_id(&self) -> TaskId {
        self.harness.runtime().new_task_id()
    }

    /// Gives a request with a key an id. It has the route of the key, because a partitioned queue accepts no other id.
    pub(super) fn with_id(&self, request: SubmitRequest) -> SubmitRequest {
        let route = request.route();
        let id = self.new_id();
        SubmitRequest {
            id: Some(route.map_or(id, |route| id.with_route(route))),
            ..request
        }
    }

    pub(super) async fn sleep(&self, duration: Duration) {
        self.harness.runtime().sleep(duration).await;
    }

    /// A submit request for the check's queue and type, with default settings.
    pub(super) fn submit_request(&self) -> SubmitRequest {
        SubmitRequest {
            queue: self.queue.clone(),
            ..SubmitRequest::new(self.task_type.clone(), json("{\"n\":1}"))
        }
    }

    pub(super) async fn submit(&self, request: SubmitRequest) -> Task {
        let Submitted { task, duplicate } = self.engine.submit(request).await.unwrap();
        assert!(
            !duplicate,
            "the submit of a new task was reported as a duplicate"
        );
        task
    }

    /// Submits a task with the default settings.
    pub(super) async fn submit_one(&self) -> Task {
        self.submit(self.submit_request()).await
    }

    /// Submits a task whose retries are due after 1 ms.
    pub(super) async fn submit_with_instant_retry(&self, max_retries: u32) -> Task {
        let mut request = self.submit_request();
        request.max_retries = Some(max_retries);
        request.retry_policy.initial_interval_ms = 1;
        request.retry_policy.max_interval_ms = 1;
        self.submit(request).await
    }

    /// A claim request for the check's queue and type, without waiting.
    pub(super) fn claim_request(&self, max: usize) -> ClaimRequest {
        ClaimRequest {
            queues: vec![self.queue.clone()],
            max,
            ..ClaimRequest::new(self.worker.clone(), vec![self.task_type.clone()])
        }
    }

    /// Registers the check's worker.
    pub(super) async fn register(&self, engine: &dyn Engine) -> WorkerInfo {
        let mut worker = WorkerInfo::new(self.worker.clone(), engine.now());
        worker.queues = vec![self.queue.clone()];
        engine.heartbeat(&worker).await.unwrap();
        worker
    }

    /// Claims up to `max` tasks and waits for the first.
    pub(super) async fn claim(&self, max: usize) -> Vec<Task> {
        let request = ClaimRequest {
            wait_ms: TIMEOUT_MS,
            ..self.claim_request(max)
        };
        self.engine.claim(&request).await.unwrap()
    }

    /// Claims a task as a worker that dies right away.
    pub(super) async fn claim_as_dying_worker(&self) -> (Task, LeaseId) {
        let request = ClaimRequest {
            lease_ms: Some(50),
            wait_ms: TIMEOUT_MS,
            ..self.claim_request(1)
        };
        let dying = self.new_engine().await;
        let task = dying.claim(&request).await.unwrap().pop().unwrap();
        let lease = task.lease_id.unwrap();
        (task, lease)
    }

    /// Claims one task and returns it with its lease.
    pub(super) async fn claim_one(&self) -> (Task, LeaseId) {
        let mut tasks = self.claim(1).await;
        let task = tasks.pop().expect("a task can be claimed");
        assert!(tasks.is_empty(), "more than one task was claimed");
        assert_eq!(task.status, Status::Running);
        let lease = task.lease_id.expect("a claimed task has a lease");
        (task, lease)
    }

    /// Submits a task and claims it.
    pub(super) async fn running(&self) -> (Task, LeaseId) {
        let submitted = self.submit_one().await;
        let (task, lease) = self.claim_one().await;
        assert_eq!(task.id, submitted.id);
        (task, lease)
    }

    /// Submits, claims and completes a task.
    pub(super) async fn completed(&self) -> Task {
        let (task, lease) = self.running().await;
        let output = Some(json("\"done\""));
        self.engine.complete(task.id, lease, output).await.unwrap()
    }

    pub(super) async fn assert_nothing_to_claim(&self) {
        let claimed = self.engine.claim(&self.claim_request(10)).await.unwrap();
        assert_eq!(claimed, [], "expected no claimable tasks");
    }

    /// Asserts that no task of the queue is stored.
    pub(super) async fn assert_queue_is_empty(&self) {
        let filter = TaskFilter {
            queue: Some(self.queue.clone()),
            ..TaskFilter::default()
        };
        let page = self
            .engine
            .list(TaskQuery::first(&filter, 10))
            .await
            .unwrap();
        assert_eq!(page.tasks, []);
        self.assert_nothing_to_claim().await;
    }

    pub(super) async fn get(&self, id: TaskId) -> Task {
        self.engine.get(id).await.unwrap()
    }

    /// Polls until `poll` returns a value. `condition` describes what it waits for.
    pub(super) async fn poll_until<T>(
        &self,
        condition: &str,
        mut poll: impl AsyncFnMut() -> Option<T>,
    ) -> T {
        let runtime = self.harness.runtime();
        let deadline = runtime.monotonic() + TIMEOUT;
        loop {
            if let Some(value) = poll().await {
                return value;
            }
            assert!(
                runtime.monotonic() < deadline,
                "timed out waiting until {condition}"
            );
            runtime.sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until a task that is due at `last` is due by the clock of every process.
    pub(super) async fn wait_until_due_everywhere(&self, engine: &dyn Engine, last: Timestamp) {
        self.poll_until("all tasks are due", async || {
            (engine.now() > last.plus_millis(CLOCK_SLACK_MS)).then_some(())
        })
        .await;
    }

    /// Runs maintenance until the task is no longer running, and returns the task.
    pub(super) async fn maintain_until_not_running(&self, id: TaskId) -> Task {
        self.poll_until("maintenance ends the attempt", async || {
            self.harness.maintain().await;
            let task = self.get(id).await;
            (task.status != Status::Running).then_some(task)
        })
        .await
    }

    /// Runs jobs concurrently, on all threads of the runtime.
    pub(super) async fn run_concurrently<T: Send + 'static>(
        &self,
        jobs: Vec<BoxFuture<T>>,
    ) -> Vec<T> {
        let runtime = self.harness.runtime();
        let receivers: Vec<_> = jobs
            .into_iter()
            .map(|job| {
                let (sender, receiver) = oneshot::channel();
                runtime.spawn(Box::pin(async move {
                    // The receiver is dropped only if the check has failed already.
                    let _ = sender.send(job.await);
                }));
                receiver
            })
            .collect();
        let mut results = Vec::new();
        for receiver in receivers {
            results.push(receiver.await.expect("the job finished"));
        }
        results
    }
}

pub(super) fn name<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

pub(super) fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

pub(super) fn failure(kind: FailureKind, error: &str) -> Failure {
    Failure {
        kind,
        error: error.into(),
    }
}

pub(super) fn rejection<T: std::fmt::Debug>(result: Result<T, EngineError>) -> Rejection {
    match result {
        Err(EngineError::Rejected(rejection)) => rejection,
        other => panic!("expected a rejection, got {other:?}"),
    }
}

/// Asserts that the task does not exist.
pub(super) fn assert_not_found<T: std::fmt::Debug>(result: Result<T, EngineError>, id: TaskId) {
    assert_eq!(rejection(result), Rejection::NotFound { id });
}

/// Asserts that the operation is rejected because of the task's status.
pub(super) fn assert_wrong_status<T: std::fmt::Debug>(
    result: Result<T, EngineError>,
    expected: Status,
) {
    match rejection(result) {
        Rejection::WrongStatus { status, .. } => assert_eq!(status, expected),
        other => panic!("expected a wrong status, got {other:?}"),
    }
}

/// Asserts that the value of the named field is rejected.
pub(super) fn assert_out_of_bounds<T: std::fmt::Debug>(
    result: Result<T, EngineError>,
    expected: &str,
) {
    match rejection(result) {
        Rejection::OutOfBounds { field, .. } => assert_eq!(field, expected),
        other => panic!("expected {expected} to be out of bounds, got {other:?}"),
    }
}
