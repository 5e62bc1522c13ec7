//! The base of scripted workers and clients: a recorded engine, a clock and random numbers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_check::Recorder;
use qo_core::transition::{Failure, FailureKind, ProgressReport};
use qo_core::webhook::delivery;
use qo_core::{Json, LeaseId, QueueName, Task, TaskId, WorkerId};
use qo_engine::api::{ClaimRequest, SubmitRequest, Submitted};
use qo_engine::{Engine, EngineError};
use qo_store::runtime::Runtime;

use crate::journal::Journal;
use crate::random::Random;
use crate::sched::{ProcessId, lock};

/// The types of the tasks of a run.
pub(crate) const TYPES: [&str; 2] = ["mail", "image"];

/// The queue to which tasks are moved.
pub(crate) const ELSEWHERE: &str = "elsewhere";

/// The callers of one process.
pub struct Caller {
    /// The process.
    pub process: ProcessId,
    /// Its name as a worker.
    pub worker: WorkerId,
    /// The engine, with its calls recorded.
    pub engine: Arc<dyn Engine>,
    /// Its runtime.
    pub runtime: Arc<dyn Runtime>,
    /// The journal of the run.
    pub journal: Arc<Journal>,
    /// The queues that it claims from.
    pub queues: Vec<QueueName>,
    /// The types that it claims.
    pub types: Vec<&'static str>,
    dice: Mutex<Random>,
}

type EngineResult<T> = Result<T, EngineError>;

impl Caller {
    /// The callers of a process.
    pub fn new(
        process: ProcessId,
        worker: WorkerId,
        engine: &Arc<dyn Engine>,
        runtime: Arc<dyn Runtime>,
        journal: &Arc<Journal>,
        dice: Random,
    ) -> Self {
        let recorder = Recorder::new(process, Arc::clone(engine), journal.log());
        Self {
            process,
            worker,
            engine: Arc::new(recorder),
            runtime,
            journal: Arc::clone(journal),
            queues: vec![QueueName::default()],
            types: TYPES.to_vec(),
            dice: Mutex::new(dice),
        }
    }

    /// Also claims from the queue to which tasks are moved.
    #[must_use]
    pub fn with_elsewhere(mut self) -> Self {
        self.queues.extend(ELSEWHERE.parse::<QueueName>());
        self
    }

    /// Also claims the deliveries of webhooks.
    #[must_use]
    pub fn with_deliveries(mut self) -> Self {
        self.queues.extend(delivery::QUEUE.parse::<QueueName>());
        self.types.push(delivery::TASK_TYPE);
        self
    }

    /// Claims only one of the types of tasks that clients submit.
    #[must_use]
    pub fn as_specialist(mut self, number: u64) -> Self {
        let spared = TYPES[usize::from(number.is_multiple_of(2))];
        self.types.retain(|name| *name != spared);
        self
    }

    /// Waits.
    pub async fn sleep(&self, duration: Duration) {
        self.runtime.sleep(duration).await;
    }

    /// A random number below a bound.
    pub fn below(&self, bound: u64) -> u64 {
        lock(&self.dice).below(bound)
    }

    /// A random time.
    pub fn millis(&self, low_ms: u64, high_ms: u64) -> Duration {
        lock(&self.dice).millis(low_ms, high_ms)
    }

    /// Submits a request. It names its id, so that the checks know the task whatever the reply.
    pub async fn submit(&self, request: SubmitRequest) -> EngineResult<Submitted> {
        self.engine.submit(request).await
    }

    /// Claims tasks.
    pub async fn claim(&self, max: usize, wait_ms: u64) -> EngineResult<Vec<Task>> {
        let request = ClaimRequest {
            worker: self.worker.clone(),
            queues: self.queues.clone(),
            types: (self.types.iter())
                .filter_map(|name| name.parse().ok())
                .collect(),
            shards: Vec::new(),
            max,
            wait_ms,
            lease_ms: None,
            in_order: false,
        };
        self.engine.claim(&request).await
    }

    /// Renews a lease.
    pub async fn renew(&self, task: &Task) -> EngineResult<Task> {
        self.engine.renew(task.id, lease_of(task)?, None).await
    }

    /// Reports progress of an attempt.
    pub async fn progress(&self, task: &Task) -> EngineResult<Task> {
        let report = ProgressReport {
            percent: 50.0,
            message: None,
        };
        self.engine.progress(task.id, lease_of(task)?, report).await
    }

    /// Ends an attempt with success.
    pub async fn complete(&self, task: &Task, output: Json) -> EngineResult<Task> {
        let lease = lease_of(task)?;
        self.engine.complete(task.id, lease, Some(output)).await
    }

    /// Ends an attempt without success.
    pub async fn fail(&self, task: &Task, kind: FailureKind) -> EngineResult<Task> {
        let failure = Failure {
            kind,
            error: "the handler said no".into(),
        };
        self.engine.fail(task.id, lease_of(task)?, failure).await
    }

    /// Releases a task.
    pub async fn release(&self, task: &Task) -> EngineResult<Task> {
        self.engine.release(task.id, lease_of(task)?).await
    }

    /// Snoozes a task.
    pub async fn snooze(&self, task: &Task, delay_ms: u64) -> EngineResult<Task> {
        self.engine.snooze(task.id, lease_of(task)?, delay_ms).await
    }

    /// Cancels a task.
    pub async fn cancel(&self, id: TaskId) -> EngineResult<Task> {
        self.engine.cancel(id, Some("called off".to_owned())).await
    }
}

fn lease_of(task: &Task) -> EngineResult<LeaseId> {
    task.lease_id
        .ok_or_else(|| EngineError::BadRequest("a task was handed out without a lease".to_owned()))
}
