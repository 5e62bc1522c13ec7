//! The engines under test.
//!
//! To simulate another engine, implement [`Subject`] for it: how a process starts it, how its tasks are read from the store, and which
//! objects may remain in the end. The processes, the faults and the checks are the same.

mod direct;
mod json;
mod slate;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use qo_broker::BrokerEngine;
use qo_check::StoredVersion;
use qo_core::keys::Key;
use qo_core::{Task, TaskId};
use qo_engine::{Engine, EngineError};
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{BoxFuture, Runtime};

use crate::broker::Wire;
use crate::faults::FaultKind;
use crate::plan::BrokerLimits;
use crate::store::Bucket;

pub use self::direct::Direct;
pub use self::json::Json;
pub use self::slate::Slate;

/// The engine of that name.
pub fn from_name(name: &str) -> Option<Arc<dyn Subject>> {
    all().into_iter().find(|subject| subject.name() == name)
}

/// Every engine that can be simulated.
pub fn all() -> Vec<Arc<dyn Subject>> {
    vec![Arc::new(Direct), Arc::new(Json), Arc::new(Slate)]
}

/// What a process has to start an engine with.
#[derive(Debug, Clone)]
pub struct Host {
    /// The way to the store.
    pub objects: Arc<dyn ObjectStore>,
    /// The store's time, as its answers tell it.
    pub clock: Arc<StoreClock>,
    /// Everything else.
    pub runtime: Arc<dyn Runtime>,
    /// How often background work looks at everything.
    pub sweep_interval: Duration,
    /// How requests to the store are made.
    pub client: ClientConfig,
    /// Whether the store keeps versions.
    pub keeps_versions: bool,
    /// The way to the brokers, where the engine has some.
    pub wire: Wire,
    /// How long finished tasks are kept, if that is shorter than the run.
    pub retention: Option<Duration>,
    /// The limits of a broker, if they are not the shipped ones.
    pub limits: Option<BrokerLimits>,
}

/// An engine that runs.
pub struct Running {
    /// What callers talk to.
    pub engine: Arc<dyn Engine>,
    /// Ends once what has run out by now.
    pub expire: Box<dyn Fn() -> BoxFuture<Result<(), EngineError>> + Send + Sync>,
    /// Does once whatever the engine needs done now and then.
    pub tidy: Box<dyn Fn() -> BoxFuture<Result<(), EngineError>> + Send + Sync>,
    /// Starts the background work of a worker. It ends when what comes back is dropped, or with the process.
    pub maintain: Box<dyn Fn() -> Box<dyn Send> + Send + Sync>,
}

/// An engine to be simulated.
pub trait Subject: Debug + Send + Sync + 'static {
    /// Its name in tables.
    fn name(&self) -> &'static str;

    /// Starts it in a process. Where there are brokers, this is the way to them.
    fn start(&self, seat: &Host) -> Running;

    /// Whether fleets of workers are simulated on it.
    fn has_fleets(&self) -> bool {
        false
    }

    /// How many processes open the queue for the others; none, where everybody does.
    fn brokers(&self) -> u64 {
        0
    }

    /// Opens the queue in the process of a broker.
    fn serve(&self, _seat: &Host) -> BoxFuture<Result<BrokerEngine, EngineError>> {
        Box::pin(async { Err(EngineError::Closed) })
    }

    /// After how long a process looks at everything that was left: what was on its way has arrived by then.
    fn tidy_after(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Whether the engine is made for stores and processes that fail in this way.
    fn endures(&self, _kind: FaultKind) -> bool {
        true
    }

    /// Every stored version of every task, oldest first.
    fn records(&self, bucket: &Bucket) -> BTreeMap<TaskId, Vec<StoredVersion>>;

    /// The newest stored version of every existing task that was never damaged.
    fn newest(&self, bucket: &Bucket) -> BTreeMap<TaskId, StoredVersion> {
        let records = self.records(bucket).into_iter();
        records
            .filter(|(_, written)| !written.iter().any(|written| written.damaged))
            .filter_map(|(id, written)| Some((id, written.into_iter().next_back()?)))
            .filter(|(_, written)| written.body.is_some())
            .collect()
    }

    /// Whether it drops finished tasks by itself after a retention time.
    fn drops_finished(&self) -> bool {
        true
    }

    /// Whether it refuses submits while too many wait.
    fn admits_submits(&self) -> bool {
        true
    }

    /// Whether one write may contain several changes of one task.
    fn groups_changes(&self) -> bool {
        false
    }

    /// The key that the engine writes without a limit, if there is one. It does not work on a store that limits the versions of that key.
    fn unlimited_key(&self) -> Option<&'static str> {
        None
    }

    /// Whether an object may be damaged without making the whole queue unusable.
    fn may_be_damaged(&self, key: &str) -> bool;

    /// The objects of the tasks for which others with their ordering key wait, where each task has an object.
    fn line_heads(&self, _bucket: &Bucket) -> Vec<String> {
        Vec::new()
    }

    /// How many turns one group may get while another one waits, beyond one for each process that begins a new round meanwhile; none, if
    /// nothing is promised that a run with faults could show.
    fn turns_max(&self) -> Option<u32> {
        None
    }

    /// The tasks that need a stored object.
    fn tasks_of(&self, key: &str) -> Vec<TaskId>;

    /// The objects that should not exist after all tasks are finished and the cleanup has run.
    fn left_over(&self, bucket: &Bucket, tasks: &BTreeMap<TaskId, Task>) -> Vec<String>;

    /// The budget of a run without faults: writes, reads and lists.
    fn budget(&self, work: &Work) -> (u64, u64, u64);

    /// What the processes of a run without faults did several times although once would have been enough, if that was much.
    fn repeated_work(&self, _bucket: &Bucket) -> Option<String> {
        None
    }
}

/// The work of a run, which decides its budget.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// Changes of tasks.
    pub changes: u64,
    /// Claims among them.
    pub claims: u64,
    /// Calls, with reads.
    pub calls: u64,
    /// The running time of all processes together.
    pub process_seconds: u64,
}

/// The task whose payload is stored under a key.
fn task_of_payload(key: &str) -> Vec<TaskId> {
    match key.parse() {
        Ok(Key::Input { id, .. } | Key::Output { id, .. }) => vec![id],
        _ => Vec::new(),
    }
}

/// Whether a broker may keep an object beside its state. A payload that no task refers to is harmless: a crash between two writes leaves one.
fn is_kept_beside(key: &str) -> bool {
    matches!(
        key.parse(),
        Ok(Key::Worker(_) | Key::Input { .. } | Key::Output { .. })
    )
}
