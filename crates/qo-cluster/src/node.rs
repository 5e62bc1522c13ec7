//! One group of a node: a Raft log and the state machine behind it. A cluster with one group needs no more; [`crate::groups`] runs several.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::errors::{InitializeError, RaftError};
use openraft::{Config, SnapshotPolicy};
use qo_broker::BrokerEngine;
#[cfg(any(test, feature = "test-util"))]
use qo_broker::rows::Row;
use qo_engine::Engine;
use qo_engine::watch::Watcher;
use qo_store::clock::StoreClock;
use qo_store::runtime::Runtime;
use tokio::sync::watch;

use crate::blocking::{self, BlockingPool};
use crate::config::{ClusterConfig, Member};
use crate::engine::ClusterEngine;
use crate::error::ClusterError;
use crate::leader::{self, ClusterObjects, ViewSlot};
use crate::log::{self, LogFiles, LogStore};
use crate::log_bound::{Transfers, bound_log};
use crate::machine::{AppliedPoint, StateMachine};
use crate::network::{NetworkFactory, NodeService, Service, Transport};
use crate::raft_types::TypeConfig;
use crate::rows::{CollectedRows, RowStore};
use crate::runtime::enter;

type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// What a node runs on. A simulator replaces all of it.
pub struct NodeParts {
    /// The files of the log.
    pub files: Arc<dyn LogFiles>,
    /// The rows.
    pub rows: Arc<dyn RowStore>,
    /// Runs what blocks.
    pub pool: Arc<dyn BlockingPool>,
    /// Reaches the other nodes.
    pub transport: Arc<dyn Transport>,
}

/// What the parts of a node share.
pub(crate) struct NodeShared {
    pub(crate) config: ClusterConfig,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) raft: Raft,
    pub(crate) log: LogStore,
    pub(crate) transfers: Transfers,
    pub(crate) rows: Arc<dyn RowStore>,
    collected: CollectedRows,
    pub(crate) pool: Arc<dyn BlockingPool>,
    pub(crate) applied: watch::Receiver<AppliedPoint>,
    /// The cluster's time, for objects.
    pub(crate) objects_clock: Arc<StoreClock>,
    /// The live tasks, if this node answered reads without leading.
    pub(crate) view: ViewSlot,
    serving: Mutex<Option<(BrokerEngine, ClusterObjects)>>,
    watchers: Mutex<Vec<Weak<dyn Watcher>>>,
    stop: watch::Sender<bool>,
    /// Group 0 of this node, if this is another group. Its leader leads this group, too.
    pub(crate) guide: Option<Arc<NodeShared>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NodeShared {
    /// The engine, while this node serves.
    pub(crate) fn serving(&self) -> Option<BrokerEngine> {
        let serving = lock(&self.serving);
        serving.as_ref().map(|(engine, _)| engine.clone())
    }

    /// The objects, while this node serves.
    pub(crate) fn serving_objects(&self) -> Option<ClusterObjects> {
        let serving = lock(&self.serving);
        serving.as_ref().map(|(_, objects)| objects.clone())
    }

    /// Offers an engine and its objects to callers.
    pub(crate) fn publish(&self, engine: &BrokerEngine, objects: &ClusterObjects) {
        let mut watchers = lock(&self.watchers);
        watchers.retain(|watcher| watcher.strong_count() > 0);
        for watcher in watchers.iter() {
            engine.watch(Weak::clone(watcher));
        }
        *lock(&self.serving) = Some((engine.clone(), objects.clone()));
    }

    /// Offers no engine any more.
    pub(crate) fn withdraw(&self) {
        *lock(&self.serving) = None;
    }

    pub(crate) fn watch(&self, watcher: Weak<dyn Watcher>) {
        let mut watchers = lock(&self.watchers);
        if let Some(engine) = self.serving() {
            engine.watch(Weak::clone(&watcher));
        }
        watchers.push(watcher);
    }

    /// Whether the node is stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Resolves when the node is stopped.
    pub(crate) async fn stopped(&self) {
        let mut stop = self.stop.subscribe();
        // `self` owns the sender.
        let _ = stop.wait_for(|stop| *stop).await;
    }
}

