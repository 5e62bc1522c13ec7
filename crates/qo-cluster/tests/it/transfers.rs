//! Snapshots on their way to a new node, over a network that the test controls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use qo_cluster::{
    ClusterConfig, ClusterNode, Member, MemoryRows, NodeParts, PendingResponse, Service, Transport,
    TransportError,
};
use qo_engine::Engine;
use qo_store::runtime::TokioRuntime;

use crate::cluster::{eventually, request, secret};
use crate::single_node::{Disk, Files, Pool};

/// The first bytes of messages.
const SNAPSHOT_BEGIN: u8 = 4;
const SNAPSHOT_ROWS: u8 = 5;
const SNAPSHOT_END: u8 = 6;

/// Connects nodes of this process.
#[derive(Default)]
struct Network {
    services: Mutex<BTreeMap<u64, Arc<dyn Service>>>,
    /// How long rows of a snapshot take.
    delay: Mutex<Duration>,
    /// How many snapshots were begun.
    snapshots: AtomicUsize,
    /// The disk that is full when a snapshot has arrived.
    fills_up: Mutex<Option<MemoryRows>>,
}

struct Port(Arc<Network>);

impl Transport for Port {
    fn call(&self, target: &Member, request: Bytes, limit: Duration) -> PendingResponse {
        let network = Arc::clone(&self.0);
        let node = target.node;
        Box::pin(async move {
            match request[0] {
                SNAPSHOT_BEGIN => {
                    network.snapshots.fetch_add(1, Ordering::SeqCst);
                }
                SNAPSHOT_ROWS => {
                    let delay = *network.delay.lock().unwrap();
                    tokio::time::sleep(delay).await;
                }
                SNAPSHOT_END => {
                    if let Some(rows) = network.fills_up.lock().unwrap().take() {
                        rows.set_full(true);
                    }
                }
                _ => {}
            }
            let service = network.services.lock().unwrap().get(&node).cloned();
            let service = service.ok_or(TransportError::TimedOut { node })?;
            let answer = tokio::time::timeout(limit, service.handle(1, request)).await;
            answer.map_err(|_| TransportError::TimedOut { node })
        })
    }
}

impl Network {
    async fn start(self: &Arc<Self>, node: u64, rows: &MemoryRows) -> ClusterNode {
        let listen = "127.0.0.1:0".parse().unwrap();
        let mut config = ClusterConfig::new(node, "test", "", listen, secret());
        if node == 1 {
            config.members = vec![member(1)];
        }
        config.heartbeat = Duration::from_millis(100);
        config.election = (Duration::from_millis(500), Duration::from_secs(1));
        config.snapshot_entries = 20;
        config.kept_entries = 5;
        config.segment_bytes = 16 * 1024;
        let parts = NodeParts {
            files: Arc::new(Files(Arc::new(Disk::default()))),
            rows: Arc::new(rows.clone()),
            pool: Arc::new(Pool),
            transport: Arc::new(Port(Arc::clone(self))),
        };
        let started = ClusterNode::start_with(parts, config, TokioRuntime::shared());
        let started = started.await.unwrap();
        let mut services = self.services.lock().unwrap();
        services.insert(node, started.service());
        drop(services);
        started
    }

    /// A leader whose log does not reach back to its first entry any more.
    async fn leader(self: &Arc<Self>) -> ClusterNode {
        let leader = self.start(1, &MemoryRows::default()).await;
        eventually("the node serves", || leader.is_serving().then_some(())).await;
        for number in 0..80 {
            leader.engine().submit(request(number)).await.unwrap();
        }
        eventually("the log was cut", || {
            (leader.status().log_first > 10).then_some(())
        })
        .await;
        leader
    }
}

fn member(node: u64) -> Member {
    Member::new(node, format!("node{node}:1"), format!("http://node{node}"))
}

/// The log that is written while a snapshot is sent must still be there afterwards. Otherwise another snapshot follows, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_needs_one_snapshot_however_slow_it_is() {
    let network = Arc::new(Network::default());
    let leader = network.leader().await;
    *network.delay.lock().unwrap() = Duration::from_secs(4);
    let is_done = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn({
        let (engine, is_done) = (leader.engine(), Arc::clone(&is_done));
        async move {
            let mut number = 1_000;
            while !is_done.load(Ordering::SeqCst) {
                // While the second voter joins, the leader may lose its role for a moment.
                number += u64::from(engine.submit(request(number)).await.is_ok());
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            number - 1_000
        }
    });
    let new = network.start(2, &MemoryRows::default()).await;
    let adding = tokio::time::timeout(Duration::from_secs(30), leader.add(member(2)));
    let added = adding.await;
    let snapshots = network.snapshots.load(Ordering::SeqCst);
    assert!(added.is_ok(), "{snapshots} snapshots were not enough");
    added.unwrap().unwrap();
    let lag = || {
        let members = leader.status().members;
        members.iter().find(|member| member.node == 2)?.lag
    };
    eventually("the new node is up to date while others write", || {
        lag().filter(|lag| *lag < 20)
    })
    .await;
    assert_eq!(network.snapshots.load(Ordering::SeqCst), 1);
    is_done.store(true, Ordering::SeqCst);
    let written = writing.await.unwrap();
    assert!(written > 100, "only {written} tasks were written meanwhile");
    eventually("the new node has everything", || {
        (new.status().applied == leader.status().applied).then_some(())
    })
    .await;
    // What was kept for the new node is cut again.
    let kept = || leader.status().log_last.unwrap() - leader.status().log_first;
    eventually("the log is cut", || (kept() < 60).then_some(())).await;
    assert_eq!(network.snapshots.load(Ordering::SeqCst), 1);
    leader.shutdown().await;
    new.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_when_a_snapshot_has_arrived_does_not_stop_the_node() {
    let network = Arc::new(Network::default());
    let leader = network.leader().await;
    let rows = MemoryRows::default();
    *network.fills_up.lock().unwrap() = Some(rows.clone());
    let new = network.start(2, &rows).await;
    let adding = tokio::spawn({
        let leader = leader.clone();
        async move { leader.add(member(2)).await }
    });
    eventually("the disk is full", || {
        (new.status().disk_full || new.status().failure.is_some()).then_some(())
    })
    .await;
    assert_eq!(new.status().failure, None);
    rows.set_full(false);
    adding.await.unwrap().unwrap();
    eventually("the new node has everything", || {
        (new.status().applied == leader.status().applied).then_some(())
    })
    .await;
    assert!(!new.status().disk_full);
    assert_eq!(network.snapshots.load(Ordering::SeqCst), 1);
    leader.shutdown().await;
    new.shutdown().await;
}
