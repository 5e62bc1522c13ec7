//! The conformance suite of the engines, run on the remote engine over real servers on loopback ports.
//!
//! The servers run direct mode or a broker. In memory, all engines of a check share one server, as in most deployments. On SQLite each
//! engine has its own server, so that they share only the store.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use qo::{DirectConfig, DirectEngine, Engine};
use qo_broker::BrokerEngine;
use qo_broker::SlateConfig;
use qo_engine::conformance::{Harness, run};
use qo_remote::RemoteConfig;
use qo_remote::RemoteEngine;
use qo_store::client::ClientConfig;
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_store::{OpenOptions, Store, open};

use crate::support::{TestServer, config, engine_on, memory, serve_engine};

const PAYLOAD_MAX_BYTES: u64 = 256 * 1024;

type Opener = Box<dyn Fn() -> Store + Send + Sync>;

struct Remote {
    name: &'static str,
    open: Opener,
    one_server: bool,
    servers: Mutex<Vec<TestServer>>,
    upkeep: Upkeep,
    foreign_tasks: usize,
    keeps_versions: bool,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The engine that runs maintenance.
enum Upkeep {
    Direct(DirectEngine),
    Broker(BrokerEngine),
}

fn objects() -> DirectConfig {
    let mut config = DirectConfig::local();
    config.payload_max_bytes = PAYLOAD_MAX_BYTES;
    config
}

#[async_trait]
impl Harness for Remote {
    fn name(&self) -> String {
        format!("http on {}", self.name)
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        let known = self
            .servers
            .lock()
            .unwrap()
            .first()
            .map(|server| server.url.clone());
        let url = if let Some(url) = known.filter(|_| self.one_server) {
            url
        } else {
            let store = (self.open)();
            let engine: Arc<dyn Engine> = match &self.upkeep {
                Upkeep::Direct(_) => Arc::new(engine_on(&store, objects())),
                Upkeep::Broker(engine) => Arc::new(engine.clone()),
            };
            let server = serve_engine(store, engine, config()).await;
            let url = server.url.clone();
            self.servers.lock().unwrap().push(server);
            url
        };
        let config = RemoteConfig::parse(&url).unwrap();
        Arc::new(RemoteEngine::new(config, TokioRuntime::shared()).unwrap())
    }

    async fn maintain(&self) {
        match &self.upkeep {
            Upkeep::Direct(engine) => {
                engine.check_leases().await.unwrap();
                engine.sweep_step().await.unwrap();
            }
            Upkeep::Broker(engine) => engine.maintain().await.unwrap(),
        }
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        TokioRuntime::shared()
    }

    fn keeps_versions(&self) -> bool {
        self.keeps_versions
    }

    fn has_turns(&self) -> bool {
        matches!(self.upkeep, Upkeep::Broker(_))
    }

    fn payload_max_bytes(&self) -> u64 {
        PAYLOAD_MAX_BYTES
    }

    fn foreign_tasks(&self) -> usize {
        self.foreign_tasks
    }
}

/// A queue in memory behind one server.
fn on_one_server(name: &'static str, upkeep: Upkeep, store: Store) -> Remote {
    Remote {
        name,
        upkeep,
        open: Box::new(move || store.clone()),
        one_server: true,
        servers: Mutex::default(),
        foreign_tasks: 2_000,
        keeps_versions: false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_memory() {
    let store = memory();
    let upkeep = Upkeep::Direct(engine_on(&store, objects()));
    run(&on_one_server("memory", upkeep, store)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("qo.db").display());
    let store = move || open(&url, &OpenOptions::new(TokioRuntime::shared())).unwrap();
    let versioning = qo_store::admin::Versioning::On;
    let admin = store().admin.unwrap();
    admin.set_versioning(versioning).await.unwrap();
    let harness = Remote {
        name: "SQLite with versions",
        upkeep: Upkeep::Direct(engine_on(&store(), objects())),
        open: Box::new(store),
        one_server: false,
        servers: Mutex::default(),
        foreign_tasks: 300,
        keeps_versions: true,
    };
    run(&harness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_a_broker() {
    let store = memory();
    let mut config = SlateConfig::default();
    config.state.payload_max_bytes = PAYLOAD_MAX_BYTES;
    let engine = BrokerEngine::slate(
        Arc::clone(&store.objects),
        Arc::clone(&store.clock),
        TokioRuntime::shared(),
        ClientConfig::default(),
        config,
    )
    .await
    .unwrap();
    let upkeep = Upkeep::Broker(engine);
    run(&on_one_server("slate on memory", upkeep, store)).await;
}
