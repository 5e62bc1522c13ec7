//! The conformance suite of engines, for direct mode on every kind of store.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use qo_direct::DirectConfig;
use qo_direct::DirectEngine;
use qo_engine::Engine;
use qo_engine::conformance::{Harness, run};
use qo_fixtures::{TestStore, client_of};
use qo_store::admin::Versioning;
use qo_store::runtime::{Runtime, TokioRuntime};

/// Small, so that the largest payload is cheap.
const PAYLOAD_MAX_BYTES: u64 = 256 * 1024;

/// Direct mode on one store, opened anew for each engine.
#[derive(Debug)]
struct DirectHarness {
    name: &'static str,
    address: TestStore,
    runtime: Arc<dyn Runtime>,
    config: DirectConfig,
    keeps_versions: bool,
    foreign_tasks: usize,
    /// A process that only runs maintenance.
    maintainer: OnceLock<DirectEngine>,
}

impl DirectHarness {
    fn new(name: &'static str, address: TestStore) -> Self {
        let mut config = if address.is_remote() {
            DirectConfig::default()
        } else {
            DirectConfig::local()
        };
        config.payload_max_bytes = PAYLOAD_MAX_BYTES;
        Self {
            name,
            runtime: TokioRuntime::shared(),
            config,
            keeps_versions: false,
            foreign_tasks: if address.is_remote() { 300 } else { 5_000 },
            maintainer: OnceLock::new(),
            address,
        }
    }

    fn open(&self) -> DirectEngine {
        let store = self.address.open();
        let runtime = Arc::clone(&self.runtime);
        DirectEngine::new(client_of(&store), store.admin, runtime, self.config.clone())
    }
}

#[async_trait]
impl Harness for DirectHarness {
    fn name(&self) -> String {
        format!("direct on {}", self.name)
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(self.open())
    }

    async fn maintain(&self) {
        let engine = self.maintainer.get_or_init(|| self.open());
        engine.check_leases().await.unwrap();
        engine.sweep_step().await.unwrap();
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime)
    }

    fn keeps_versions(&self) -> bool {
        self.keeps_versions
    }

    fn payload_max_bytes(&self) -> u64 {
        self.config.payload_max_bytes
    }

    fn foreign_tasks(&self) -> usize {
        self.foreign_tasks
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory() {
    let address = TestStore::memory_named("engine-conformance");
    run(&DirectHarness::new("memory", address)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite() {
    run(&DirectHarness::new("SQLite", TestStore::sqlite())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_with_versions() {
    let address = TestStore::sqlite();
    let admin = address.open().admin.unwrap();
    admin.set_versioning(Versioning::On).await.unwrap();
    let mut harness = DirectHarness::new("SQLite with versions", address);
    harness.keeps_versions = true;
    harness.foreign_tasks = 300;
    run(&harness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seaweedfs() {
    let address = TestStore::seaweedfs("engine").with_prefix("a/prefix");
    run(&DirectHarness::new("SeaweedFS", address)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seaweedfs_with_versions() {
    let address = TestStore::seaweedfs_versioned("engine").with_prefix("a/prefix");
    let mut harness = DirectHarness::new("SeaweedFS with versions", address);
    harness.keeps_versions = true;
    harness.foreign_tasks = 100;
    run(&harness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn azurite() {
    let address = TestStore::azurite().with_prefix("a/prefix");
    run(&DirectHarness::new("Azurite", address)).await;
}
