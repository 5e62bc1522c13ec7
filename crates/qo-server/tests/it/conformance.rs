//! The suite that every engine must pass, run for the remote engine over real servers on loopback ports.
//!
//! Two servers share the store, as two processes would, and the engines of the checks are spread over both.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use qo::{Engine, ObjectsConfig, ObjectsEngine};
use qo_engine::RemoteEngine;
use qo_engine::conformance::{Harness, run};
use qo_engine::remote::RemoteConfig;
use qo_store::world::{TokioWorld, World};
use qo_store::{OpenOptions, Store, open};

use crate::support::{Running, config, engine_on, memory, serve_engine};

const PAYLOAD_MAX_BYTES: u64 = 256 * 1024;

struct Remote {
    store: &'static str,
    servers: Vec<Running>,
    next: AtomicUsize,
    maintainer: ObjectsEngine,
    foreign_tasks: usize,
    keeps_versions: bool,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.store)
    }
}

impl Remote {
    async fn new(name: &'static str, store: impl Fn() -> Store) -> Self {
        let objects = || ObjectsConfig {
            payload_max_bytes: PAYLOAD_MAX_BYTES,
            ..ObjectsConfig::local()
        };
        let mut servers = Vec::new();
        for _ in 0..2 {
            let store = store();
            let engine = engine_on(&store, objects());
            servers.push(serve_engine(store, engine, config()).await);
        }
        Self {
            store: name,
            servers,
            next: AtomicUsize::new(0),
            maintainer: engine_on(&store(), objects()),
            foreign_tasks: 2_000,
            keeps_versions: false,
        }
    }
}

#[async_trait]
impl Harness for Remote {
    fn name(&self) -> String {
        format!("http on {}", self.store)
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        let server = &self.servers[self.next.fetch_add(1, Ordering::Relaxed) % 2];
        let config = RemoteConfig::parse(&server.url).unwrap();
        Arc::new(RemoteEngine::new(config, TokioWorld::shared()).unwrap())
    }

    async fn maintain(&self) {
        self.maintainer.check_leases().await.unwrap();
        self.maintainer.sweep_step().await.unwrap();
    }

    fn world(&self) -> Arc<dyn World> {
        TokioWorld::shared()
    }

    fn keeps_versions(&self) -> bool {
        self.keeps_versions
    }

    fn payload_max_bytes(&self) -> u64 {
        PAYLOAD_MAX_BYTES
    }

    fn foreign_tasks(&self) -> usize {
        self.foreign_tasks
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_memory() {
    let shared = memory();
    run(&Remote::new("memory", || shared.clone()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("qo.db").display());
    let store = || open(&url, &OpenOptions::new(TokioWorld::shared())).unwrap();
    let versioning = qo_store::admin::Versioning::On;
    let admin = store().admin.unwrap();
    admin.set_versioning(versioning).await.unwrap();
    let mut harness = Remote::new("SQLite with versions", store).await;
    harness.keeps_versions = true;
    harness.foreign_tasks = 300;
    run(&harness).await;
}
