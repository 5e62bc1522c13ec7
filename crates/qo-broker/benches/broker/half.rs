//! Half of the maximum load: the time until a change is durable.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use qo_engine::Engine;
use qo_engine::api::ClaimRequest;

use crate::rig::{BenchRig, LATENCY, all_completed, request};
use crate::touched::TouchedLayer;
use qo_fixtures::Report;

const EVERY: Duration = Duration::from_millis(10);
const SECONDS: u64 = 12;
const WORKERS: usize = 32;

pub(crate) async fn run(report: &mut Report) {
    // The second load is for machines that are too slow for the first. It shows the time of an acknowledgement without a queue.
    at(report, "half", 200).await;
    at(report, "tenth", 40).await;
}

/// Submits this number of tasks every ten milliseconds.
async fn at(report: &mut Report, name: &str, batch_size: usize) {
    let rig = BenchRig::new(Arc::new(TouchedLayer::store_with_gib(3)), Some(LATENCY));
    let engine = rig.slate().await;
    let completions = Arc::new(Mutex::new(Vec::new()));
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..WORKERS {
        let mut claim = ClaimRequest::new(
            format!("w-{number}").parse().unwrap(),
            vec!["noop".parse().unwrap()],
        );
        claim.wait_ms = 10_000;
        claim.max = 500;
        let (engine, completions) = (engine.clone(), Arc::clone(&completions));
        workers.spawn(async move {
            loop {
                let tasks = engine.claim(&claim).await.unwrap();
                let started = Instant::now();
                for completed in engine.act_many(all_completed(&tasks)).await {
                    completed.unwrap();
                }
                let took = vec![started.elapsed(); tasks.len()];
                completions.lock().unwrap().extend(took);
            }
        });
    }
    let mut submits = tokio::task::JoinSet::new();
    let mut tick = tokio::time::interval(EVERY);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(SECONDS) {
        tick.tick().await;
        let engine = engine.clone();
        submits.spawn(async move {
            let batch: Vec<_> = (0..batch_size).map(|_| request(1_024)).collect();
            let sent = Instant::now();
            for submitted in engine.submit_many(batch).await {
                submitted.unwrap();
            }
            sent.elapsed()
        });
    }
    let offered = submits.len() * batch_size;
    let mut took = submits.join_all().await;
    let all_submitted = started.elapsed();
    tokio::time::sleep(Duration::from_millis(500)).await;
    workers.abort_all();
    engine.close().await;
    let rate = offered as f64 / all_submitted.as_secs_f64();
    report.figure(name, "tasks a second that were submitted", rate, "");
    report.figure(
        name,
        "submit acknowledged after ms, median",
        percentile(&mut took, 0.5),
        "",
    );
    report.figure(
        name,
        "submit acknowledged after ms, p99",
        percentile(&mut took, 0.99),
        "under 150",
    );
    let mut completions = std::mem::take(&mut *completions.lock().unwrap());
    report.figure(
        name,
        "tasks completed, as a part of all",
        completions.len() as f64 / offered as f64,
        "at least 0.99",
    );
    report.figure(
        name,
        "complete acknowledged after ms, p99",
        percentile(&mut completions, 0.99),
        "under 150",
    );
}

fn percentile(took: &mut [Duration], part: f64) -> f64 {
    took.sort();
    let index = (took.len() as f64 * part) as usize;
    took.get(index.min(took.len().saturating_sub(1)))
        .map_or(0.0, |took| took.as_secs_f64() * 1_000.0)
}
