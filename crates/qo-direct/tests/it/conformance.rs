//! The suite that every engine must pass, run for direct mode on every kind of store.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use qo_direct::DirectConfig;
use qo_direct::DirectEngine;
use qo_engine::Engine;
use qo_engine::conformance::{Harness, run};
use qo_store::admin::Versioning;
use qo_store::client::ClientConfig;
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::{OpenOptions, StoreClient, open};
use qo_testkit::SeaweedFs;

/// Small, so that the largest payload that is taken is still cheap.
const PAYLOAD_MAX_BYTES: u64 = 256 * 1024;

/// Direct mode on one store, opened anew for each engine.
#[derive(Debug)]
struct Objects {
    store: &'static str,
    url: String,
    options: OpenOptions,
    runtime: Arc<dyn Runtime>,
    config: DirectConfig,
    keeps_versions: bool,
    foreign_tasks: usize,
    /// A process that does nothing else.
    maintainer: OnceLock<DirectEngine>,
}

impl Objects {
    fn new(store: &'static str, url: String, mut config: DirectConfig) -> Self {
        config.payload_max_bytes = PAYLOAD_MAX_BYTES;
        let runtime = TokioRuntime::shared();
        Self {
            store,
            url,
            options: OpenOptions::new(Arc::clone(&runtime)),
            runtime,
            config,
            keeps_versions: false,
            foreign_tasks: 5_000,
            maintainer: OnceLock::new(),
        }
    }

    fn on_seaweedfs(store: &'static str, bucket: &str) -> Self {
        let server = SeaweedFs::shared().unwrap();
        let url = format!("s3://{bucket}/a/prefix");
        let mut harness = Self::new(store, url, DirectConfig::default());
        harness.options = harness
            .options
            .with_var("S3_ENDPOINT", server.endpoint())
            .with_var("S3_REGION", "us-east-1")
            .with_var("AWS_ACCESS_KEY_ID", server.access_key())
            .with_var("AWS_SECRET_ACCESS_KEY", server.secret_key());
        harness.foreign_tasks = 300;
        harness
    }

    fn open(&self) -> DirectEngine {
        let store = open(&self.url, &self.options).unwrap();
        let runtime = Arc::clone(&self.runtime);
        let client = StoreClient::new(
            store.objects,
            store.clock,
            Arc::clone(&runtime),
            ClientConfig::default(),
        );
        DirectEngine::new(client, store.admin, runtime, self.config.clone())
    }
}

#[async_trait]
impl Harness for Objects {
    fn name(&self) -> String {
        format!("objects on {}", self.store)
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
    let url = "memory:engine-conformance".to_owned();
    run(&Objects::new("memory", url, DirectConfig::local())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("qo.db").display());
    run(&Objects::new("SQLite", url, DirectConfig::local())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_with_versions() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("qo.db").display());
    let mut harness = Objects::new("SQLite with versions", url, DirectConfig::local());
    harness.keeps_versions = true;
    harness.foreign_tasks = 300;
    let store = open(&harness.url, &harness.options).unwrap();
    let admin = store.admin.unwrap();
    admin.set_versioning(Versioning::On).await.unwrap();
    run(&harness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seaweedfs() {
    let server = SeaweedFs::shared().unwrap();
    let bucket = server.unique_bucket("engine").unwrap();
    run(&Objects::on_seaweedfs("SeaweedFS", &bucket)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seaweedfs_with_versions() {
    let server = SeaweedFs::shared().unwrap();
    let bucket = server.unique_versioned_bucket("engine").unwrap();
    let mut harness = Objects::on_seaweedfs("SeaweedFS with versions", &bucket);
    harness.keeps_versions = true;
    harness.foreign_tasks = 100;
    run(&harness).await;
}