/// One group of a node. Clones share everything; it runs until [`shutdown`](Self::shutdown).
#[derive(Clone)]
pub struct ClusterNode {
    pub(crate) shared: Arc<NodeShared>,
    service: Arc<NodeService>,
}

impl fmt::Debug for ClusterNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterNode")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

impl ClusterNode {
    /// Starts a node on parts. The caller lets [`service`](Self::service) respond to the other nodes.
    pub async fn start_with(
        parts: NodeParts,
        config: ClusterConfig,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, ClusterError> {
        let node = Self::start_group(parts, config, runtime, None).await?;
        enter(&node.shared.runtime, node.initialize()).await?;
        Ok(node)
    }

    /// Starts a group on parts, without beginning a new cluster. Without a guide it is group 0.
    pub(crate) async fn start_group(
        parts: NodeParts,
        config: ClusterConfig,
        runtime: Arc<dyn Runtime>,
        guide: Option<Arc<NodeShared>>,
    ) -> Result<Self, ClusterError> {
        config.check()?;
        let starting = Self::open(parts, config, Arc::clone(&runtime), guide);
        enter(&runtime, starting).await
    }

    async fn open(
        parts: NodeParts,
        config: ClusterConfig,
        runtime: Arc<dyn Runtime>,
        guide: Option<Arc<NodeShared>>,
    ) -> Result<Self, ClusterError> {
        let log = LogStore::open(
            parts.files,
            Arc::clone(&runtime),
            config.segment_bytes,
            config.share(log::CACHE_BYTES),
        )
        .await?;
        let collected = CollectedRows::new(parts.rows, config.collected_bytes);
        let rows: Arc<dyn RowStore> = Arc::new(collected.clone());
        let machine = StateMachine::open(
            collected.clone(),
            Arc::clone(&parts.pool),
            Arc::clone(&runtime),
        )
        .await?
        .report_to(log.full().clone());
        let applied = machine.applied();
        let transfers = Transfers::new(Arc::clone(&runtime));
        let network = NetworkFactory {
            transfers: transfers.clone(),
            transport: parts.transport,
            pool: Arc::clone(&parts.pool),
            runtime: Arc::clone(&runtime),
        };
        let raft_config = raft_config(&config, guide.is_some())?;
        let raft = Raft::new(config.node, raft_config, network, log.clone(), machine)
            .await
            .map_err(|error| ClusterError::Stopped(error.to_string()))?;
        let service = NodeService::new(
            raft.clone(),
            Arc::clone(&rows),
            Arc::clone(&parts.pool),
            Arc::clone(&runtime),
        );
        let shared = Arc::new(NodeShared {
            config,
            runtime: Arc::clone(&runtime),
            raft,
            log,
            transfers,
            rows,
            collected,
            pool: parts.pool,
            applied,
            objects_clock: Arc::new(StoreClock::new()),
            view: ViewSlot::default(),
            serving: Mutex::new(None),
            watchers: Mutex::default(),
            stop: watch::Sender::new(false),
            guide,
        });
        let node = Self {
            shared: Arc::clone(&shared),
            service,
        };
        runtime.spawn(Box::pin(enter(&runtime, leader::lead(Arc::clone(&shared)))));
        runtime.spawn(Box::pin(enter(&runtime, bound_log(shared))));
        Ok(node)
    }

    /// Begins a new cluster, if the settings name its members and the data directory is empty. Several of them may do this, with the same
    /// members.
    pub(crate) async fn initialize(&self) -> Result<(), ClusterError> {
        let members: BTreeMap<u64, Member> = self
            .shared
            .config
            .members
            .iter()
            .map(|member| (member.node, member.clone()))
            .collect();
        if members.is_empty() {
            return Ok(());
        }
        match self.shared.raft.initialize(members).await {
            // The cluster exists already.
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(error) => Err(ClusterError::Stopped(error.to_string())),
        }
    }

    /// The queue.
    pub fn engine(&self) -> ClusterEngine {
        ClusterEngine(Arc::clone(&self.shared))
    }

    /// Responds to other nodes.
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::new(Arc::clone(&self.service))
    }

