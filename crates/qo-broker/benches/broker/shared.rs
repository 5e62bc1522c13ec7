//! Two workers and a submitter in three processes that share one JSON object: how equal their shares are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use object_store::ObjectStore;
use object_store::memory::InMemory;
use qo_broker::{BrokerEngine, JsonConfig};
use qo_engine::Engine;
use qo_engine::api::ClaimRequest;
use qo_store::SqliteStore;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::TokioRuntime;
use qo_store::wrap::{Delay, LatencyStore};

use crate::rig::{LATENCY, request};
use qo_fixtures::Report;

const TASKS: usize = 600;
const SLOTS: usize = 10;

pub(crate) async fn run(report: &mut Report) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("qo.db");
    let sqlite = || -> Arc<dyn ObjectStore> {
        Arc::new(SqliteStore::open(&file, TokioRuntime::shared()).unwrap())
    };
    measure(report, "sqlite", sqlite).await;
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let slow = || -> Arc<dyn ObjectStore> {
        let (memory, delay) = (Arc::clone(&memory), Delay::Fixed(LATENCY));
        Arc::new(LatencyStore::new(memory, TokioRuntime::shared(), delay, 1))
    };
    measure(report, "30 ms", slow).await;
}

async fn measure(report: &mut Report, name: &str, store: impl Fn() -> Arc<dyn ObjectStore>) {
    let open = || {
        let (clock, runtime) = (Arc::new(StoreClock::new()), TokioRuntime::shared());
        let (client, config) = (ClientConfig::default(), JsonConfig::local());
        BrokerEngine::json(store(), clock, runtime, client, config)
    };
    let (one, other, third) = (open(), open(), open());
    let depth = (0..TASKS).map(|_| request(64)).collect();
    for submitted in third.submit_many(depth).await {
        submitted.unwrap();
    }
    let left = AtomicUsize::new(TASKS);
    let started = Instant::now();
    let submits = async {
        let mut slowest = Duration::ZERO;
        while left.load(Ordering::Relaxed) > 0 {
            let sent = Instant::now();
            let mut other_type = request(64);
            other_type.task_type = "other".parse().unwrap();
            third.submit(other_type).await.unwrap();
            slowest = slowest.max(sent.elapsed());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        slowest
    };
    let work = futures_util::future::join(work(&one, &left), work(&other, &left));
    let ((one, other), slowest) = futures_util::future::join(work, submits).await;
    let rate = TASKS as f64 / started.elapsed().as_secs_f64();
    report.figure(name, "tasks a second of two workers", rate, "");
    let least = one.min(other) as f64 / TASKS as f64;
    report.figure(name, "share of the slower worker", least, "at least 0.4");
    let slowest_ms = slowest.as_secs_f64() * 1e3;
    report.figure(name, "slowest submit beside them in ms", slowest_ms, "");
}

/// Works until nothing is left, and returns how many tasks it did.
async fn work(engine: &BrokerEngine, left: &AtomicUsize) -> usize {
    let mut claim = ClaimRequest::new("w".parse().unwrap(), vec!["noop".parse().unwrap()]);
    claim.max = SLOTS;
    claim.wait_ms = 200;
    let mut done = 0;
    while left.load(Ordering::Relaxed) > 0 {
        let tasks = engine.claim(&claim).await.unwrap();
        for task in tasks {
            let lease = task.lease_id.unwrap();
            engine.complete(task.id, lease, None).await.unwrap();
            left.fetch_sub(1, Ordering::Relaxed);
            done += 1;
        }
    }
    done
}
