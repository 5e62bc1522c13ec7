//! The conformance suite of engines, through three processes.

use std::sync::Arc;

use async_trait::async_trait;
use qo::Engine;
use qo_engine::conformance::{Harness, run};
use qo_store::runtime::{Runtime, TokioRuntime};

use super::nodes::Cluster;

struct Processes(Cluster);

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("three processes")
    }
}

#[async_trait]
impl Harness for Processes {
    fn name(&self) -> String {
        "cluster of three processes".to_owned()
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(self.0.queue().await.engine())
    }

    /// The leader does it by itself.
    async fn maintain(&self) {}

    fn runtime(&self) -> Arc<dyn Runtime> {
        TokioRuntime::shared()
    }

    fn has_queue_settings(&self) -> bool {
        self.0.groups() == 1
    }

    fn payload_max_bytes(&self) -> u64 {
        262_144
    }

    fn foreign_tasks(&self) -> usize {
        1_000
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_conform() {
    run(&Processes(Cluster::start())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_with_four_groups_conform() {
    run(&Processes(Cluster::start_with_groups(4))).await;
}
