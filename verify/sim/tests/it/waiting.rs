//! Concurrent claims of one process wait without busy loops.

use std::sync::Arc;
use std::time::Duration;

use qo_core::WorkerId;
use qo_engine::api::ClaimRequest;
use qo_sim::broker::{Hub, Wire};
use qo_sim::faults::Trouble;
use qo_sim::plan::Plan;
use qo_sim::random::Random;
use qo_sim::sched::{Scheduler, SimRuntime};
use qo_sim::store::{Bucket, BucketSettings, Link};
use qo_sim::subject::{Direct, Host, Subject};
use qo_sim::trace::Trace;
use qo_store::client::ClientConfig;
use qo_store::wrap::Operation;

/// How many futures may be polled for each request. Without a pause, it would be thousands.
const POLLS_PER_REQUEST: u64 = 100;

#[test]
fn concurrent_claims_of_one_process_wait_without_busy_loops() {
    let scheduler = Scheduler::new(1, Trace::new(false));
    let plan = Plan {
        faults: [].into(),
        latency_us: (5_000, 30_000),
        ..Plan::of(1)
    };
    let bucket = Arc::new(Bucket::new(&scheduler, BucketSettings::default()));
    let trouble = Arc::new(Trouble::new(&scheduler, &plan));
    let process = scheduler.start_process("worker", Random::of(&[1]), 0);
    let clock = Arc::default();
    let life = ("worker".to_owned(), 1);
    let hub = Arc::new(Hub::new(&bucket));
    let wire = Wire::new(&scheduler, &trouble, &hub, process, life.clone());
    let link = Link::new(&scheduler, process, life, &bucket, &clock, &trouble, None);
    let running = Direct.start(&Host {
        retention: None,
        limits: None,
        objects: Arc::new(link),
        clock,
        runtime: SimRuntime::of(&scheduler, process),
        sweep_interval: Duration::from_mins(5),
        client: ClientConfig::default(),
        keeps_versions: false,
        wire,
    });
    let worker: WorkerId = "worker".parse().unwrap();
    let claims = async move {
        let mut request = ClaimRequest::new(worker, vec!["mail".parse().unwrap()]);
        request.wait_ms = 60_000;
        let engine = &running.engine;
        let waiting = (0..5).map(|_| engine.claim(&request));
        for claimed in futures_util::future::join_all(waiting).await {
            assert_eq!(claimed.unwrap(), []);
        }
    };
    scheduler.run(Box::pin(claims)).unwrap();
    let requests: u64 = bucket.counts().values().sum();
    // One question every 1.5 s for all of them.
    assert!(
        (40..=60).contains(&bucket.counts()[&Operation::Get]),
        "{:?}",
        bucket.counts()
    );
    let polls = scheduler.polls();
    assert!(
        polls < requests * POLLS_PER_REQUEST,
        "{polls} polls for {requests} requests"
    );
    scheduler.finish();
}
