//! Thousands of queues and types: what they cost beside one.

use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use object_store::memory::InMemory;
use qo_engine::Engine;
use qo_engine::api::ClaimRequest;

use crate::rig::{BenchRig, all_completed, request};
use qo_fixtures::Report;

const TASKS: usize = 60_000;
const NAMES: usize = 5_000;
const BATCH: usize = 100;
const WORKERS: usize = 16;

pub(crate) async fn run(report: &mut Report) {
    let one = rate(1).await;
    let many = rate(NAMES).await;
    report.figure("names", "tasks a second in one queue", one, "");
    report.figure("names", "tasks a second in 5,000 queues", many, "");
    report.figure(
        "names",
        "the second as a part of the first",
        many / one,
        "at least 0.5",
    );
}

/// Submits and completes small batches, with so many queues and as many types. A task stays in each, so that none of them is empty.
async fn rate(names: usize) -> f64 {
    let rig = BenchRig::new(Arc::new(InMemory::new()), None);
    let engine = rig.slate().await;
    let named = |number: usize| {
        let mut request = request(64);
        request.queue = format!("queue-{}", number % names).parse().unwrap();
        request.task_type = format!("type-{}", number % names).parse().unwrap();
        request
    };
    let kept = (0..names).map(|number| {
        let mut request = named(number);
        request.available = qo_engine::api::When::InMillis(3_600_000);
        request
    });
    for submitted in engine.submit_many(kept.collect()).await {
        submitted.unwrap();
    }
    let started = Instant::now();
    futures_util::stream::iter(0..TASKS / BATCH)
        .for_each_concurrent(WORKERS, |round| {
            let (engine, named) = (&engine, &named);
            async move {
                let batch = (0..BATCH).map(|number| named(round * BATCH + number));
                for submitted in engine.submit_many(batch.collect()).await {
                    submitted.unwrap();
                }
                let mut claim = ClaimRequest::new("w".parse().unwrap(), Vec::new());
                claim.queues = Vec::new();
                claim.max = BATCH;
                let tasks = engine.claim(&claim).await.unwrap();
                for completed in engine.act_many(all_completed(&tasks)).await {
                    completed.unwrap();
                }
            }
        })
        .await;
    let rate = TASKS as f64 / started.elapsed().as_secs_f64();
    engine.close().await;
    rate
}
