//! The SQLite store on real files, and shared by several processes.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod listing;
mod model;
mod objects;
mod opening;
mod processes;
mod suite;
mod versions;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutResult, UpdateVersion};
use qo_core::Timestamp;
use qo_store::SqliteStore;
use qo_store::runtime::{BoxFuture, Runtime, TokioRuntime};
use tempfile::TempDir;

/// A store in its own temporary directory.
struct Fixture {
    store: SqliteStore,
    directory: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self::in_runtime(TokioRuntime::shared())
    }

    fn in_runtime(runtime: Arc<dyn Runtime>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join("qo.db"), runtime).unwrap();
        Self { store, directory }
    }

    /// A second store on the same file with its own connections.
    fn second(&self) -> SqliteStore {
        SqliteStore::open(&self.directory.path().join("qo.db"), TokioRuntime::shared()).unwrap()
    }
}

/// The production runtime with a clock that the test sets.
#[derive(Debug)]
struct ClockRuntime {
    now_ms: AtomicI64,
    passed_ms: AtomicU64,
    real: Arc<dyn Runtime>,
}

impl ClockRuntime {
    fn at(now_ms: i64) -> Arc<Self> {
        Arc::new(Self {
            now_ms: AtomicI64::new(now_ms),
            passed_ms: AtomicU64::new(0),
            real: TokioRuntime::shared(),
        })
    }

    fn set(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }

    /// Advances both clocks.
    fn pass(&self, ms: u32) {
        self.now_ms.fetch_add(i64::from(ms), Ordering::SeqCst);
        self.passed_ms.fetch_add(u64::from(ms), Ordering::SeqCst);
    }
}

impl Runtime for ClockRuntime {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_ms.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic() + Duration::from_millis(self.passed_ms.load(Ordering::SeqCst))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        self.real.sleep(duration)
    }

    fn spawn(&self, future: BoxFuture<()>) {
        self.real.spawn(future);
    }

    fn random(&self) -> u64 {
        self.real.random()
    }
}

fn update(previous: &PutResult) -> PutMode {
    PutMode::Update(UpdateVersion::from(previous.clone()))
}

/// The key, verbatim.
fn path(key: &str) -> Path {
    Path::parse(key).unwrap()
}

async fn put(store: &dyn ObjectStore, key: &str, body: &str) -> PutResult {
    let body = body.to_owned();
    store.put(&path(key), body.into()).await.unwrap()
}

async fn get(store: &dyn ObjectStore, key: &str) -> Bytes {
    let found = store.get(&path(key)).await.unwrap();
    found.bytes().await.unwrap()
}

async fn is_missing(store: &dyn ObjectStore, key: &str) -> bool {
    matches!(
        store.head(&path(key)).await,
        Err(object_store::Error::NotFound { .. })
    )
}
