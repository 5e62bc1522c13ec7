//! The suite that every engine must pass, run for broker mode on every kind of store.

use std::sync::Arc;

use async_trait::async_trait;
use qo_broker::BrokerEngine;
use qo_broker::{JsonConfig, SlateConfig};
use qo_engine::Engine;
use qo_engine::conformance::{Harness, run};
use qo_store::client::ClientConfig;
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::{OpenOptions, open};
use qo_testkit::SeaweedFs;
use tokio::sync::OnceCell;

/// Small, so that the largest payload that is taken is still cheap.
const PAYLOAD_MAX_BYTES: u64 = 256 * 1024;

/// Which journal.
#[derive(Debug)]
enum Kind {
    Json(JsonConfig),
    Slate(SlateConfig),
}

/// Broker mode on one store.
#[derive(Debug)]
struct Broker {
    store: &'static str,
    url: String,
    options: OpenOptions,
    runtime: Arc<dyn Runtime>,
    kind: Kind,
    foreign_tasks: usize,
    /// The one that does what nobody asks for. Of SlateDB there can be only one.
    first: OnceCell<BrokerEngine>,
}

impl Broker {
    fn new(store: &'static str, url: String, mut kind: Kind) -> Self {
        match &mut kind {
            Kind::Json(config) => config.state.payload_max_bytes = PAYLOAD_MAX_BYTES,
            Kind::Slate(config) => config.state.payload_max_bytes = PAYLOAD_MAX_BYTES,
        }
        let runtime = TokioRuntime::shared();
        Self {
            store,
            url,
            options: OpenOptions::new(Arc::clone(&runtime)),
            runtime,
            kind,
            foreign_tasks: 3_000,
            first: OnceCell::new(),
        }
    }

    fn on_seaweedfs(kind: Kind) -> Self {
        let server = SeaweedFs::shared().unwrap();
        let bucket = server.unique_bucket("broker").unwrap();
        let mut harness = Self::new("SeaweedFS", format!("s3://{bucket}/a/prefix"), kind);
        harness.options = harness
            .options
            .with_var("S3_ENDPOINT", server.endpoint())
            .with_var("S3_REGION", "us-east-1")
            .with_var("AWS_ACCESS_KEY_ID", server.access_key())
            .with_var("AWS_SECRET_ACCESS_KEY", server.secret_key());
        harness.foreign_tasks = 1_000;
        harness
    }

    async fn open(&self) -> BrokerEngine {
        let store = open(&self.url, &self.options).unwrap();
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
impl Harness for Broker {
    fn name(&self) -> String {
        let kind = match self.kind {
            Kind::Json(_) => "json",
            Kind::Slate(_) => "slate",
        };
        format!("{kind} on {}", self.store)
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        match self.kind {
            Kind::Json(_) => Arc::new(self.open().await),
            Kind::Slate(_) => Arc::new(self.first().await.clone()),
        }
    }

    async fn maintain(&self) {
        self.first().await.tend().await.unwrap();
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime)
    }

    fn keeps_versions(&self) -> bool {
        false
    }

    fn payload_max_bytes(&self) -> u64 {
        PAYLOAD_MAX_BYTES
    }

    fn foreign_tasks(&self) -> usize {
        self.foreign_tasks
    }
}

fn sqlite(folder: &tempfile::TempDir) -> String {
    format!("sqlite:{}", folder.path().join("qo.db").display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn json_on_memory() {
    let kind = Kind::Json(JsonConfig::local());
    run(&Broker::new(
        "memory",
        "memory:json-conformance".to_owned(),
        kind,
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn json_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let kind = Kind::Json(JsonConfig::local());
    run(&Broker::new("SQLite", sqlite(&folder), kind)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn json_on_seaweedfs() {
    run(&Broker::on_seaweedfs(Kind::Json(JsonConfig::default()))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slate_on_memory() {
    let kind = Kind::Slate(SlateConfig::default());
    run(&Broker::new(
        "memory",
        "memory:slate-conformance".to_owned(),
        kind,
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slate_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let kind = Kind::Slate(SlateConfig::default());
    run(&Broker::new("SQLite", sqlite(&folder), kind)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slate_on_seaweedfs() {
    run(&Broker::on_seaweedfs(Kind::Slate(SlateConfig::default()))).await;
}
