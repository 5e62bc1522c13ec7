//! Clusters for tests. Each node has a tokio runtime of its own, so that it can be killed at any moment.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use qo_cluster::{ClusterConfig, ClusterError, ClusterNode, ClusterSecret, Member, NodeGroups};
use qo_core::Json;
use qo_engine::api::{ClaimRequest, SubmitRequest, Submitted};
use qo_engine::{Engine, EngineError};
use qo_store::runtime::TokioRuntime;
use qo_testkit::ports;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// How long tests wait for what normally takes a second.
const PATIENCE: Duration = Duration::from_mins(1);
const SECRET: &str = "a secret that all nodes share";

pub(crate) fn secret() -> ClusterSecret {
    ClusterSecret::new(SECRET).unwrap()
}

/// Settings for tests.
pub(crate) type Tune = fn(&mut ClusterConfig);

/// A node that can be killed.
struct TestNode {
    runtime: Runtime,
    node: NodeGroups,
}

/// A cluster in a temporary directory.
pub(crate) struct TestCluster {
    directory: TempDir,
    members: Vec<Member>,
    nodes: Vec<Option<TestNode>>,
    tune: Tune,
}

fn new_runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// A free address that no outgoing connection gets, also while its node is down.
fn free_address() -> String {
    let [port] = ports::free().unwrap();
    format!("127.0.0.1:{port}")
}

