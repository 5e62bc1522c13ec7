//! Direct mode: each task is one object, changed by compare-and-swap. There is no server.
//!
//! The task's object is the only source of truth. Everything else in the bucket is an index that can be rebuilt from the tasks.
//! [`change`] orders the steps of every operation so that the state after a crash is always repaired: by the [`lease_reaper`] within
//! the duration of a lease, or by the sweeper within one pass.
//!
//! # Requests
//!
//! | operation | PUT | GET | LIST | DELETE |
//! | --- | --- | --- | --- | --- |
//! | submit | 2: task, ready entry | | | |
//! | claim | 2: lease entry, task | 1: task | 1 per page of up to 1,000 tasks | 1 key, batched |
//! | renew | 1: task; + 1 lease entry when the minute changes | | | |
//! | complete, fail permanently, cancel | 1: task | 0 with the claim's tag | | 1 key, batched |
//! | fail, release, snooze | 2: task, ready entry | 0 with the claim's tag | | 1 key, batched |
//! | promotion of a delayed task that is due | 1: ready entry | | 1 per page | 1 key, batched |
//! | page scan in hybrid or log-scan mode | | 1 per task of the page, claimed or not | 1 per page of 50 tasks | |
//! | signal | at most 1 per process and second | 1 before each PUT, 1 per 1.5 s and idle worker, answered with 304 | | |
//! | roster of workers | 1 per minute and bucket, by the first of several workers | 1 per 10 to 30 s and busy worker, answered with 304 | 1 per minute and bucket | |
//! | claim activity | at most 1 per claiming process and 30 s | 1 per check of an idle lease reaper, answered with 304 | | |
//!
//! The settings of a queue add a GET now and then, and none per task ([`queue_settings`]). A large payload adds one PUT when it is written
//! and one GET when it is read. An idempotency key adds one PUT and one GET. An ordering key adds two PUT and three or four GET
//! ([`ordering`]), and a limit up to two PUT and two GET ([`limits`]).

mod activity;
mod assignment;
mod change;
mod claim;
mod config;
#[cfg(test)]
mod dashboard_vectors;
mod doctor;
mod documents;
mod engine_impl;
mod environment;
mod fairness;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod history;
mod idempotency;
mod index;
mod index_gc;
mod init;
mod lease_reaper;
mod limits;
mod list;
mod list_newest;
pub mod maintenance;
mod names;
mod operation;
mod ordering;
mod page_share;
mod paused_queues;
mod payload;
mod peers;
mod purge;
mod queue_settings;
mod ready_cache;
mod recent_use;
mod record_head;
mod repair;
mod roster;
mod scan;
mod scheduled;
mod signal;
mod signal_record;
mod stats;
mod submit;
mod sweeper;
mod task_counts;
mod unclaimable;
mod uniqueness;
mod webhooks;
mod workers;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qo_core::{LeaseId, Task};
use qo_store::admin::BucketAdmin;
use qo_store::client::{PAGE_LIMIT_MAX, Page, Tag};
use qo_store::runtime::Runtime;
use qo_store::{StoreClient, StoreError};

pub use config::{DirectConfig, IndexMode};
pub use doctor::{DoctorCheck, DoctorOptions, DoctorReport, Health, doctor};
pub use environment::{allows_no_versioning, embeds_monitor};
pub use init::{InitOptions, InitOutcome, InitReport, InitStep, init};
pub use lease_reaper::LeaseReport;
pub use maintenance::{Maintenance, MaintenanceConfig, MaintenanceHandle, WorkerHealth};
pub use ordering::LINE_MAX_TASKS;
pub use sweeper::{SweepNext, SweepReport};

use qo_engine::watch::Watchers;
use qo_engine::worker_records::WorkerRecords;

use self::activity::Activity;
use self::documents::Documents;
use self::fairness::Ranks;
use self::index_gc::IndexGc;
use self::lease_reaper::LeaseReaper;
use self::limits::Limits;
use self::names::Names;
use self::ordering::LineLocks;
use self::paused_queues::PausedQueues;
use self::peers::Peers;
use self::queue_settings::KnownSettings;
use self::ready_cache::ReadyCache;
use self::scan::TaskScans;
use self::scheduled::Scheduled;
use self::signal::Signal;
use self::sweeper::Sweeper;
use self::task_counts::TaskCounts;
use self::unclaimable::UnclaimableTasks;
use self::webhooks::KnownWebhooks;