    /// The number of this node.
    pub fn id(&self) -> u64 {
        self.shared.config.node
    }

    /// Whether this node leads and has loaded the queue.
    pub fn is_serving(&self) -> bool {
        self.shared.serving().is_some()
    }

    /// The leader, if there is one.
    pub fn leader(&self) -> Option<Member> {
        let metrics = self.shared.raft.metrics();
        let metrics = metrics.borrow_watched();
        let leader = metrics.current_leader?;
        metrics.membership_config.get_node(&leader).cloned()
    }

    /// Hands the lead over to another node.
    pub async fn transfer(&self, to: u64) -> Result<(), ClusterError> {
        let trigger = self.shared.raft.trigger();
        let transferred = enter(&self.shared.runtime, trigger.transfer_leader(to)).await;
        transferred.map_err(|error| ClusterError::Stopped(error.to_string()))
    }

    /// Syncs the rows of this node, so that the log before them can be deleted.
    pub async fn snapshot(&self) -> Result<(), ClusterError> {
        let trigger = self.shared.raft.trigger();
        let triggered = enter(&self.shared.runtime, trigger.snapshot()).await;
        triggered.map_err(|error| ClusterError::Stopped(error.to_string()))
    }

    /// The rows that say something about the queue, as this node reads them. Everything that is collected is written and synced then, which
    /// must not change them.
    #[cfg(any(test, feature = "test-util"))]
    pub fn synced_rows(&self) -> std::io::Result<Vec<Row>> {
        use std::ops::Bound::Unbounded;
        let rows = &self.shared.rows;
        let read = || {
            let mut all = rows.page(Unbounded, Unbounded, usize::MAX)?;
            all.retain(|row| row.key.first() != Some(&0));
            Ok::<_, std::io::Error>(all)
        };
        let before = read()?;
        rows.sync()?;
        let after = read()?;
        if before != after {
            return Err(std::io::Error::other("rows changed when they were written"));
        }
        Ok(after)
    }

    /// Stops the node. Other clones of it fail from then on.
    pub async fn shutdown(&self) {
        self.shared.stop.send_replace(true);
        self.shared.withdraw();
        let stopping = enter(&self.shared.runtime, self.shared.raft.shutdown());
        if let Err(error) = stopping.await {
            tracing::warn!(%error, "the node did not stop cleanly");
        }
        // What is not written is in the log.
        let collected = self.shared.collected.clone();
        if let Err(error) = blocking::run(&self.shared.pool, move || collected.close()).await {
            tracing::warn!(%error, "collected rows were not written");
        }
    }
}

fn raft_config(config: &ClusterConfig, is_guided: bool) -> Result<Arc<Config>, ClusterError> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let raft = Config {
        cluster_name: config.cluster.clone(),
        heartbeat_interval: millis(config.heartbeat),
        election_timeout_min: millis(config.election.0),
        election_timeout_max: millis(config.election.1),
        // A whole snapshot, whose parts have limits of their own.
        install_snapshot_timeout: millis(Duration::from_hours(1)),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_entries),
        // Never deletes entries by itself ([`crate::log_bound`]).
        max_in_snapshot_log_to_keep: u64::MAX,
        replication_lag_threshold: config.kept_entries.max(1_000),
        enable_pre_vote: Some(true),
        // The leader of group 0 starts the elections of the others ([`crate::groups`]).
        enable_elect: !is_guided,
        // Other nodes may have received entries that this one lost in a crash. If it led on in the same term, it would give their log ids
        // to other entries, and nobody would notice.
        enable_leader_restore: Some(false),
        ..Config::default()
    };
    let raft = raft.validate();
    raft.map(Arc::new)
        .map_err(|error| ClusterError::invalid(error.to_string()))
}
