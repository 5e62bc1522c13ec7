//! Direct mode: each task is one object, moved by compare-and-swap; no server.
//!
//! The task's object is the one source of truth. Everything else under the bucket's prefixes is an index that can be rebuilt
//! from it, and [`change`] orders the steps of every operation so that a crash after any of them leaves something that the
//! [`lease_reaper`] finds within a lease's time, or the sweeper within its round.
//!
//! # Requests
//!
//! | operation | PUT | GET | LIST | DELETE |
//! | --- | --- | --- | --- | --- |
//! | submit | 2: task, ready entry | | | |
//! | claim | 2: lease entry, task | 1: task | 1 per page of up to 1,000 tasks | 1 key, batched |
//! | renew | 1: task; + 1 lease entry when the minute changes | | | |
//! | complete, fail for good, cancel | 1: task | 0 with the claim's tag | | 1 key, batched |
//! | fail, release, snooze | 2: task, ready entry | 0 with the claim's tag | | 1 key, batched |
//! | becoming due after a delay | 1: ready entry | | 1 per page | 1 key, batched |
//! | a look in hybrid or log-scan mode | | 1 per task of the page, claimed or not | 1 per page of 50 tasks | |
//! | signal | 1 per submitter and second at the most | 1 per 1.5 s and idle worker, answered 304 | | |
//! | claims are going on | 1 per claiming process and 30 s at the most | 1 per check of an idle monitor, answered 304 | | |
//!
//! A large payload adds one PUT where it is written and one GET where it is read. An idempotency key adds one PUT.

mod activity;
mod change;
mod claim;
mod config;
#[cfg(test)]
mod dashboard_vectors;
mod doctor;
mod engine_impl;
mod environment;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod history;
mod idempotency;
mod index;
mod index_gc;
mod init;
mod lease_reaper;
mod list;
pub mod maintenance;
mod operation;
mod payload;
mod peers;
mod purge;
mod queues;
mod ready_cache;
mod repair;
mod scan;
mod scheduled;
mod signal;
mod stats;
mod submit;
mod sweeper;
mod workers;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qo_core::{LeaseId, Task};
use qo_store::StoreClient;
use qo_store::admin::BucketAdmin;
use qo_store::client::Tag;
use qo_store::runtime::Runtime;

pub use config::{DirectConfig, IndexMode};
pub use doctor::{DoctorCheck, DoctorOptions, DoctorReport, Health, doctor};
pub use environment::{allows_no_versioning, embeds_monitor};
pub use init::{InitOptions, InitOutcome, InitReport, InitStep, init};
pub use lease_reaper::LeaseReport;
pub use maintenance::{Maintenance, MaintenanceConfig, MaintenanceHandle, WorkerHealth};
pub use sweeper::{SweepNext, SweepReport};

use qo_engine::watch::Watchers;

use self::activity::Activity;
use self::index_gc::IndexGc;
use self::lease_reaper::LeaseReaper;
use self::peers::Peers;
use self::queues::Queues;
use self::ready_cache::ReadyCache;
use self::scan::Scan;
use self::scheduled::Scheduled;
use self::signal::Signal;
use self::sweeper::Sweeper;

/// How many claims are remembered.
const HELD_MAX: usize = 10_000;

/// The engine of direct mode. Clones share everything.
#[derive(Clone)]
pub struct DirectEngine {
    shared: Arc<Shared>,
}

struct Shared {
    client: StoreClient,
    admin: Option<Arc<dyn BucketAdmin>>,
    runtime: Arc<dyn Runtime>,
    config: DirectConfig,
    /// The tasks that this process has claimed, as it last wrote them: what is done next with one needs no read.
    held: Mutex<BTreeMap<LeaseId, Stored>>,
    activity: Activity,
    index_gc: IndexGc,
    ready_cache: ReadyCache,
    scheduled: Scheduled,
    lease_reaper: LeaseReaper,
    peers: Peers,
    queues: Queues,
    scan: Scan,
    signal: Signal,
    sweeper: Sweeper,
    watchers: Watchers,
}

/// A task and the state of its object.
#[derive(Debug, Clone)]
struct Stored {
    task: Task,
    tag: Tag,
}

impl DirectEngine {
    /// An engine on the store behind `client`.
    pub fn new(
        client: StoreClient,
        admin: Option<Arc<dyn BucketAdmin>>,
        runtime: Arc<dyn Runtime>,
        config: DirectConfig,
    ) -> Self {
        let index_gc = IndexGc::new(client.clone(), Arc::clone(&runtime), config.index_gc_delay);
        let signal = Signal::new(client.clone(), Arc::clone(&runtime), &config);
        Self {
            shared: Arc::new(Shared {
                held: Mutex::default(),
                activity: Activity::default(),
                ready_cache: ReadyCache::default(),
                scheduled: Scheduled::default(),
                lease_reaper: LeaseReaper::default(),
                peers: Peers::default(),
                queues: Queues::default(),
                scan: Scan::default(),
                sweeper: Sweeper::default(),
                watchers: Watchers::default(),
                index_gc,
                signal,
                client,
                admin,
                runtime,
                config,
            }),
        }
    }

    /// The client of the store.
    pub fn client(&self) -> &StoreClient {
        &self.shared.client
    }

    fn runtime(&self) -> &dyn Runtime {
        self.shared.runtime.as_ref()
    }

    fn config(&self) -> &DirectConfig {
        &self.shared.config
    }

    /// Remembers a claim as it was last written. Claims that nobody ever ends are forgotten when there are many: whoever comes
    /// back to one pays a read.
    fn hold(&self, lease: LeaseId, stored: Stored) {
        let mut held = self.held();
        if held.len() >= HELD_MAX {
            let now = Some(self.client().now());
            held.retain(|_, stored| stored.task.lease_expires_at > now);
        }
        if held.len() < HELD_MAX {
            held.insert(lease, stored);
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Stored>> {
        lock(&self.shared.held)
    }
}

impl fmt::Debug for DirectEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectEngine")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

/// Locks a mutex whose data is never left half-changed, so that another thread's panic does not matter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
