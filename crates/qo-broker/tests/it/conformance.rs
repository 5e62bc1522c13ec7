//! The conformance suite of engines, for broker mode on every kind of store.

use std::sync::Arc;

use async_trait::async_trait;
use qo_broker::BrokerEngine;
use qo_broker::{JsonConfig, SlateConfig};
use qo_engine::Engine;
use qo_engine::conformance::{Harness, run};
use qo_fixtures::TestStore;
use qo_store::client::ClientConfig;
use qo_store::runtime::{Runtime, TokioRuntime};
use tokio::sync::OnceCell;

/// Small, so that the largest payload is cheap.
const PAYLOAD_MAX_BYTES: u64 = 256 * 1024;

/// The journal.
#[derive(Debug)]
enum Kind {
    Json(JsonConfig),
    Slate(SlateConfig),
}

/// Broker mode on one store.
#[derive(Debug)]
struct BrokerHarness {
    name: &'static str,
    address: TestStore,
    runtime: Arc<dyn Runtime>,
    kind: Kind,
    /// The engine that runs maintenance. SlateDB allows only one.
    first: OnceCell<BrokerEngine>,
}

impl BrokerHarness {
    fn new(name: &'static str, address: TestStore, mut kind: Kind) -> Self {
        match &mut kind {
            Kind::Json(config) => config.state.payload_max_bytes = PAYLOAD_MAX_BYTES,
            Kind::Slate(config) => config.state.payload_max_bytes = PAYLOAD_MAX_BYTES,
        }
        Self {
            name,
            address,
            runtime: TokioRuntime::shared(),
            kind,
            first: OnceCell::new(),
        }
    }

    async fn open(&self) -> BrokerEngine {
        let store = self.address.open();
        let runtime = Arc::clone(&self.runtime);
        let client = ClientConfig::default();
        match &self.kind {
            Kind::Json(config) => {
                BrokerEngine::json(store.objects, store.clock, runtime, client, config.clone())
            }
            Kind::Slate(config) => {
                BrokerEngine::slate(store.objects, store.clock, runtime, client, config.clone())
                    .await
                    .unwrap()
            }
        }
    }

    async fn first(&self) -> &BrokerEngine {
        self.first.get_or_init(|| self.open()).await
    }
}

#[async_trait]
impl Harness for BrokerHarness {
    fn name(&self) -> String {
        let kind = match self.kind {
            Kind::Json(_) => "json",
            Kind::Slate(_) => "slate",
        };
        format!("{kind} on {}", self.name)
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        match self.kind {
            Kind::Json(_) => Arc::new(self.open().await),
            Kind::Slate(_) => Arc::new(self.first().await.clone()),
        }
    }

    async fn maintain(&self) {
        self.first().await.maintain().await.unwrap();
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime)
    }

    fn payload_max_bytes(&self) -> u64 {
        PAYLOAD_MAX_BYTES
    }

    fn foreign_tasks(&self) -> usize {
        if self.address.is_remote() {
            1_000
        } else {
            3_000
        }
    }
}

fn seaweedfs() -> TestStore {
    TestStore::seaweedfs("broker").with_prefix("a/prefix")
}

fn azurite() -> TestStore {
    TestStore::azurite().with_prefix("a/prefix")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn json_on_memory() {
    let address = TestStore::memory_named("json-conformance");
    let kind = Kind::Json(JsonConfig::local());
    run(&BrokerHarness::new("memory", address, kind)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn json_on_sqlite() {
    let kind = Kind::Json(JsonConfig::local());
    run(&BrokerHarness::new("SQLite", TestStore::sqlite(), kind)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn json_on_seaweedfs() {
    let kind = Kind::Json(JsonConfig::default());
    run(&BrokerHarness::new("SeaweedFS", seaweedfs(), kind)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slate_on_memory() {
    let address = TestStore::memory_named("slate-conformance");
    let kind = Kind::Slate(SlateConfig::default());
    run(&BrokerHarness::new("memory", address, kind)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slate_on_sqlite() {
    let kind = Kind::Slate(SlateConfig::default());
    run(&BrokerHarness::new("SQLite", TestStore::sqlite(), kind)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slate_on_seaweedfs() {
    let kind = Kind::Slate(SlateConfig::default());
    run(&BrokerHarness::new("SeaweedFS", seaweedfs(), kind)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn json_on_azurite() {
    let kind = Kind::Json(JsonConfig::default());
    run(&BrokerHarness::new("Azurite", azurite(), kind)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slate_on_azurite() {
    let kind = Kind::Slate(SlateConfig::default());
    run(&BrokerHarness::new("Azurite", azurite(), kind)).await;
}
