//! A node of a cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::errors::{InitializeError, RaftError};
use openraft::{Config, SnapshotPolicy};
use qo_broker::BrokerEngine;
use qo_engine::Engine;
use qo_engine::watch::Watcher;
use qo_store::clock::StoreClock;
use qo_store::runtime::Runtime;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::blocking::{BlockingPool, TokioPool};
use crate::config::{ClusterConfig, Member};
use crate::engine::ClusterEngine;
use crate::error::ClusterError;
use crate::identity::{self, DataLock};
use crate::leader::{self, ClusterObjects, ViewSlot};
use crate::log::{DiskFiles, LogFiles, LogStore};
use crate::machine::{AppliedPoint, StateMachine};
use crate::network::{NetworkFactory, NodeService, Service, TcpServer, TcpTransport, Transport};
use crate::raft_types::TypeConfig;
use crate::rows::{RowStore, SqliteRows};
use crate::runtime::enter;

type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// How long a node that stops waits until another one leads, and how often it looks.
const HAND_OVER_MAX: Duration = Duration::from_secs(1);
const HAND_OVER_CHECK: Duration = Duration::from_millis(10);
/// How often the size of the log is looked at.
const LOG_CHECK_INTERVAL: Duration = Duration::from_secs(2);

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
    pub(crate) rows: Arc<dyn RowStore>,
    pub(crate) pool: Arc<dyn BlockingPool>,
    pub(crate) applied: watch::Receiver<AppliedPoint>,
    /// The cluster's time, for objects.
    pub(crate) objects_clock: Arc<StoreClock>,
    /// The live tasks, if this node answered reads without leading.
    pub(crate) view: ViewSlot,
    serving: Mutex<Option<(BrokerEngine, ClusterObjects)>>,
    watchers: Mutex<Vec<Weak<dyn Watcher>>>,
    stop: watch::Sender<bool>,
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

    /// Resolves when the node is stopped.
    pub(crate) async fn stopped(&self) {
        let mut stop = self.stop.subscribe();
        // `self` owns the sender.
        let _ = stop.wait_for(|stop| *stop).await;
    }
}

/// A node of a cluster. Clones share everything; the node runs until [`shutdown`](Self::shutdown).
#[derive(Clone)]
pub struct ClusterNode {
    pub(crate) shared: Arc<NodeShared>,
    service: Arc<NodeService>,
    server: Arc<Mutex<Option<TcpServer>>>,
    lock: Arc<Mutex<Option<DataLock>>>,
}

impl fmt::Debug for ClusterNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterNode")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

impl ClusterNode {
    /// Starts a node on its data directory and its address. Call it within a tokio runtime.
    pub async fn start(
        config: ClusterConfig,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, ClusterError> {
        let listen = config.listen;
        let listener = TcpListener::bind(listen)
            .await
            .map_err(|source| ClusterError::Listen {
                address: listen.to_string(),
                source,
            })?;
        Self::start_on(listener, config, runtime).await
    }

    /// Starts a node that listens on a socket which is bound already.
    pub async fn start_on(
        listener: TcpListener,
        config: ClusterConfig,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, ClusterError> {
        config.check()?;
        let opening = config.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let lock = identity::take(&opening)?;
            let files = DiskFiles::open(&opening.data.join("log"))?;
            let rows = SqliteRows::open(&opening.data)?;
            Ok::<_, ClusterError>((lock, files, rows))
        });
        let (lock, files, rows) = opened
            .await
            .map_err(|error| ClusterError::Stopped(error.to_string()))??;
        let parts = NodeParts {
            files: Arc::new(files),
            rows: Arc::new(rows),
            pool: Arc::new(TokioPool),
            transport: Arc::new(TcpTransport::new(&config, Arc::clone(&runtime))),
        };
        let node = Self::start_with(parts, config, Arc::clone(&runtime)).await?;
        let service: Arc<dyn Service> = Arc::new(Arc::clone(&node.service));
        let config = &node.shared.config;
        let server = TcpServer::start(listener, config, &runtime, service)?;
        *self::lock(&node.server) = Some(server);
        *self::lock(&node.lock) = Some(lock);
        Ok(node)
    }

