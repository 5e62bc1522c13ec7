//! A node of a cluster: its groups, on one data directory and one address.
//!
//! ```text
//!                       ┌─► group 0: log, rows, Raft ──┐
//! PartitionedEngine ────┼─► group 1                    ├──► one set of connections to the other nodes
//!                       └─► group 2 ───────────────────┘
//! ```
//!
//! Each group is a Raft group of its own, with its own log, rows, term and snapshots, and holds the tasks whose route leads to it
//! ([`qo_core::Route`]). Tokens, blobs and documents are in group 0. With one group there is nothing but [`ClusterNode`].
//!
//! The leader of group 0 leads all groups, and serves when it has loaded all of them ([`steering`]). So clients need to know one leader, and
//! a claim asks one process.
//!
//! | step of a change of the members | effect of a failure right after it |
//! | --- | --- |
//! | a node is added to each group, at the same time | it receives the logs of some groups; adding it again continues |
//! | a node is promoted in each group, in group 0 last | it votes in some groups, but does not lead group 0; promoting it again continues |
//! | a node is removed from each group, from group 0 first | it cannot lead group 0 any more; removing it again continues |

mod beginning;
mod steering;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use qo_engine::{Engine, EngineError, PartitionedEngine};
use qo_store::StoreClient;
use qo_store::runtime::Runtime;
use tokio::net::TcpListener;

use crate::blocking::{BlockingPool, Threads};
use crate::config::{ClusterConfig, Member};
use crate::error::ClusterError;
use crate::identity::{self, DataLock, group_directory};
use crate::log::DiskFiles;
use crate::network::{GroupService, GroupTransport, Service, TcpServer, TcpTransport, Transport};
use crate::node::{ClusterNode, NodeParts};
use crate::rows::{self, SqliteRows};
use crate::runtime::enter;
use crate::status::{ClusterStatus, GroupStatus, LogLine};

/// How long a node that stops waits until another one leads, and how often it looks.
const HAND_OVER_MAX: Duration = Duration::from_secs(1);
const HAND_OVER_CHECK: Duration = Duration::from_millis(10);
/// The least share of the log's size that a group gets.
const SNAPSHOT_BYTES_MIN: u64 = 16 * 1024 * 1024;

/// A node of a cluster. Clones share everything; the node runs until [`shutdown`](Self::shutdown).
#[derive(Clone)]
pub struct NodeGroups(Arc<Inner>);

struct Inner {
    /// There is at least one.
    groups: Vec<ClusterNode>,
    engine: Arc<dyn Engine>,
    stale: Arc<dyn Engine>,
    service: Arc<dyn Service>,
    runtime: Arc<dyn Runtime>,
    server: Mutex<Option<TcpServer>>,
    lock: Mutex<Option<DataLock>>,
}

impl fmt::Debug for NodeGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeGroups").field(&self.0.groups).finish()
    }
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn put<T>(slot: &Mutex<Option<T>>, value: T) {
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
}

/// The settings of one group.
fn of_group(config: &ClusterConfig, group: u16) -> ClusterConfig {
    let mut own = config.clone();
    own.data = group_directory(&config.data, group, config.groups);
    if config.groups > 1 {
        let share = config.snapshot_bytes / u64::from(config.groups);
        own.snapshot_bytes = share.max(SNAPSHOT_BYTES_MIN).min(config.snapshot_bytes);
        own.segment_bytes = config.segment_bytes.min(own.snapshot_bytes);
        own.collected_bytes = config.collected_bytes / usize::from(config.groups);
    }
    own
}

/// An engine over those of the groups.
fn over(
    engines: Vec<Arc<dyn Engine>>,
    runtime: &Arc<dyn Runtime>,
) -> Result<Arc<dyn Engine>, EngineError> {
    if let [only] = engines.as_slice() {
        return Ok(Arc::clone(only));
    }
    let engine = PartitionedEngine::new(engines, Arc::clone(runtime))?;
    Ok(Arc::new(engine))
}

