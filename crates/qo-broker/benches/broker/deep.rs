//! A million pending tasks, and a process that is killed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::ObjectStore;
use qo_broker::BrokerEngine;
use qo_engine::Engine;
use qo_store::SqliteStore;
use qo_store::runtime::TokioRuntime;

use crate::rig::{BenchRig, LATENCY, memory_gib, submit, work};
use crate::touched::TouchedLayer;
use qo_fixtures::Report;

const PENDING: usize = 1_000_000;
const TASKS: usize = 200_000;
/// More than the final size of the store.
const STORE_GIB: usize = 10;
/// How long to wait for the end of the killed process.
const KILL_MAX: Duration = Duration::from_mins(1);

pub(crate) async fn run(report: &mut Report) {
    // First, because the memory of other parts would count.
    memory(report).await;
    rates(report).await;
}

/// The memory of the process, with a store outside of it.
async fn memory(report: &mut Report) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("qo.db");
    let store = SqliteStore::open(&path, TokioRuntime::shared()).unwrap();
    let rig = BenchRig::new(Arc::new(store), Some(LATENCY));
    let engine = rig.slate().await;
    submit(&engine, PENDING, 16).await;
    report.figure(
        "deep",
        "memory in GiB after a million submits",
        memory_gib(),
        "under 2",
    );
    rig.rest().await;
    report.figure("deep", "memory in GiB at rest", memory_gib(), "under 2");
    rate(&engine).await;
    report.figure(
        "deep",
        "memory in GiB after more work",
        memory_gib(),
        "under 2",
    );
    engine.close().await;
}

/// The speed, on a store that does not slow down with its size.
async fn rates(report: &mut Report) {
    let bottom = Arc::new(TouchedLayer::store_with_gib(STORE_GIB));
    // A killed process takes its runtime with it, so that its successor has the machine for itself.
    let killed = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let store = Arc::clone(&bottom);
    let Rates {
        empty,
        submitted,
        rested,
        deep,
    } = killed.spawn(until_killed(store)).await.unwrap();
    tokio::task::spawn_blocking(|| killed.shutdown_timeout(KILL_MAX))
        .await
        .unwrap();
    report.figure("deep", "tasks a second on an empty queue", empty, "");
    report.figure("deep", "submits a second", submitted, "");
    report.figure("deep", "seconds until the database rests", rested, "");
    report.figure("deep", "tasks a second with a million pending", deep, "");
    report.figure(
        "deep",
        "that, as a part of the empty queue's",
        deep / empty,
        "at least 0.8",
    );
    let again = BenchRig::new(bottom, Some(LATENCY));
    let started = Instant::now();
    let successor = again.slate().await;
    report.figure(
        "deep",
        "seconds until a new process has taken over",
        started.elapsed().as_secs_f64(),
        "under 10",
    );
    let requests = again.counting.counts().requests() as f64;
    report.figure("deep", "requests that took", requests, "");
    let stats = successor.stats().await.unwrap();
    // Workers that were stopped at the end of the load have left running tasks.
    let live: u64 = stats
        .queues
        .values()
        .flat_map(|queue| &queue.statuses)
        .filter(|(status, _)| !status.is_terminal())
        .map(|(_, count)| count)
        .sum();
    report.figure("deep", "live tasks that it has loaded", live as f64, "");
    successor.close().await;
}

/// The figures of the first process.
struct Rates {
    empty: f64,
    submitted: f64,
    rested: f64,
    deep: f64,
}

/// Runs the process that is killed at the end. Nothing is closed.
async fn until_killed(store: Arc<dyn ObjectStore>) -> Rates {
    let rig = BenchRig::new(store, Some(LATENCY));
    let engine = rig.slate().await;
    rate(&engine).await;
    rig.rest().await;
    let empty = rate(&engine).await;
    let started = Instant::now();
    submit(&engine, PENDING, 16).await;
    let submitted = PENDING as f64 / started.elapsed().as_secs_f64();
    let rested = rig.rest().await.as_secs_f64();
    let deep = rate(&engine).await;
    Rates {
        empty,
        submitted,
        rested,
        deep,
    }
}

/// Tasks a second, from submit to completion.
async fn rate(engine: &BrokerEngine) -> f64 {
    let started = Instant::now();
    futures_util::future::join(submit(engine, TASKS, 16), work(engine, 32, TASKS)).await;
    TASKS as f64 / started.elapsed().as_secs_f64()
}
