//! Ten thousand tenants that are served in turn: what they cost beside one queue without groups.

use std::sync::Arc;
use std::time::Instant;

use object_store::memory::InMemory;
use qo_engine::Engine;

use crate::rig::{BenchRig, request, work};
use qo_fixtures::Report;

const TASKS: usize = 200_000;
const TENANTS: usize = 10_000;
const BATCH: usize = 500;
const WORKERS: usize = 16;

pub(crate) async fn run(report: &mut Report) {
    let plain = rate(None).await;
    let tenants = rate(Some(TENANTS)).await;
    report.figure("tenants", "tasks a second without groups", plain, "");
    report.figure("tenants", "tasks a second of 10,000 tenants", tenants, "");
    report.figure(
        "tenants",
        "the second as a part of the first",
        tenants / plain,
        "at least 0.7",
    );
}

/// Submits all tasks, and then completes them, so that all tenants wait all the time.
async fn rate(tenants: Option<usize>) -> f64 {
    let rig = BenchRig::new(Arc::new(InMemory::new()), None);
    let engine = rig.slate().await;
    let started = Instant::now();
    for batch in 0..TASKS / BATCH {
        let batch = (0..BATCH).map(|number| {
            let mut request = request(64);
            let tenant = |tenants: usize| (batch * BATCH + number) % tenants;
            request.fairness_group =
                tenants.map(|tenants| format!("tenant-{}", tenant(tenants)).parse().unwrap());
            request
        });
        for submitted in engine.submit_many(batch.collect()).await {
            submitted.unwrap();
        }
    }
    work(&engine, WORKERS, TASKS).await;
    let rate = TASKS as f64 / started.elapsed().as_secs_f64();
    engine.close().await;
    rate
}