impl NodeGroups {
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
            let mut disks = Vec::new();
            for group in 0..opening.groups {
                let own = of_group(&opening, group);
                std::fs::create_dir_all(&own.data)?;
                let files = DiskFiles::open(&own.data.join("log"))?;
                let rows = SqliteRows::open(&own.data, own.share(rows::CACHE_BYTES))?;
                disks.push((files, rows));
            }
            Ok::<_, ClusterError>((lock, disks))
        });
        let (lock, disks) = opened
            .await
            .map_err(|error| ClusterError::Stopped(error.to_string()))??;
        let transport: Arc<dyn Transport> =
            Arc::new(TcpTransport::new(&config, Arc::clone(&runtime)));
        let pool: Arc<dyn BlockingPool> = Arc::new(Threads);
        let parts = disks.into_iter().map(|(files, rows)| NodeParts {
            files: Arc::new(files),
            rows: Arc::new(rows),
            pool: Arc::clone(&pool),
            transport: Arc::clone(&transport),
        });
        let node = Self::start_with(parts.collect(), config.clone(), Arc::clone(&runtime)).await?;
        match TcpServer::start(listener, &config, &runtime, node.service()) {
            Ok(server) => {
                put(&node.0.server, server);
                put(&node.0.lock, lock);
                Ok(node)
            }
            Err(error) => {
                node.shutdown().await;
                Err(error.into())
            }
        }
    }

    /// Starts a node on parts, one for each group. The caller lets [`service`](Self::service) respond to the other nodes.
    pub async fn start_with(
        parts: Vec<NodeParts>,
        config: ClusterConfig,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, ClusterError> {
        config.check()?;
        if parts.len() != usize::from(config.groups) {
            return Err(ClusterError::invalid(format!(
                "{} groups cannot run on the parts of {}",
                config.groups,
                parts.len()
            )));
        }
        let mut groups: Vec<ClusterNode> = Vec::new();
        for (parts, group) in parts.into_iter().zip(0..) {
            let parts = NodeParts {
                transport: Arc::new(GroupTransport {
                    transport: parts.transport,
                    group,
                    groups: config.groups,
                }),
                ..parts
            };
            let own = of_group(&config, group);
            let guide = groups.first().map(|first| Arc::clone(&first.shared));
            let started = ClusterNode::start_group(parts, own, Arc::clone(&runtime), guide).await;
            match started {
                Ok(started) => groups.push(started),
                Err(error) => {
                    join_all(groups.iter().map(ClusterNode::shutdown)).await;
                    return Err(error);
                }
            }
        }
        let service = Arc::new(GroupService {
            node: config.node,
            services: groups.iter().map(ClusterNode::service).collect(),
        });
        let engines = groups.iter().map(|group| Arc::new(group.engine()) as _);
        let stale = groups
            .iter()
            .map(|group| Arc::new(group.stale_engine()) as _);
        let node = Self(Arc::new(Inner {
            engine: over(engines.collect(), &runtime)?,
            stale: over(stale.collect(), &runtime)?,
            service,
            groups,
            runtime: Arc::clone(&runtime),
            server: Mutex::new(None),
            lock: Mutex::new(None),
        }));
        for group in &node.0.groups {
            let beginning = beginning::begin(group.clone());
            runtime.spawn(Box::pin(enter(&runtime, beginning)));
        }
        if config.groups > 1 {
            let groups = node.0.groups.clone();
            runtime.spawn(Box::pin(enter(&runtime, steering::steer(groups))));
        }
        Ok(node)
    }

    /// Responds to other nodes.
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::clone(&self.0.service)
    }

    fn first(&self) -> &ClusterNode {
        // A node has at least one group.
        &self.0.groups[0]
    }

    /// The groups, in order.
    pub fn groups(&self) -> &[ClusterNode] {
        &self.0.groups
    }

    /// The queue.
    pub fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.0.engine)
    }

    /// The queue as this node has it, which may be old. Every node has it, also one that is cut off.
    pub fn stale_engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.0.stale)
    }

    /// Ends expired leases without waiting for the next interval.
    pub async fn maintain(&self) -> Result<(), EngineError> {
        let engines = self.0.groups.iter().map(ClusterNode::engine);
        let maintained = engines.map(|engine| async move { engine.maintain().await });
        try_join_all(maintained).await.map(drop)
    }

    /// Objects whose reads are never older than what was acknowledged before. Only the leader reads them.
    pub fn objects(&self) -> StoreClient {
        self.first().objects()
    }

    /// Objects as this node has them. Every node reads them; one that is cut off may read old ones.
    pub fn local_objects(&self) -> StoreClient {
        self.first().local_objects()
    }

    /// The number of this node.
    pub fn id(&self) -> u64 {
        self.first().id()
    }

    /// Where this node listens for the others.
    pub fn address(&self) -> Option<SocketAddr> {
        let server = self.0.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.as_ref().map(TcpServer::address)
    }

    /// Whether this node leads all groups and has loaded them.
    pub fn is_serving(&self) -> bool {
        self.0.groups.iter().all(ClusterNode::is_serving)
    }

    /// A number that changes whenever this node begins to lead a group: the sum of the terms, which only grow.
    pub fn reign(&self) -> u64 {
        self.0.groups.iter().map(ClusterNode::term).sum()
    }

    /// The leader, if there is one.
    pub fn leader(&self) -> Option<Member> {
        self.first().leader()
    }

    /// Hands the lead over to another node. The other groups follow group 0.
    pub async fn transfer(&self, to: u64) -> Result<(), ClusterError> {
        self.first().transfer(to).await
    }

    /// Hands the lead over before a stop, if this node leads, so that clients wait less. Waits a moment at most. Afterwards the node must be
    /// stopped: while it hands over, it accepts nothing.
    pub async fn hand_over(&self) {
        let status = self.first().status();
        let others = status
            .members
            .iter()
            .filter(|member| member.voter && member.node != status.node);
        let Some(next) = others.max_by_key(|member| member.matched) else {
            return;
        };
        let led = self.0.groups.iter().filter(|group| group.is_leader());
        let transfers = led.map(|group| group.transfer(next.node));
        if join_all(transfers).await.iter().any(Result::is_err) {
            return;
        }
        let runtime = &self.0.runtime;
        let began = runtime.monotonic();
        let leads = || self.0.groups.iter().any(ClusterNode::is_leader);
        while leads() && runtime.monotonic().saturating_sub(began) < HAND_OVER_MAX {
            runtime.sleep(HAND_OVER_CHECK).await;
        }
    }

    /// Syncs the rows of this node, so that the log before them can be deleted.
    pub async fn snapshot(&self) -> Result<(), ClusterError> {
        try_join_all(self.0.groups.iter().map(ClusterNode::snapshot))
            .await
            .map(drop)
    }

    /// Entries of the log of one group on this node, from the first one that is kept or `from`, up to `limit`.
    pub async fn log(
        &self,
        group: u16,
        from: Option<u64>,
        limit: usize,
    ) -> Result<Vec<LogLine>, ClusterError> {
        let Some(of_group) = self.0.groups.get(usize::from(group)) else {
            return Err(ClusterError::invalid(format!(
                "there is no group {group}: the groups of this cluster are 0 to {}",
                self.0.groups.len() - 1
            )));
        };
        of_group.log(from, limit).await
    }

    /// Adds a member that receives the logs and does not vote yet. Returns when it has caught up.
    pub async fn add(&self, member: Member) -> Result<(), ClusterError> {
        let groups = self.0.groups.iter();
        let added = groups.map(|group| group.add(member.clone()));
        try_join_all(added).await.map(drop)
    }

    /// Lets a member vote.
    pub async fn promote(&self, node: u64) -> Result<(), ClusterError> {
        // A node that votes in group 0 may lead it, and must then be able to lead the others.
        for group in self.0.groups.iter().rev() {
            group.promote(node).await?;
        }
        Ok(())
    }

    /// Removes a member. It should be stopped afterwards.
    pub async fn remove(&self, node: u64) -> Result<(), ClusterError> {
        let mut found = false;
        for group in &self.0.groups {
            // A remove that failed half-way can be repeated.
            if group.has_member(node) {
                found = true;
                group.remove(node).await?;
            }
        }
        if found {
            return Ok(());
        }
        Err(ClusterError::Membership(format!(
            "node {node} is not a member"
        )))
    }

    /// The state of this node, and of the cluster as it knows it.
    pub fn status(&self) -> ClusterStatus {
        let mut all: Vec<ClusterStatus> = self.0.groups.iter().map(ClusterNode::status).collect();
        let mut status = all[0].clone();
        status.serving = self.is_serving();
        if all.len() == 1 {
            return status;
        }
        status.log_bytes = all.iter().map(|group| group.log_bytes).sum();
        status.disk_full = all.iter().any(|group| group.disk_full);
        status.failure = all.iter_mut().find_map(|group| group.failure.take());
        for member in &mut status.members {
            let lags = all.iter().map(|group| group.lag_of(member.node));
            member.lag = lags.max().flatten().filter(|_| member.lag.is_some());
        }
        let groups = all.into_iter().zip(0..);
        status.groups = groups
            .map(|(of_group, group)| GroupStatus::new(group, of_group))
            .collect();
        status
    }

    /// Stops the node. Other clones of it fail from then on.
    pub async fn shutdown(&self) {
        drop(take(&self.0.server));
        join_all(self.0.groups.iter().map(ClusterNode::shutdown)).await;
        drop(take(&self.0.lock));
    }
}
