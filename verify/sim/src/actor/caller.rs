//! What scripted workers and clients are made of: an engine with a journal, a clock, and dice.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_core::transition::{Failure, FailureKind, ProgressReport};
use qo_core::{Json, LeaseId, QueueName, Task, TaskId, WorkerId};
use qo_engine::api::{ClaimRequest, SubmitRequest, Submitted};
use qo_engine::{Engine, EngineError};
use qo_store::runtime::Runtime;

use super::recorder::Recorder;
use crate::journal::Journal;
use crate::random::Random;
use crate::sched::{ProcessId, lock};

/// The types of the tasks of a run.
pub(crate) const TYPES: [&str; 2] = ["mail", "image"];

/// One process's callers.
pub struct Caller {
    /// The process.
    pub process: ProcessId,
    /// Its name as a worker.
    pub worker: WorkerId,
    /// What it calls.
    pub engine: Arc<dyn Engine>,
    /// Its time.
    pub runtime: Arc<dyn Runtime>,
    /// Where its calls are noted.
    pub journal: Arc<Journal>,
    dice: Mutex<Random>,
}

type Answer<T> = Result<T, EngineError>;

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
        let recorder = Recorder::new(process, Arc::clone(engine), Arc::clone(journal));
        Self {
            process,
            worker,
            engine: Arc::new(recorder),
            runtime,
            journal: Arc::clone(journal),
            dice: Mutex::new(dice),
        }
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

    /// Submits a request that names its id, so that it is known whatever comes of it.
    pub async fn submit(&self, request: SubmitRequest) -> Answer<Submitted> {
        self.engine.submit(request).await
    }

    /// Claims tasks of the default queue.
    pub async fn claim(&self, max: usize, wait_ms: u64) -> Answer<Vec<Task>> {
        let request = ClaimRequest {
            worker: self.worker.clone(),
            queues: vec![QueueName::default()],
            types: TYPES.iter().filter_map(|name| name.parse().ok()).collect(),
            shards: Vec::new(),
            max,
            wait_ms,
            lease_ms: None,
        };
        self.engine.claim(&request).await
    }

    /// Keeps an attempt alive.
    pub async fn renew(&self, task: &Task) -> Answer<Task> {
        self.engine.renew(task.id, lease_of(task)?, None).await
    }

    /// Says how far an attempt is.
    pub async fn progress(&self, task: &Task) -> Answer<Task> {
        let report = ProgressReport {
            percent: 50.0,
            message: None,
        };
        self.engine.progress(task.id, lease_of(task)?, report).await
    }

    /// Ends an attempt with success.
    pub async fn complete(&self, task: &Task, output: Json) -> Answer<Task> {
        let lease = lease_of(task)?;
        self.engine.complete(task.id, lease, Some(output)).await
    }

    /// Ends an attempt without success.
    pub async fn fail(&self, task: &Task, kind: FailureKind) -> Answer<Task> {
        let failure = Failure {
            kind,
            error: "the handler said no".into(),
        };
        self.engine.fail(task.id, lease_of(task)?, failure).await
    }

    /// Gives a task back.
    pub async fn release(&self, task: &Task) -> Answer<Task> {
        self.engine.release(task.id, lease_of(task)?).await
    }

    /// Puts a task off.
    pub async fn snooze(&self, task: &Task, delay_ms: u64) -> Answer<Task> {
        self.engine.snooze(task.id, lease_of(task)?, delay_ms).await
    }

    /// Calls a task off.
    pub async fn cancel(&self, id: TaskId) -> Answer<Task> {
        self.engine.cancel(id, Some("called off".to_owned())).await
    }
}

fn lease_of(task: &Task) -> Answer<LeaseId> {
    task.lease_id
        .ok_or_else(|| EngineError::BadRequest("a task was handed out without a lease".to_owned()))
}
