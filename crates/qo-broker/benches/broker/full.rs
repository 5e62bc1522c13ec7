//! The maximum throughput.

use std::sync::Arc;
use std::time::Instant;

use qo_engine::Engine;
use qo_store::wrap::{Operation, Prices};

use crate::rig::{BenchRig, LATENCY, submit, work};
use crate::touched::TouchedLayer;
use qo_fixtures::Report;

const TASKS: usize = 400_000;
const SUBMITTERS: usize = 16;
const WORKERS: usize = 32;

pub(crate) async fn run(report: &mut Report) {
    let rig = BenchRig::new(Arc::new(TouchedLayer::store_with_gib(4)), Some(LATENCY));
    let engine = rig.slate().await;
    // A first round lets caches fill and memory grow.
    futures_util::future::join(submit(&engine, 20_000, 4), work(&engine, 8, 20_000)).await;
    let before = rig.counting.counts();
    let started = Instant::now();
    futures_util::future::join(
        submit(&engine, TASKS, SUBMITTERS),
        work(&engine, WORKERS, TASKS),
    )
    .await;
    let rate = TASKS as f64 / started.elapsed().as_secs_f64();
    // Closing writes what is only in memory. Later compaction is not included.
    engine.close().await;
    let counts = rig.counting.counts().since(&before);
    let of = |operations: &[Operation]| {
        operations
            .iter()
            .map(|operation| counts.total(*operation).requests as f64)
            .sum::<f64>()
            / TASKS as f64
    };
    let puts = of(&[
        Operation::Put,
        Operation::Create,
        Operation::Swap,
        Operation::MultipartStart,
        Operation::MultipartPart,
        Operation::MultipartComplete,
    ]);
    report.figure(
        "full",
        "tasks a second, submit to completed",
        rate,
        "at least 40000",
    );
    report.figure("full", "PUT a task", puts, "at most 0.02");
    report.figure(
        "full",
        "GET a task",
        of(&[Operation::Get, Operation::Head]),
        "",
    );
    let dollars = counts.dollars(&Prices::default()) / TASKS as f64 * 1e6;
    report.figure("full", "dollars a million tasks", dollars, "under 0.15");
}
