//! Twice the load that a broker bears, for minutes: what it still completes, and whether live workers keep their leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qo_broker::BrokerEngine;
use qo_engine::api::ClaimRequest;
use qo_engine::{Engine, EngineError};
use tokio::task::JoinSet;

use crate::rig::{BenchRig, LATENCY, all_completed, request};
use crate::touched::TouchedLayer;
use qo_fixtures::Report;

const PEAK_SECONDS: u64 = 20;
const OVERLOAD_SECONDS: u64 = 120;
const INPUT_BYTES: usize = 256;
const BATCH: usize = 100;
/// Submitters at the peak, each of which waits for its response.
const SUBMITTERS: usize = 64;
const WORKERS: usize = 32;
const LONG_TASKS: LongTasks = LongTasks {
    workers: 100,
    lease: Duration::from_secs(6),
    renews_every: Duration::from_secs(2),
    renewals: 10,
};

/// Workers with one long task each, which must keep their leases.
struct LongTasks {
    workers: usize,
    lease: Duration,
    renews_every: Duration,
    renewals: usize,
}

#[derive(Default)]
struct Counted {
    completed: AtomicU64,
    accepted: AtomicU64,
    rejected: AtomicU64,
    renewed: AtomicU64,
    lost: AtomicU64,
    slowest_renewal_ms: AtomicU64,
    is_over: AtomicBool,
}

pub(crate) async fn run(report: &mut Report) {
    let rig = BenchRig::new(Arc::new(TouchedLayer::store_with_gib(4)), Some(LATENCY));
    let engine = rig.slate().await;
    let counted = Arc::new(Counted::default());
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        workers.spawn(work(engine.clone(), Arc::clone(&counted), number));
    }
    let mut submitters = JoinSet::new();
    for _ in 0..SUBMITTERS {
        let (engine, counted) = (engine.clone(), Arc::clone(&counted));
        submitters.spawn(async move {
            loop {
                offer(&engine, &counted).await;
            }
        });
    }
    // A first while lets caches fill and memory grow.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let peak = rate_of(&counted, PEAK_SECONDS).await;
    submitters.shutdown().await;

    for number in 0..LONG_TASKS.workers {
        workers.spawn(hold(engine.clone(), Arc::clone(&counted), number));
    }
    let (accepted, rejected) = (
        counted.accepted.load(Ordering::Relaxed),
        counted.rejected.load(Ordering::Relaxed),
    );
    let offered = tokio::spawn(flood(engine.clone(), Arc::clone(&counted), 2.0 * peak));
    let goodput = rate_of(&counted, OVERLOAD_SECONDS).await;
    counted.is_over.store(true, Ordering::Relaxed);
    offered.await.unwrap();
    let accepted = counted.accepted.load(Ordering::Relaxed) - accepted;
    let rejected = counted.rejected.load(Ordering::Relaxed) - rejected;
    workers.shutdown().await;
    engine.close().await;

    report.figure("overload", "tasks a second at the peak", peak, "");
    report.figure(
        "overload",
        "tasks a second offered at twice the peak",
        (accepted + rejected) as f64 / OVERLOAD_SECONDS as f64,
        "",
    );
    report.figure(
        "overload",
        "submits rejected, as a part of all",
        rejected as f64 / (accepted + rejected) as f64,
        "",
    );
    report.figure(
        "overload",
        "tasks completed, as a part of the peak",
        goodput / peak,
        "at least 0.8",
    );
    let renewed = counted.renewed.load(Ordering::Relaxed) as f64;
    report.figure("overload", "renewals", renewed, "at least 1");
    let slowest_ms = counted.slowest_renewal_ms.load(Ordering::Relaxed) as f64;
    report.figure("overload", "slowest renewal in ms", slowest_ms, "");
    let lost = counted.lost.load(Ordering::Relaxed) as f64;
    report.figure("overload", "leases lost by live workers", lost, "under 1");
}

async fn rate_of(counted: &Counted, seconds: u64) -> f64 {
    let (before, started) = (counted.completed.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let completed = counted.completed.load(Ordering::Relaxed) - before;
    completed as f64 / started.elapsed().as_secs_f64()
}

/// Submits a batch.
async fn offer(engine: &BrokerEngine, counted: &Counted) {
    let batch = (0..BATCH).map(|_| request(INPUT_BYTES)).collect();
    for submitted in engine.submit_many(batch).await {
        let count = match submitted {
            Ok(_) => &counted.accepted,
            Err(EngineError::Overloaded { .. }) => &counted.rejected,
            Err(error) => panic!("{error}"),
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Submits at a fixed rate, whatever the responses.
async fn flood(engine: BrokerEngine, counted: Arc<Counted>, rate: f64) {
    let started = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    let mut offers = JoinSet::new();
    let mut sent = 0.0;
    while !counted.is_over.load(Ordering::Relaxed) {
        tick.tick().await;
        while sent < started.elapsed().as_secs_f64() * rate {
            sent += BATCH as f64;
            let (engine, counted) = (engine.clone(), Arc::clone(&counted));
            offers.spawn(async move { offer(&engine, &counted).await });
        }
        while offers.try_join_next().is_some() {}
    }
    offers.join_all().await;
}

/// Claims and completes in batches.
async fn work(engine: BrokerEngine, counted: Arc<Counted>, number: usize) {
    let mut claim = claim_of(&format!("w-{number}"));
    claim.max = BATCH;
    loop {
        let tasks = engine.claim(&claim).await.unwrap();
        for completed in engine.act_many(all_completed(&tasks)).await {
            match completed {
                Ok(_) => counted.completed.fetch_add(1, Ordering::Relaxed),
                Err(error) if error.is_lease_lost() => counted.lost.fetch_add(1, Ordering::Relaxed),
                Err(error) => panic!("{error}"),
            };
        }
    }
}

/// Works on one long task after the other, and renews its lease.
async fn hold(engine: BrokerEngine, counted: Arc<Counted>, number: usize) {
    let mut claim = claim_of(&format!("long-{number}"));
    claim.lease_ms = Some(LONG_TASKS.lease.as_millis() as u64);
    loop {
        let Some(task) = engine.claim(&claim).await.unwrap().pop() else {
            continue;
        };
        let lease = task.lease_id.unwrap();
        for _ in 0..LONG_TASKS.renewals {
            tokio::time::sleep(LONG_TASKS.renews_every).await;
            let sent = Instant::now();
            let renewed = engine.renew(task.id, lease, claim.lease_ms).await;
            let took_ms = sent.elapsed().as_millis() as u64;
            counted
                .slowest_renewal_ms
                .fetch_max(took_ms, Ordering::Relaxed);
            match renewed {
                Ok(_) => counted.renewed.fetch_add(1, Ordering::Relaxed),
                Err(_) => counted.lost.fetch_add(1, Ordering::Relaxed),
            };
        }
        if engine.complete(task.id, lease, None).await.is_err() {
            counted.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn claim_of(worker: &str) -> ClaimRequest {
    let mut claim = ClaimRequest::new(worker.parse().unwrap(), vec!["noop".parse().unwrap()]);
    claim.wait_ms = 1_000;
    claim
}
