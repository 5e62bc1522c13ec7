//! A million tasks that wait, and a process that is killed.

use std::sync::Arc;
use std::time::Instant;

use object_store::ObjectStore;
use qo_engine::Engine;
use qo_store::SqliteStore;
use qo_store::world::TokioWorld;

use crate::figures::Report;
use crate::place::{LATENCY, Place, memory_gib, submit, work};

const PENDING: usize = 1_000_000;
const TASKS: usize = 100_000;

pub(crate) async fn run(report: &mut Report) {
    let folder = tempfile::tempdir().unwrap();
    let bottom = || -> Arc<dyn ObjectStore> {
        let path = folder.path().join("qo.db");
        Arc::new(SqliteStore::open(&path, TokioWorld::shared()).unwrap())
    };
    let place = Place::new(bottom(), Some(LATENCY));
    let engine = place.slate().await;
    let rate = async || {
        let started = Instant::now();
        futures_util::future::join(submit(&engine, TASKS, 16), work(&engine, 32, TASKS)).await;
        TASKS as f64 / started.elapsed().as_secs_f64()
    };
    rate().await;
    place.rest().await;
    let empty = rate().await;
    report.figure("deep", "tasks a second on an empty queue", empty, "");
    let started = Instant::now();
    submit(&engine, PENDING, 16).await;
    let submitted = PENDING as f64 / started.elapsed().as_secs_f64();
    report.figure("deep", "submits a second", submitted, "");
    report.figure("deep", "memory in GiB right after", memory_gib(), "");
    let rested = place.rest().await.as_secs_f64();
    report.figure("deep", "seconds until the database rests", rested, "");
    report.figure("deep", "memory in GiB at rest", memory_gib(), "under 2");
    let deep = rate().await;
    report.figure("deep", "tasks a second with a million pending", deep, "");
    report.figure(
        "deep",
        "that, as a part of the empty queue's",
        deep / empty,
        "at least 0.8",
    );
    report.figure("deep", "memory in GiB under load", memory_gib(), "under 2");
    // A second engine on the same store finds what a killed process leaves: nothing was closed.
    let again = Place::new(bottom(), Some(LATENCY));
    let started = Instant::now();
    let successor = again.slate().await;
    report.figure(
        "deep",
        "seconds until a new process has taken over",
        started.elapsed().as_secs_f64(),
        "under 10",
    );
    let stats = successor.stats().await.unwrap();
    // Workers that were stopped at the end of the load have left tasks running.
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
