//! An engine in a process, and callers that keep a journal.

use std::sync::Arc;
use std::time::Duration;

use qo_core::transition::{Failure, FailureKind, ProgressReport};
use qo_core::{Json, LeaseId, Task, TaskId, WorkerId};
use qo_engine::api::{ClaimRequest, SubmitRequest, Submitted};
use qo_engine::{Engine, EngineError};
use qo_store::world::World;

use crate::journal::{Asked, Journal, Seen, Told, told, told_of_submit};
use crate::random::Random;
use crate::sched::{ProcessId, lock};

/// One process's callers.
pub struct Caller {
    /// The process.
    pub process: ProcessId,
    /// Its name as a worker.
    pub worker: WorkerId,
    /// What it calls.
    pub engine: Arc<dyn Engine>,
    /// Its time.
    pub world: Arc<dyn World>,
    /// Where its calls are noted.
    pub journal: Arc<Journal>,
    /// Its own choices.
    pub dice: std::sync::Mutex<Random>,
}

/// The types of the tasks of a run.
pub(crate) const TYPES: [&str; 2] = ["mail", "image"];

type Answer<T> = Result<T, EngineError>;

impl Caller {
    /// Waits.
    pub async fn sleep(&self, duration: Duration) {
        self.world.sleep(duration).await;
    }

    /// A random number below a bound.
    pub fn below(&self, bound: u64) -> u64 {
        lock(&self.dice).below(bound)
    }

    /// A random time.
    pub fn millis(&self, low_ms: u64, high_ms: u64) -> Duration {
        lock(&self.dice).millis(low_ms, high_ms)
    }

    async fn call(
        &self,
        asked: Asked,
        id: TaskId,
        lease: Option<LeaseId>,
        call: impl Future<Output = Answer<Task>>,
    ) -> Answer<Task> {
        let open = self.journal.open(self.process, asked, Some(id));
        self.journal.with(&open, |call| call.lease = lease);
        let answer = call.await;
        let told = told(&answer, |task| Told::Done(Some(Seen::of(task))));
        self.journal.close(&open, told);
        answer
    }

    /// Submits a request that names its id, so that it is known whatever comes of it.
    pub async fn submit(&self, request: SubmitRequest) -> Answer<Submitted> {
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

    /// Claims tasks.
    pub async fn claim(&self, max: usize, wait_ms: u64) -> Answer<Vec<Task>> {
        let request = ClaimRequest {
            worker: self.worker.clone(),
            queues: "default".parse().into_iter().collect(),
            types: TYPES.iter().filter_map(|name| name.parse().ok()).collect(),
            max,
            wait_ms,
            lease_ms: None,
        };
        self.claim_as(&request).await
    }

    /// Claims tasks, as asked.
    pub async fn claim_as(&self, request: &ClaimRequest) -> Answer<Vec<Task>> {
        let open = self.journal.open(self.process, Asked::Claim, None);
        let answer = self.engine.claim(request).await;
        self.journal.close(&open, told(&answer, |_| Told::Done(None)));
        if let Ok(tasks) = &answer {
            let called = self.journal.called(&open);
            for task in tasks {
                self.journal.handed_out(self.process, called, task);
            }
        }
        answer
    }

    /// Keeps an attempt alive.
    pub async fn renew(&self, task: &Task) -> Answer<Task> {
        let Some(lease) = task.lease_id else {
            return Err(no_lease());
        };
        let renew = self.engine.renew(task.id, lease, None);
        self.call(Asked::Keep, task.id, Some(lease), renew).await
    }

    /// Says how far an attempt is.
    pub async fn progress(&self, task: &Task) -> Answer<Task> {
        let Some(lease) = task.lease_id else {
            return Err(no_lease());
        };
        let report = ProgressReport {
            percent: 50.0,
            message: None,
        };
        let progress = self.engine.progress(task.id, lease, report);
        self.call(Asked::Keep, task.id, Some(lease), progress).await
    }

    /// Ends an attempt with success.
    pub async fn complete(&self, task: &Task, output: Json) -> Answer<Task> {
        let Some(lease) = task.lease_id else {
            return Err(no_lease());
        };
        let complete = self.engine.complete(task.id, lease, Some(output));
        self.call(Asked::Complete, task.id, Some(lease), complete)
            .await
    }

    /// Ends an attempt without success.
    pub async fn fail(&self, task: &Task, kind: FailureKind) -> Answer<Task> {
        let Some(lease) = task.lease_id else {
            return Err(no_lease());
        };
        let failure = Failure {
            kind,
            error: "the handler said no".into(),
        };
        let fail = self.engine.fail(task.id, lease, failure);
        self.call(Asked::Fail, task.id, Some(lease), fail).await
    }

    /// Gives a task back.
    pub async fn release(&self, task: &Task) -> Answer<Task> {
        let Some(lease) = task.lease_id else {
            return Err(no_lease());
        };
        let release = self.engine.release(task.id, lease);
        self.call(Asked::Release, task.id, Some(lease), release)
            .await
    }

    /// Puts a task off.
    pub async fn snooze(&self, task: &Task, delay_ms: u64) -> Answer<Task> {
        let Some(lease) = task.lease_id else {
            return Err(no_lease());
        };
        let snooze = self.engine.snooze(task.id, lease, delay_ms);
        self.call(Asked::Snooze, task.id, Some(lease), snooze).await
    }

    /// Calls a task off.
    pub async fn cancel(&self, id: TaskId) -> Answer<Task> {
        let cancel = self.engine.cancel(id, Some("called off".to_owned()));
        self.call(Asked::Cancel, id, None, cancel).await
    }

    /// Starts a task over.
    pub async fn replay(&self, id: TaskId) -> Answer<Task> {
        let replay = self.engine.replay(id);
        self.call(Asked::Replay, id, None, replay).await
    }

    /// Puts a task away.
    pub async fn archive(&self, id: TaskId) -> Answer<Task> {
        let archive = self.engine.archive(id);
        self.call(Asked::Archive, id, None, archive).await
    }

    /// Undoes that.
    pub async fn unarchive(&self, id: TaskId) -> Answer<Task> {
        let unarchive = self.engine.unarchive(id);
        self.call(Asked::Unarchive, id, None, unarchive).await
    }

    /// Looks at a task.
    pub async fn get(&self, id: TaskId) -> Answer<Task> {
        self.call(Asked::Get, id, None, self.engine.get(id)).await
    }

    /// Removes a task.
    pub async fn purge(&self, id: TaskId) -> Answer<()> {
        let open = self.journal.open(self.process, Asked::Purge, Some(id));
        let answer = self.engine.purge(id).await;
        self.journal.close(&open, told(&answer, |()| Told::Done(None)));
        answer
    }
}

fn no_lease() -> EngineError {
    EngineError::BadRequest("a task was handed out without a lease".to_owned())
}