/// The maximum number of cached claims.
const CLAIM_CACHE_MAX: usize = 10_000;

/// The engine of direct mode. Clones share all state.
#[derive(Clone)]
pub struct DirectEngine {
    shared: Arc<EngineShared>,
}

struct EngineShared {
    client: StoreClient,
    admin: Option<Arc<dyn BucketAdmin>>,
    runtime: Arc<dyn Runtime>,
    config: DirectConfig,
    /// The tasks that this process has claimed, as it last wrote them. The next operation on one needs no read.
    claim_cache: Mutex<BTreeMap<LeaseId, StoredTask>>,
    activity: Activity,
    index_gc: IndexGc,
    ready_cache: ReadyCache,
    scheduled: Scheduled,
    lease_reaper: LeaseReaper,
    unclaimable: UnclaimableTasks,
    limits: Limits,
    line_locks: LineLocks,
    names: Names,
    peers: Peers,
    paused_queues: PausedQueues,
    task_counts: TaskCounts,
    scans: TaskScans,
    signal: Signal,
    sweeper: Sweeper,
    watchers: Watchers,
    /// How often the waits of all claims were ended.
    waits_ended: AtomicU64,
    documents: Documents,
    queue_settings: KnownSettings,
    ranks: Ranks,
    webhooks: KnownWebhooks,
    workers: WorkerRecords,
}

/// A task and the tag of its object.
#[derive(Debug, Clone)]
struct StoredTask {
    task: Task,
    tag: Tag,
}

impl DirectEngine {
    /// Creates an engine on the store of `client`.
    pub fn new(
        client: StoreClient,
        admin: Option<Arc<dyn BucketAdmin>>,
        runtime: Arc<dyn Runtime>,
        config: DirectConfig,
    ) -> Self {
        let index_gc = IndexGc::new(client.clone(), Arc::clone(&runtime), config.index_gc_delay);
        let signal = Signal::new(&client, Arc::clone(&runtime), &config);
        Self {
            shared: Arc::new(EngineShared {
                claim_cache: Mutex::default(),
                activity: Activity::default(),
                ready_cache: ReadyCache::default(),
                scheduled: Scheduled::default(),
                lease_reaper: LeaseReaper::default(),
                unclaimable: UnclaimableTasks::default(),
                limits: Limits::default(),
                line_locks: LineLocks::default(),
                names: Names::default(),
                peers: Peers::default(),
                paused_queues: PausedQueues::default(),
                task_counts: TaskCounts::default(),
                scans: TaskScans::default(),
                sweeper: Sweeper::default(),
                watchers: Watchers::default(),
                waits_ended: AtomicU64::new(0),
                documents: Documents::default(),
                workers: WorkerRecords::default(),
                queue_settings: KnownSettings::default(),
                ranks: Ranks::default(),
                webhooks: KnownWebhooks::default(),
                index_gc,
                signal,
                client,
                admin,
                runtime,
                config,
            }),
        }
    }

    /// The store client.
    pub fn client(&self) -> &StoreClient {
        &self.shared.client
    }

    /// Lists the largest page that a store returns.
    async fn full_page(&self, prefix: &str, after: Option<&str>) -> Result<Page, StoreError> {
        self.client().page(prefix, after, PAGE_LIMIT_MAX).await
    }

    fn runtime(&self) -> &dyn Runtime {
        self.shared.runtime.as_ref()
    }

    fn config(&self) -> &DirectConfig {
        &self.shared.config
    }

    /// Caches a claim as it was last written. A full cache drops claims whose lease has expired; an operation on a claim that is not
    /// cached costs one read.
    fn cache_claim(&self, lease: LeaseId, stored: StoredTask) {
        let mut cache = self.claim_cache();
        if cache.len() >= CLAIM_CACHE_MAX {
            let now = Some(self.client().now());
            cache.retain(|_, stored| stored.task.lease_expires_at > now);
        }
        if cache.len() < CLAIM_CACHE_MAX {
            cache.insert(lease, stored);
        }
    }

    fn claim_cache(&self) -> MutexGuard<'_, BTreeMap<LeaseId, StoredTask>> {
        lock(&self.shared.claim_cache)
    }
}

impl fmt::Debug for DirectEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectEngine")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

/// Locks a mutex and ignores poisoning: the data is never left half-changed, so a panic of another thread does not matter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
