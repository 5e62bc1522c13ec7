//! One check's own queue, type and worker in a space that all checks share, and the few steps that most checks take.

use std::sync::Arc;
use std::time::Duration;

use qo_core::transition::{Failure, FailureKind};
use qo_core::{
    Json, LeaseId, QueueName, Rejection, Status, Task, TaskId, TaskType, Timestamp, WorkerId,
};
use qo_store::runtime::{BoxFuture, RuntimeExt};
use tokio::sync::oneshot;

use super::Harness;
use crate::api::{ClaimRequest, SubmitRequest, Submitted, WorkerInfo};
use crate::engine::Engine;
use crate::error::EngineError;

/// How long anything may take that should happen at once: a busy machine is slow, and no check waits for it without need.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
pub(super) const PATIENCE_MS: u64 = 20_000;

/// How far two readings of the time may be off: a store tells whole seconds, and the more often it is asked, the better a
/// process knows what it means, so that what it takes for the time may also go back a little.
pub(super) const CLOCK_SLACK_MS: u64 = 1_500;

/// One check's part of the space.
pub(super) struct Room<'a> {
    pub(super) harness: &'a dyn Harness,
    pub(super) engine: Arc<dyn Engine>,
    pub(super) queue: QueueName,
    pub(super) task_type: TaskType,
    pub(super) worker: WorkerId,
}

impl<'a> Room<'a> {
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

    /// A new process on the same space.
    pub(super) async fn another(&self) -> Arc<dyn Engine> {
        self.harness.engine().await
    }

    pub(super) fn new_id(&self) -> TaskId {
        self.harness.runtime().new_task_id()
    }

    pub(super) async fn pass(&self, duration: Duration) {
        self.harness.runtime().sleep(duration).await;
    }

    /// A request in this room's queue.
    pub(super) fn request(&self) -> SubmitRequest {
        SubmitRequest {
            queue: self.queue.clone(),
            ..SubmitRequest::new(self.task_type.clone(), json("{\"n\":1}"))
        }
    }

    pub(super) async fn submit(&self, request: SubmitRequest) -> Task {
        let Submitted { task, duplicate } = self.engine.submit(request).await.unwrap();
        assert!(!duplicate, "a new task is no duplicate");
        task
    }

    /// A task with the default settings.
    pub(super) async fn submit_one(&self) -> Task {
        self.submit(self.request()).await
    }

    /// A task that is retried at once.
    pub(super) async fn submit_impatient(&self, max_retries: u32) -> Task {
        let mut request = self.request();
        request.max_retries = max_retries;
        request.retry_policy.initial_interval_ms = 1;
        request.retry_policy.max_interval_ms = 1;
        self.submit(request).await
    }

    /// A wish for work of this room, without waiting.
    pub(super) fn wish(&self, max: usize) -> ClaimRequest {
        ClaimRequest {
            queues: vec![self.queue.clone()],
            max,
            ..ClaimRequest::new(self.worker.clone(), vec![self.task_type.clone()])
        }
    }

    /// Says that this room's worker is there.
    pub(super) async fn register(&self, engine: &dyn Engine) -> WorkerInfo {
        let mut worker = WorkerInfo::new(self.worker.clone(), engine.now());
        worker.queues = vec![self.queue.clone()];
        engine.heartbeat(&worker).await.unwrap();
        worker
    }

    /// Up to `max` tasks; waits for the first.
    pub(super) async fn claim(&self, max: usize) -> Vec<Task> {
        let wish = ClaimRequest {
            wait_ms: PATIENCE_MS,
            ..self.wish(max)
        };
        self.engine.claim(&wish).await.unwrap()
    }

    /// The one task that there is, and its lease.
    pub(super) async fn claim_one(&self) -> (Task, LeaseId) {
        let mut tasks = self.claim(1).await;
        let task = tasks.pop().expect("there is something to claim");
        assert!(tasks.is_empty(), "one was asked for");
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

    /// Submits a task and brings it to its end.
    pub(super) async fn completed(&self) -> Task {
        let (task, lease) = self.running().await;
        let output = Some(json("\"done\""));
        self.engine.complete(task.id, lease, output).await.unwrap()
    }

    pub(super) async fn nothing_to_claim(&self) {
        let claimed = self.engine.claim(&self.wish(10)).await.unwrap();
        assert_eq!(claimed, [], "nothing should be handed out");
    }

    pub(super) async fn get(&self, id: TaskId) -> Task {
        self.engine.get(id).await.unwrap()
    }

    /// Looks again and again until something is there.
    pub(super) async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let runtime = self.harness.runtime();
        let deadline = runtime.monotonic() + PATIENCE;
        loop {
            if let Some(found) = look().await {
                return found;
            }
            assert!(
                runtime.monotonic() < deadline,
                "waited in vain until {what}"
            );
            runtime.sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until tasks that were due at the latest then are due by the clock of any process.
    pub(super) async fn due_everywhere(&self, engine: &dyn Engine, last: Timestamp) {
        self.until("all are due", async || {
            (engine.now() > last.plus_millis(CLOCK_SLACK_MS)).then_some(())
        })
        .await;
    }

    /// Maintains until the task is no longer running, and returns it.
    pub(super) async fn maintain_until_ended(&self, id: TaskId) -> Task {
        self.until("maintenance ends the attempt", async || {
            self.harness.maintain().await;
            let task = self.get(id).await;
            (task.status != Status::Running).then_some(task)
        })
        .await
    }

    /// Runs jobs beside each other, on all threads that there are.
    pub(super) async fn at_once<T: Send + 'static>(&self, jobs: Vec<BoxFuture<T>>) -> Vec<T> {
        let runtime = self.harness.runtime();
        let answers: Vec<_> = jobs
            .into_iter()
            .map(|job| {
                let (answer, answered) = oneshot::channel();
                runtime.spawn(Box::pin(async move {
                    // The receiver is only gone if the check has failed already.
                    let _ = answer.send(job.await);
                }));
                answered
            })
            .collect();
        let mut results = Vec::new();
        for answer in answers {
            results.push(answer.await.expect("the job came to its end"));
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

/// Expects that there is no such task.
pub(super) fn not_found<T: std::fmt::Debug>(result: Result<T, EngineError>, id: TaskId) {
    assert_eq!(rejection(result), Rejection::NotFound { id });
}

/// Expects that the task is in a status in which this cannot be done.
pub(super) fn wrong_status<T: std::fmt::Debug>(result: Result<T, EngineError>, expected: Status) {
    match rejection(result) {
        Rejection::WrongStatus { status, .. } => assert_eq!(status, expected),
        other => panic!("expected a wrong status, got {other:?}"),
    }
}

/// Expects that a field is refused by its name.
pub(super) fn out_of_bounds<T: std::fmt::Debug>(result: Result<T, EngineError>, expected: &str) {
    match rejection(result) {
        Rejection::OutOfBounds { field, .. } => assert_eq!(field, expected),
        other => panic!("expected {expected} to be out of bounds, got {other:?}"),
    }
}
