//! One process: an engine with a runtime and a faulty way to the bucket of its own, and callers that keep a journal.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use qo_core::transition::{Failure, FailureKind, ProgressReport};
use qo_core::{Json, LeaseId, Task, TaskId};
use qo_direct::DirectConfig;
use qo_direct::DirectEngine;
use qo_engine::api::{ClaimRequest, SubmitRequest, Submitted};
use qo_engine::{Engine, EngineError};
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::Runtime;
use qo_store::wrap::{Delay, FaultKind, FaultPlan, FaultRule, FaultStore, LatencyStore};

use super::bucket::{Bucket, Front};
use super::journal::{Asked, HandedOut, Journal};
use super::runtime::VirtualRuntime;

/// How a process differs from others.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) seed: u64,
    /// How far its wall clock is ahead.
    pub(super) skew_ms: i64,
    /// How long its requests take.
    pub(super) delay: Option<Delay>,
}

impl Setting {
    pub(super) fn new(name: impl Into<String>, seed: u64) -> Self {
        Self {
            name: name.into(),
            seed,
            skew_ms: 0,
            delay: None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) engine: DirectEngine,
    pub(super) faults: Arc<FaultStore>,
    pub(super) runtime: Arc<VirtualRuntime>,
    journal: Journal,
}

impl Process {
    pub(super) fn start(bucket: &Arc<Bucket>, journal: &Journal, setting: Setting) -> Self {
        let seed = setting.seed;
        let runtime = VirtualRuntime::shared(bucket.clock(), seed, setting.skew_ms);
        // What is on its way when a process dies arrives nevertheless: the network has a runtime of its own.
        let network = VirtualRuntime::shared(bucket.clock(), seed, 0);
        let clock = Arc::new(StoreClock::new());
        let front = Front::new(Arc::clone(bucket), Arc::clone(&clock), Arc::clone(&runtime));
        let mut store: Arc<dyn ObjectStore> = Arc::new(front);
        if let Some(delay) = setting.delay {
            let network = Arc::clone(&network) as Arc<dyn Runtime>;
            store = Arc::new(LatencyStore::new(store, network, delay, seed));
        }
        // The rule never strikes; it has the store remember what stale lists will need.
        let plan = FaultPlan::none().with(FaultRule::new(FaultKind::StaleList, 0.0));
        let faults = Arc::new(FaultStore::new(store, network, plan, seed));
        let client = StoreClient::new(
            Arc::clone(&faults) as Arc<dyn ObjectStore>,
            clock,
            Arc::clone(&runtime) as Arc<dyn Runtime>,
            ClientConfig {
                // A write that is applied twice is refused the second time.
                trust_first_refusal: false,
                ..ClientConfig::default()
            },
        );
        let engine = DirectEngine::new(
            client,
            None,
            Arc::clone(&runtime) as Arc<dyn Runtime>,
            DirectConfig::default(),
        );
        Self {
            name: setting.name,
            engine,
            faults,
            runtime,
            journal: journal.clone(),
        }
    }

    /// Ends the process: nothing of it goes on, in the foreground or in the background.
    pub(super) fn kill(&self) {
        self.faults.crash();
        self.runtime.kill();
    }

    pub(super) async fn sleep(&self, seconds: u64) {
        self.runtime.sleep(Duration::from_secs(seconds)).await;
    }

    async fn call<T>(
        &self,
        asked: Asked,
        task: TaskId,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        self.journal.call(asked, Some(task), call).await
    }

    /// Submits a request that names its id, so that the checker knows it whatever comes of the submit.
    pub(super) async fn submit(&self, request: SubmitRequest) -> Result<Submitted, EngineError> {
        let id = request.id.expect("a submit in these tests names its id");
        let key = request.idempotency.clone();
        let submitted = self
            .call(Asked::Submit, id, self.engine.submit(request))
            .await?;
        self.journal
            .acknowledged(submitted.task.id, submitted.duplicate);
        if let Some(key) = key {
            self.journal.keyed(key.key, submitted.task.id);
        }
        Ok(submitted)
    }

    pub(super) async fn claim(&self, max: usize, wait_ms: u64) -> Result<Vec<Task>, EngineError> {
        let request = ClaimRequest {
            worker: self.name.parse().unwrap(),
            queues: Vec::new(),
            types: Vec::new(),
            shards: Vec::new(),
            max,
            wait_ms,
            lease_ms: None,
        };
        let claim = self.engine.claim(&request);
        let tasks = self.journal.call(Asked::Claim, None, claim).await?;
        for task in &tasks {
            self.journal.handed_out(HandedOut {
                task: task.id,
                attempt: task.attempt,
                lease: lease_of(task),
            });
        }
        Ok(tasks)
    }

    pub(super) async fn renew(&self, task: &Task) -> Result<Task, EngineError> {
        let renew = self.engine.renew(task.id, lease_of(task), None);
        self.call(Asked::Keep, task.id, renew).await
    }

    pub(super) async fn progress(&self, task: &Task) -> Result<Task, EngineError> {
        let report = ProgressReport {
            percent: 50.0,
            message: None,
        };
        let progress = self.engine.progress(task.id, lease_of(task), report);
        self.call(Asked::Keep, task.id, progress).await
    }

    pub(super) async fn complete(&self, task: &Task, output: Json) -> Result<Task, EngineError> {
        let complete = self.engine.complete(task.id, lease_of(task), Some(output));
        self.call(Asked::Complete, task.id, complete).await
    }

    pub(super) async fn fail(&self, task: &Task, kind: FailureKind) -> Result<Task, EngineError> {
        let failure = Failure {
            kind,
            error: "the handler said no".into(),
        };
        let fail = self.engine.fail(task.id, lease_of(task), failure);
        self.call(Asked::Fail, task.id, fail).await
    }

    pub(super) async fn release(&self, task: &Task) -> Result<Task, EngineError> {
        let release = self.engine.release(task.id, lease_of(task));
        self.call(Asked::Release, task.id, release).await
    }

    pub(super) async fn snooze(&self, task: &Task, delay_ms: u64) -> Result<Task, EngineError> {
        let snooze = self.engine.snooze(task.id, lease_of(task), delay_ms);
        self.call(Asked::Snooze, task.id, snooze).await
    }

    pub(super) async fn cancel(&self, id: TaskId) -> Result<Task, EngineError> {
        let cancel = self.engine.cancel(id, Some("called off".to_owned()));
        self.call(Asked::Cancel, id, cancel).await
    }

    pub(super) async fn replay(&self, id: TaskId) -> Result<Task, EngineError> {
        self.call(Asked::Replay, id, self.engine.replay(id)).await
    }

    pub(super) async fn archive(&self, id: TaskId) -> Result<Task, EngineError> {
        self.call(Asked::Archive, id, self.engine.archive(id)).await
    }

    pub(super) async fn unarchive(&self, id: TaskId) -> Result<Task, EngineError> {
        self.call(Asked::Unarchive, id, self.engine.unarchive(id))
            .await
    }

    pub(super) async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        self.call(Asked::Purge, id, self.engine.purge(id)).await
    }
}

pub(super) fn lease_of(task: &Task) -> LeaseId {
    task.lease_id.expect("a claimed task has a lease")
}
