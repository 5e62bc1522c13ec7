//! An idle worker, and how soon it notices a task.

use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::ObjectStore;
use object_store::memory::InMemory;
use qo_direct::{DirectConfig, Maintenance, MaintenanceConfig};
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, WorkerInfo};
use qo_store::runtime::TokioRuntime;
use qo_store::wrap::{CountingStore, Delay, LatencyStore, Prices};

use crate::load::{engine, request};
use qo_fixtures::Report;

const WATCHED: Duration = Duration::from_mins(5);
const MONTH_SECONDS: f64 = 30.0 * 24.0 * 3600.0;
const SUBMITS: usize = 21;

pub(crate) async fn run(report: &mut Report) {
    let runtime = TokioRuntime::shared();
    let slowed = LatencyStore::new(
        Arc::new(InMemory::new()),
        Arc::clone(&runtime),
        Delay::Fixed(Duration::from_millis(30)),
        1,
    );
    let counting = Arc::new(CountingStore::new(Arc::new(slowed)));
    let objects: Arc<dyn ObjectStore> = Arc::<CountingStore>::clone(&counting);
    let worker = engine(Arc::clone(&objects), &runtime, DirectConfig::default());
    let submitter = engine(objects, &runtime, DirectConfig::default());

    let name: qo_core::WorkerId = "w-0".parse().unwrap();
    let mut info = WorkerInfo::new(name.clone(), worker.now());
    worker.heartbeat(&info).await.unwrap();
    let mut claim = ClaimRequest::new(name, vec!["noop".parse().unwrap()]);
    claim.wait_ms = 5_000;
    // The maintenance runs beside the worker, as by default. Its first complete pass does not count.
    let maintenance = Maintenance::spawn(worker.clone(), MaintenanceConfig::default());
    worker.claim(&claim).await.unwrap();

    let before = counting.counts();
    let started = Instant::now();
    let mut heartbeats = 0;
    while started.elapsed() < WATCHED {
        assert!(worker.claim(&claim).await.unwrap().is_empty());
        if started.elapsed() >= Duration::from_secs(30) * (heartbeats + 1) {
            heartbeats += 1;
            info.last_heartbeat = worker.now();
            worker.heartbeat(&info).await.unwrap();
        }
    }
    let watched = started.elapsed().as_secs_f64();
    let counts = counting.counts().since(&before);
    let monthly = counts.dollars(&Prices::default()) / watched * MONTH_SECONDS;
    report.figure(
        "idle",
        "requests a minute",
        counts.requests() as f64 / watched * 60.0,
        "",
    );
    report.figure(
        "idle",
        "dollars a month, heartbeats, maintenance included",
        monthly,
        "under 2",
    );

    let mut waits = Vec::new();
    for number in 0..SUBMITS {
        let claiming = worker.clone();
        let claim = claim.clone();
        let started_at = tokio::spawn(async move {
            loop {
                if let Some(task) = claiming.claim(&claim).await.unwrap().pop() {
                    let at = Instant::now();
                    claiming
                        .complete(task.id, task.lease_id.unwrap(), None)
                        .await
                        .unwrap();
                    return at;
                }
            }
        });
        // Spread over the polling interval.
        tokio::time::sleep(Duration::from_millis(1_600 + number as u64 * 71)).await;
        let submitted = Instant::now();
        submitter.submit(request(1_024)).await.unwrap();
        waits.push((started_at.await.unwrap() - submitted).as_secs_f64());
    }
    waits.sort_by(f64::total_cmp);
    report.figure(
        "idle",
        "seconds from submit to start, median",
        waits[SUBMITS / 2],
        "under 1.5",
    );
    report.figure(
        "idle",
        "seconds from submit to start, longest",
        waits[SUBMITS - 1],
        "",
    );
    maintenance.stop().await;
}