    /// Starts a node on parts. The caller lets [`service`](Self::service) respond to the other nodes.
    pub async fn start_with(
        parts: NodeParts,
        config: ClusterConfig,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, ClusterError> {
        config.check()?;
        let starting = Self::open(parts, config, Arc::clone(&runtime));
        enter(&runtime, starting).await
    }

    async fn open(
        parts: NodeParts,
        config: ClusterConfig,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, ClusterError> {
        let log = LogStore::open(parts.files, Arc::clone(&runtime), config.segment_bytes).await?;
        let machine = StateMachine::open(
            Arc::clone(&parts.rows),
            Arc::clone(&parts.pool),
            Arc::clone(&runtime),
        )
        .await?
        .report_to(log.full().clone());
        let applied = machine.applied();
        let network = NetworkFactory {
            transport: parts.transport,
            pool: Arc::clone(&parts.pool),
            runtime: Arc::clone(&runtime),
        };
        let raft_config = raft_config(&config)?;
        let raft = Raft::new(config.node, raft_config, network, log.clone(), machine)
            .await
            .map_err(|error| ClusterError::Stopped(error.to_string()))?;
        let service = NodeService::new(
            raft.clone(),
            Arc::clone(&parts.rows),
            Arc::clone(&parts.pool),
            Arc::clone(&runtime),
        );
        let shared = Arc::new(NodeShared {
            config,
            runtime: Arc::clone(&runtime),
            raft,
            log,
            rows: parts.rows,
            pool: parts.pool,
            applied,
            objects_clock: Arc::new(StoreClock::new()),
            view: ViewSlot::default(),
            serving: Mutex::new(None),
            watchers: Mutex::default(),
            stop: watch::Sender::new(false),
        });
        let node = Self {
            shared: Arc::clone(&shared),
            service,
            server: Arc::default(),
            lock: Arc::default(),
        };
        node.initialize().await?;
        runtime.spawn(Box::pin(enter(&runtime, leader::lead(Arc::clone(&shared)))));
        runtime.spawn(Box::pin(enter(&runtime, bound_log(shared))));
        Ok(node)
    }

    /// Begins a new cluster, if the settings name its members and the data directory is empty. All of them do this, with the same
    /// members.
    async fn initialize(&self) -> Result<(), ClusterError> {
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

    /// Where this node listens for the others.
    pub fn address(&self) -> Option<SocketAddr> {
        lock(&self.server).as_ref().map(TcpServer::address)
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

    /// Hands the lead over before a stop, if this node leads, so that clients wait less. Waits a moment at most. Afterwards the node must be
    /// stopped: while it hands over, it accepts nothing.
    pub async fn hand_over(&self) {
        let status = self.status();
        let others = status
            .members
            .iter()
            .filter(|member| member.voter && member.node != status.node);
        let Some(next) = others.max_by_key(|member| member.matched) else {
            return;
        };
        if status.state != "leader" || self.transfer(next.node).await.is_err() {
            return;
        }
        let began = self.shared.runtime.monotonic();
        let leads = || self.status().state == "leader";
        while leads() && self.shared.runtime.monotonic().saturating_sub(began) < HAND_OVER_MAX {
            self.shared.runtime.sleep(HAND_OVER_CHECK).await;
        }
    }

    /// Syncs the rows of this node, so that the log before them can be deleted.
    pub async fn snapshot(&self) -> Result<(), ClusterError> {
        let trigger = self.shared.raft.trigger();
        let triggered = enter(&self.shared.runtime, trigger.snapshot()).await;
        triggered.map_err(|error| ClusterError::Stopped(error.to_string()))
    }

    /// Stops the node. Other clones of it fail from then on.
    pub async fn shutdown(&self) {
        self.shared.stop.send_replace(true);
        self.shared.withdraw();
        drop(lock(&self.server).take());
        let stopping = enter(&self.shared.runtime, self.shared.raft.shutdown());
        if let Err(error) = stopping.await {
            tracing::warn!(%error, "the node did not stop cleanly");
        }
        drop(lock(&self.lock).take());
    }
}

fn raft_config(config: &ClusterConfig) -> Result<Arc<Config>, ClusterError> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let raft = Config {
        cluster_name: config.cluster.clone(),
        heartbeat_interval: millis(config.heartbeat),
        election_timeout_min: millis(config.election.0),
        election_timeout_max: millis(config.election.1),
        // A whole snapshot, whose parts have limits of their own.
        install_snapshot_timeout: millis(Duration::from_hours(1)),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_entries),
        max_in_snapshot_log_to_keep: config.kept_entries,
        replication_lag_threshold: config.kept_entries.max(1_000),
        purge_batch_size: (config.kept_entries / 4).max(1),
        enable_pre_vote: Some(true),
        // Other nodes may have received entries that this one lost in a crash. If it led on in the same term, it would give their log ids
        // to other entries, and nobody would notice.
        enable_leader_restore: Some(false),
        ..Config::default()
    };
    let raft = raft.validate();
    raft.map(Arc::new)
        .map_err(|error| ClusterError::invalid(error.to_string()))
}

/// Lets the log be cut when it is large, even if it has few entries.
async fn bound_log(node: Arc<NodeShared>) {
    loop {
        tokio::select! {
            biased;
            () = node.stopped() => return,
            () = node.runtime.sleep(LOG_CHECK_INTERVAL) => {}
        }
        if node.log.stats().bytes > node.config.snapshot_bytes
            && node.raft.trigger().snapshot().await.is_err()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;
    use qo_store::runtime::{BoxFuture, TokioRuntime};

    use super::*;
    use crate::config::ClusterSecret;
    use crate::network::TransportError;
    use crate::rows::MemoryRows;

    /// Nobody responds.
    struct NoTransport;

    impl Transport for NoTransport {
        fn call(
            &self,
            target: &Member,
            _request: Bytes,
            _limit: Duration,
        ) -> BoxFuture<Result<Bytes, TransportError>> {
            let node = target.node;
            Box::pin(async move { Err(TransportError::TimedOut { node }) })
        }
    }

    /// Starts the only node of a cluster, and returns it and its term once it serves.
    async fn serve(directory: &Path, rows: &MemoryRows) -> (ClusterNode, u64) {
        let secret = ClusterSecret::new("a secret of this test").unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let mut config = ClusterConfig::new(1, "test", directory, listen, secret);
        config.members = vec![Member::new(1, "node1:1", "http://node1")];
        config.heartbeat = Duration::from_millis(20);
        config.election = (Duration::from_millis(100), Duration::from_millis(200));
        let parts = NodeParts {
            files: Arc::new(DiskFiles::open(&directory.join("log")).unwrap()),
            rows: Arc::new(rows.clone()),
            pool: Arc::new(TokioPool),
            transport: Arc::new(NoTransport),
        };
        let runtime = TokioRuntime::shared();
        let node = ClusterNode::start_with(parts, config, Arc::clone(&runtime))
            .await
            .unwrap();
        while !node.is_serving() {
            runtime.sleep(Duration::from_millis(5)).await;
        }
        let term = node.status().term;
        (node, term)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_leader_that_restarts_leads_in_a_new_term() {
        let directory = tempfile::tempdir().unwrap();
        let rows = MemoryRows::default();
        let (node, first) = serve(directory.path(), &rows).await;
        node.shutdown().await;
        let (node, second) = serve(directory.path(), &rows).await;
        node.shutdown().await;
        assert!(second > first, "term {second} after term {first}");
    }
}
