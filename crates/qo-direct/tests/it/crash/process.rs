//! One process: an engine with a runtime and a faulty connection of its own, whose calls are recorded.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use qo_check::{CallLog, Recorder};
use qo_core::transition::{Failure, FailureKind, ProgressReport};
use qo_core::{Json, LeaseId, Task, TaskId};
use qo_direct::DirectConfig;
use qo_direct::DirectEngine;
use qo_engine::api::{ClaimRequest, SubmitRequest, Submitted};
use qo_engine::{Engine, EngineError};
use qo_fixtures::PausableRuntime;
use qo_store::StoreClient;
use qo_store::admin::BucketAdmin;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::Runtime;
use qo_store::wrap::version_keys::VersionKeys;
use qo_store::wrap::{Delay, FaultKind, FaultPlan, FaultRule, FaultStore, LatencyStore};

use super::bucket::{Bucket, ProcessLayer};

/// How a process differs from others.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) seed: u64,
    /// How far its wall clock is ahead.
    pub(super) skew_ms: i64,
    /// How long its requests take.
    pub(super) delay: Option<Delay>,
    /// Whether its client treats the refusal of a first try as final, as it does by default.
    pub(super) trusts_refusals: bool,
}

impl Setting {
    pub(super) fn new(name: impl Into<String>, seed: u64) -> Self {
        Self {
            name: name.into(),
            seed,
            skew_ms: 0,
            delay: None,
            // The second copy of a write that is applied twice is refused.
            trusts_refusals: false,
        }
    }
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) engine: DirectEngine,
    pub(super) faults: Arc<FaultStore>,
    pub(super) runtime: Arc<PausableRuntime>,
    recorded: Arc<Recorder>,
}

impl Process {
    pub(super) fn start(bucket: &Arc<Bucket>, log: &CallLog, setting: Setting) -> Self {
        let seed = setting.seed;
        let runtime = bucket.runtime(seed, setting.skew_ms);
        // Requests in flight arrive even if their process dies, so the network has a runtime of its own.
        let network = bucket.runtime(seed, 0);
        let clock = Arc::new(StoreClock::new());
        let layer =
            ProcessLayer::store(Arc::clone(bucket), Arc::clone(&clock), Arc::clone(&runtime));
        let mut store: Arc<dyn ObjectStore> = Arc::new(layer);
        if let Some(delay) = setting.delay {
            let network = Arc::clone(&network) as Arc<dyn Runtime>;
            store = Arc::new(LatencyStore::new(store, network, delay, seed));
        }
        // The rule never strikes. It makes the store keep what stale lists need.
        let plan = FaultPlan::none().with(FaultRule::new(FaultKind::StaleList, 0.0));
        let faults = Arc::new(FaultStore::new(store, network, plan, seed));
        let mut client = ClientConfig::default();
        client.trust_first_refusal = setting.trusts_refusals;
        let client = StoreClient::new(
            Arc::clone(&faults) as Arc<dyn ObjectStore>,
            clock,
            Arc::clone(&runtime) as Arc<dyn Runtime>,
            client,
        );
        let admin = (bucket.keeps_versions())
            .then(|| Arc::new(VersionKeys::new(client.clone())) as Arc<dyn BucketAdmin>);
        let engine = DirectEngine::new(
            client,
            admin,
            Arc::clone(&runtime) as Arc<dyn Runtime>,
            DirectConfig::default(),
        );
        let caller = u32::try_from(seed).unwrap();
        let recorded = Recorder::new(caller, Arc::new(engine.clone()), log.clone());
        Self {
            name: setting.name,
            engine,
            faults,
            runtime,
            recorded: Arc::new(recorded),
        }
    }

    /// Kills the process, with everything that it does in the background.
    pub(super) fn kill(&self) {
        self.faults.crash();
        self.runtime.kill();
    }

    pub(super) async fn sleep(&self, seconds: u64) {
        self.runtime.sleep(Duration::from_secs(seconds)).await;
    }

    /// Submits a request that names its id, so that the checks know the task whatever the reply.
    pub(super) async fn submit(&self, request: SubmitRequest) -> Result<Submitted, EngineError> {
        assert!(request.id.is_some(), "a submit in these tests names its id");
        self.recorded.submit(request).await
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
            in_order: false,
        };
        self.recorded.claim(&request).await
    }

    pub(super) async fn renew(&self, task: &Task) -> Result<Task, EngineError> {
        self.recorded.renew(task.id, lease_of(task), None).await
    }

    pub(super) async fn progress(&self, task: &Task) -> Result<Task, EngineError> {
        let report = ProgressReport {
            percent: 50.0,
            message: None,
        };
        let lease = lease_of(task);
        self.recorded.progress(task.id, lease, report).await
    }

    pub(super) async fn complete(&self, task: &Task, output: Json) -> Result<Task, EngineError> {
        let lease = lease_of(task);
        self.recorded.complete(task.id, lease, Some(output)).await
    }

    pub(super) async fn fail(&self, task: &Task, kind: FailureKind) -> Result<Task, EngineError> {
        let failure = Failure {
            kind,
            error: "the handler said no".into(),
        };
        self.recorded.fail(task.id, lease_of(task), failure).await
    }

    pub(super) async fn release(&self, task: &Task) -> Result<Task, EngineError> {
        self.recorded.release(task.id, lease_of(task)).await
    }

    pub(super) async fn snooze(&self, task: &Task, delay_ms: u64) -> Result<Task, EngineError> {
        let lease = lease_of(task);
        self.recorded.snooze(task.id, lease, delay_ms).await
    }

    pub(super) async fn cancel(&self, id: TaskId) -> Result<Task, EngineError> {
        let reason = Some("no longer needed".to_owned());
        self.recorded.cancel(id, reason).await
    }

    pub(super) async fn replay(&self, id: TaskId) -> Result<Task, EngineError> {
        self.recorded.replay(id).await
    }

    pub(super) async fn redrive(&self, id: TaskId, to: &str) -> Result<Task, EngineError> {
        self.recorded.redrive(id, to.parse().unwrap()).await
    }

    pub(super) async fn archive(&self, id: TaskId) -> Result<Task, EngineError> {
        self.recorded.archive(id).await
    }

    pub(super) async fn unarchive(&self, id: TaskId) -> Result<Task, EngineError> {
        self.recorded.unarchive(id).await
    }

    pub(super) async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        self.recorded.purge(id).await
    }
}

pub(super) fn lease_of(task: &Task) -> LeaseId {
    task.lease_id.expect("a claimed task has a lease")
}
