//! The JSON object under the same load as jqueue in the same run: 100 callers at depth 1,000, and then deeper.
//!
//! Each caller submits, claims and completes repeatedly. jqueue does the same through its `BrokerQueue` on its own file store. Other work
//! on the machine slows both down; the CPU time shows the cost of each.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use qo_broker::BrokerEngine;
use qo_broker::JsonConfig;
use qo_engine::Engine;
use qo_engine::api::ClaimRequest;
use qo_store::SqliteStore;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::TokioRuntime;
use qo_store::wrap::CountingStore;

use crate::rig::{cpu_seconds, request};
use qo_fixtures::Report;

/// What the callers do, here and in jqueue.
struct Load {
    callers: usize,
    /// How many tasks wait.
    depth: usize,
    seconds: u64,
    input_bytes: usize,
}

const LOAD: Load = Load {
    callers: 100,
    depth: 1_000,
    seconds: 10,
    input_bytes: 64,
};
/// The approximate size of a task in the object, with such an input.
const TASK_BYTES: usize = 650;

/// The figures of a load.
struct Run {
    operations: f64,
    seconds: f64,
    cpu_seconds: f64,
    writes: f64,
    object_bytes: f64,
}

pub(crate) async fn run(report: &mut Report) {
    let ours = load(LOAD.depth, u64::MAX).await;
    let theirs = jqueue();
    for (name, run) in [("json", &ours), ("jqueue", &theirs)] {
        let rate = run.operations / run.seconds;
        let budget = if name == "json" { "at least 13000" } else { "" };
        report.figure(name, "operations a second", rate, budget);
        let each_us = run.cpu_seconds / run.operations * 1e6;
        report.figure(name, "CPU microseconds an operation", each_us, "");
        report.figure(name, "operations a write", run.operations / run.writes, "");
        report.figure(name, "KiB of the object", run.object_bytes / 1024.0, "");
    }
    let rates = (ours.operations / ours.seconds) / (theirs.operations / theirs.seconds);
    report.figure("json", "times the rate of jqueue", rates, "at least 10");
    let costs = (theirs.cpu_seconds / theirs.operations) / (ours.cpu_seconds / ours.operations);
    report.figure("json", "times less CPU than jqueue", costs, "");
}

/// The same with larger objects, to choose the maximum size.
pub(crate) async fn sizes(report: &mut Report) {
    for mib in [1, 4, 16] {
        let depth = mib * 1024 * 1024 / TASK_BYTES;
        let run = load(depth, 1 << 30).await;
        let name = format!("{mib} MiB");
        report.figure(&name, "KiB of the object", run.object_bytes / 1024.0, "");
        let rate = run.operations / run.seconds;
        report.figure(&name, "operations a second", rate, "");
        let write_ms = run.seconds / run.writes * 1e3;
        report.figure(&name, "ms a write", write_ms, "");
        let each_us = run.cpu_seconds / run.operations * 1e6;
        report.figure(&name, "CPU microseconds an operation", each_us, "");
    }
}

async fn load(depth: usize, object_max_bytes: u64) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let runtime = TokioRuntime::shared();
    let store = SqliteStore::open(&folder.path().join("qo.db"), Arc::clone(&runtime)).unwrap();
    let counting = Arc::new(CountingStore::new(Arc::new(store)));
    let mut config = JsonConfig::local();
    config.object_max_bytes = object_max_bytes;
    let engine = BrokerEngine::json(
        Arc::<CountingStore>::clone(&counting),
        Arc::new(StoreClock::new()),
        runtime,
        ClientConfig::default(),
        config,
    );
    let depth = (0..depth).map(|_| request(LOAD.input_bytes)).collect();
    for submitted in engine.submit_many(depth).await {
        submitted.unwrap();
    }
    let ops = Arc::new(AtomicUsize::new(0));
    let before = counting.counts();
    let cpu = cpu_seconds();
    let started = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for number in 0..LOAD.callers {
        let claim = ClaimRequest::new(
            format!("w-{number}").parse().unwrap(),
            vec!["noop".parse().unwrap()],
        );
        let (engine, ops) = (engine.clone(), Arc::clone(&ops));
        callers.spawn(async move {
            while started.elapsed() < Duration::from_secs(LOAD.seconds) {
                engine.submit(request(LOAD.input_bytes)).await.unwrap();
                let tasks = engine.claim(&claim).await.unwrap();
                ops.fetch_add(2, Ordering::Relaxed);
                for task in tasks {
                    let lease = task.lease_id.unwrap();
                    engine.complete(task.id, lease, None).await.unwrap();
                    ops.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    callers.join_all().await;
    let seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = cpu_seconds() - cpu;
    let writes = counting.counts().since(&before).requests() as f64;
    engine.close().await;
    let object = counting.head(&Path::from("queue.json")).await.unwrap();
    Run {
        operations: ops.load(Ordering::Relaxed) as f64,
        seconds,
        cpu_seconds,
        writes,
        object_bytes: object.size as f64,
    }
}

/// The same load on jqueue, in a separate process.
fn jqueue() -> Run {
    let folder = tempfile::tempdir().unwrap();
    let python = qo_testkit::jqueue_python().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/broker/jqueue_peer.py");
    let output = std::process::Command::new(python)
        .arg(script)
        .arg(folder.path().join("queue.json"))
        .args(
            [
                LOAD.callers,
                LOAD.depth,
                LOAD.seconds as usize,
                LOAD.input_bytes,
            ]
            .map(|number| number.to_string()),
        )
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "jqueue ended with {}",
        output.status
    );
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |name: &str| said[name].as_f64().unwrap();
    Run {
        operations: number("operations"),
        seconds: number("seconds"),
        cpu_seconds: number("cpu_seconds"),
        writes: number("writes"),
        object_bytes: number("object_bytes"),
    }
}
