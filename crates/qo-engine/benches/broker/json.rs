//! The JSON object under the load that jqueue was measured with: 100 callers at depth 1,000.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use qo_engine::api::ClaimRequest;
use qo_engine::state::JsonConfig;
use qo_engine::{Engine, StateEngine};
use qo_store::SqliteStore;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::world::TokioWorld;
use qo_store::wrap::CountingStore;

use crate::figures::Report;
use crate::place::request;

const CALLERS: usize = 100;
const DEPTH: usize = 1_000;
const SECONDS: u64 = 10;
const INPUT_BYTES: usize = 64;

pub(crate) async fn run(report: &mut Report) {
    let folder = tempfile::tempdir().unwrap();
    let world = TokioWorld::shared();
    let store = SqliteStore::open(&folder.path().join("qo.db"), Arc::clone(&world)).unwrap();
    let counting = Arc::new(CountingStore::new(Arc::new(store)));
    let engine = StateEngine::json(
        Arc::<CountingStore>::clone(&counting),
        Arc::new(StoreClock::new()),
        world,
        ClientConfig::default(),
        JsonConfig::local(),
    );
    let depth = (0..DEPTH).map(|_| request(INPUT_BYTES)).collect();
    for submitted in engine.submit_many(depth).await {
        submitted.unwrap();
    }
    let ops = Arc::new(AtomicUsize::new(0));
    let before = counting.counts();
    let started = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for number in 0..CALLERS {
        let wish = ClaimRequest::new(
            format!("w-{number}").parse().unwrap(),
            vec!["noop".parse().unwrap()],
        );
        let (engine, ops) = (engine.clone(), Arc::clone(&ops));
        callers.spawn(async move {
            while started.elapsed() < Duration::from_secs(SECONDS) {
                engine.submit(request(INPUT_BYTES)).await.unwrap();
                let tasks = engine.claim(&wish).await.unwrap();
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
    let elapsed = started.elapsed().as_secs_f64();
    let ops = ops.load(Ordering::Relaxed) as f64;
    let writes = counting.counts().since(&before).requests() as f64;
    report.figure(
        "json",
        "operations a second",
        ops / elapsed,
        "at least 13000",
    );
    report.figure("json", "operations a write", ops / writes, "");
    report.figure("json", "writes a second", writes / elapsed, "");
    engine.close().await;
}
