//! The conformance suite of engines, on three nodes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use qo_cluster::{ClusterConfig, NodeGroups};
use qo_engine::Engine;
use qo_engine::conformance::{Harness, run};
use qo_store::runtime::{Runtime, TokioRuntime};

use crate::cluster::TestCluster;

/// Low, so that the checks are fast. Payloads of this size are still several entries of the log.
const PAYLOAD_MAX_BYTES: u64 = 3 * 1024 * 1024;

struct ClusterHarness {
    leader: NodeGroups,
}

fn tune(config: &mut ClusterConfig) {
    config.broker.payload_max_bytes = PAYLOAD_MAX_BYTES;
    config.broker.lease_margin_ms = 100;
    // The suite talks to one node. Nothing may take the lead from it on a slow machine.
    config.heartbeat = Duration::from_secs(1);
    config.election = (Duration::from_secs(8), Duration::from_secs(16));
    config.takeover_grace = Duration::from_millis(100);
}

impl fmt::Debug for ClusterHarness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterHarness")
    }
}

#[async_trait]
impl Harness for ClusterHarness {
    fn name(&self) -> String {
        format!(
            "cluster on three nodes, {} groups",
            self.leader.groups().len()
        )
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        self.leader.engine()
    }

    async fn maintain(&self) {
        self.leader.maintain().await.unwrap();
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        TokioRuntime::shared()
    }

    fn has_queue_settings(&self) -> bool {
        self.leader.groups().len() == 1
    }

    fn payload_max_bytes(&self) -> u64 {
        PAYLOAD_MAX_BYTES
    }

    fn foreign_tasks(&self) -> usize {
        2_000
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_on_three_nodes() {
    let cluster = TestCluster::start(3, tune).await;
    let leader = cluster.leader().await;
    run(&ClusterHarness { leader }).await;
    cluster.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_on_three_nodes_with_four_groups() {
    let cluster = TestCluster::start(3, |config| {
        tune(config);
        config.groups = 4;
    })
    .await;
    let leader = cluster.leader().await;
    run(&ClusterHarness { leader }).await;
    cluster.settled().await;
}