/// Binds an address that a killed node holds until its last job on disk has ended.
async fn bind(address: SocketAddr) -> TcpListener {
    for _ in 0..1_200 {
        if let Ok(listener) = TcpListener::bind(address).await {
            return listener;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the address {address} stays in use");
}

/// Syncs rows and cuts the log several times in a short test.
pub(crate) fn cut_often(config: &mut ClusterConfig) {
    config.snapshot_entries = 20;
    config.kept_entries = 5;
    config.segment_bytes = 16 * 1024;
}

impl TestCluster {
    pub(crate) async fn start(count: u64, tune: Tune) -> Self {
        let members = (1..=count)
            .map(|node| Member::new(node, free_address(), format!("http://node{node}")))
            .collect();
        let mut cluster = Self {
            directory: tempfile::tempdir().unwrap(),
            members,
            nodes: Vec::new(),
            tune,
        };
        for node in 1..=count {
            cluster.nodes.push(None);
            cluster.restart(node).await.unwrap();
        }
        cluster
    }

    /// Submits the task of this number on the leader.
    pub(crate) async fn submit(&self, number: u64) -> Submitted {
        self.on_leader(|engine| async move { engine.submit(request(number)).await })
            .await
    }

    pub(crate) fn config(&self, node: u64) -> ClusterConfig {
        let member = &self.members[node as usize - 1];
        let listen = member.address.parse().unwrap();
        let mut config = ClusterConfig::new(node, "test", self.data(node), listen, secret());
        // Machines that run tests can be slow.
        config.heartbeat = Duration::from_millis(200);
        config.election = (Duration::from_millis(1_500), Duration::from_secs(3));
        (self.tune)(&mut config);
        config
    }

    pub(crate) fn data(&self, node: u64) -> PathBuf {
        self.directory.path().join(format!("node{node}"))
    }

    /// Starts a node on the data that it has.
    pub(crate) async fn restart(&mut self, node: u64) -> Result<(), ClusterError> {
        let mut config = self.config(node);
        let initial = self.nodes.len() as u64;
        if node <= initial && config.members.is_empty() {
            config.members.clone_from(&self.members);
        }
        self.start_node(node, config).await
    }

    async fn start_node(&mut self, node: u64, config: ClusterConfig) -> Result<(), ClusterError> {
        let runtime = new_runtime();
        let started = runtime
            .spawn(async move {
                let listener = bind(config.listen).await;
                NodeGroups::start_on(listener, config, TokioRuntime::shared()).await
            })
            .await
            .unwrap();
        match started {
            Ok(started) => {
                self.nodes[node as usize - 1] = Some(TestNode {
                    runtime,
                    node: started,
                });
                Ok(())
            }
            Err(error) => {
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// Starts a node that waits until it is added.
    pub(crate) async fn start_new(&mut self) -> Member {
        let node = self.members.len() as u64 + 1;
        let member = Member::new(node, free_address(), format!("http://node{node}"));
        self.members.push(member.clone());
        self.nodes.push(None);
        let config = self.config(node);
        self.start_node(node, config).await.unwrap();
        member
    }

    /// Ends a node as `kill -9` does: nothing of it runs any further.
    pub(crate) fn kill(&mut self, node: u64) {
        if let Some(killed) = self.nodes[node as usize - 1].take() {
            killed.runtime.shutdown_background();
        }
    }

    pub(crate) fn node(&self, node: u64) -> NodeGroups {
        let slot = self.nodes[node as usize - 1].as_ref();
        slot.map(|slot| slot.node.clone()).unwrap()
    }

    /// A running node other than the leader.
    pub(crate) fn follower_of(&self, leader: &NodeGroups) -> NodeGroups {
        let mut running = self.running().into_iter();
        running.find(|node| node.id() != leader.id()).unwrap()
    }

    pub(crate) fn running(&self) -> Vec<NodeGroups> {
        self.nodes
            .iter()
            .flatten()
            .map(|slot| slot.node.clone())
            .collect()
    }

    /// The node that serves.
    pub(crate) async fn leader(&self) -> NodeGroups {
        let nodes = self.running();
        eventually("a node serves", || {
            nodes.iter().find(|node| node.is_serving()).cloned()
        })
        .await
    }

    /// Repeats a call on whichever node serves, as clients do.
    pub(crate) async fn on_leader<T, F>(&self, call: impl Fn(Arc<dyn Engine>) -> F) -> T
    where
        F: Future<Output = Result<T, EngineError>>,
    {
        let mut last = None;
        for _ in 0..600 {
            let engine = self.leader().await.engine();
            match call(engine).await {
                Ok(done) => return done,
                Err(error @ EngineError::Rejected(_)) => panic!("{error}"),
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no call succeeded: {last:?}");
    }

    /// Waits until all running nodes have applied the same entries.
    pub(crate) async fn settled(&self) {
        let nodes = self.running();
        eventually("all nodes have applied the same", || {
            let states: Vec<Vec<_>> = nodes
                .iter()
                .map(|node| {
                    let statuses = node.groups().iter().map(ClusterNode::status);
                    let applied = statuses.map(|status| (status.log_last, status.applied));
                    applied.collect()
                })
                .collect();
            let is_settled = states.iter().all(|state| {
                *state == states[0] && state.iter().all(|(last, applied)| last == applied)
            });
            is_settled.then_some(())
        })
        .await;
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        for node in 1..=self.nodes.len() as u64 {
            self.kill(node);
        }
    }
}

/// Waits until `probe` returns something.
pub(crate) async fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let rounds = PATIENCE.as_millis() / 20;
    for _ in 0..rounds {
        if let Some(found) = probe() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never came about that {what}");
}

pub(crate) fn request(number: u64) -> SubmitRequest {
    let input = Json::parse(format!("{{\"n\":{number}}}")).unwrap();
    let mut request = SubmitRequest::new("work".parse().unwrap(), input);
    request.id = Some(qo_core::TaskId::from_random(u128::from(number) + 1));
    request
}

pub(crate) fn claim(max: usize) -> ClaimRequest {
    let mut claim = ClaimRequest::new("worker".parse().unwrap(), Vec::new());
    claim.max = max;
    claim
}

/// Claims and completes everything, and returns how many tasks that were.
pub(crate) async fn drain(cluster: &TestCluster) -> usize {
    let mut done = 0;
    loop {
        let tasks = cluster
            .on_leader(|engine| async move { engine.claim(&claim(100)).await })
            .await;
        if tasks.is_empty() {
            return done;
        }
        for task in tasks {
            let lease = task.lease_id.unwrap();
            cluster
                .on_leader(|engine| async move { engine.complete(task.id, lease, None).await })
                .await;
            done += 1;
        }
    }
}
