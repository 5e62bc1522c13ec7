//! A waiting claim notices every submit, however the requests of both interleave.
//!
//! Many small runtimes run at once, each with its own delays, so that polls fall before, between and after the steps of the
//! submit. A poll that comes too early and is not repeated would delay the claim until the fallback interval.

use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use qo_core::Json;
use qo_direct::DirectConfig;
use qo_direct::DirectEngine;
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, SubmitRequest, When};
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{RuntimeExt, TokioRuntime};
use qo_store::wrap::{Delay, LatencyStore};

const WORLDS: u64 = 500;

/// A process of its own on a slow store.
fn process(memory: &Arc<InMemory>, config: DirectConfig, seed: u64) -> DirectEngine {
    let runtime = TokioRuntime::shared();
    // A long tail lets slow requests be overtaken by several quick ones.
    let delay = Delay::LogNormal {
        median: Duration::from_millis(5),
        p99: Duration::from_millis(300),
    };
    let memory = Arc::clone(memory);
    let store = LatencyStore::new(memory, Arc::clone(&runtime), delay, seed);
    let client = StoreClient::new(
        Arc::new(store),
        Arc::new(StoreClock::new()),
        Arc::clone(&runtime),
        ClientConfig::default(),
    );
    DirectEngine::new(client, None, runtime, config)
}

/// Submits to a waiting claim of the same process, which must get the task within seconds.
async fn notices_a_submit(seed: u64, available: When) {
    let runtime = TokioRuntime::shared();
    // Only the submit itself wakes the claim.
    let mut config = DirectConfig::default();
    config.signal_interval = Duration::from_mins(10);
    config.fallback_interval = Duration::from_mins(10);
    let engine = process(&Arc::default(), config, seed);
    let request = SubmitRequest {
        available,
        ..SubmitRequest::new("job".parse().unwrap(), Json::null())
    };
    let claim_request = ClaimRequest {
        wait_ms: 8_000,
        ..ClaimRequest::new("w-1".parse().unwrap(), vec!["job".parse().unwrap()])
    };
    let submit = async {
        let pause = Duration::from_millis(runtime.random_below(60));
        runtime.sleep(pause).await;
        engine.submit(request).await.unwrap().task
    };
    let (claimed, task) = futures_util::future::join(engine.claim(&claim_request), submit).await;
    let claimed = claimed.unwrap();
    assert_eq!(claimed.len(), 1, "seed {seed}: the claim waited in vain");
    assert_eq!(claimed[0].id, task.id);
}

async fn on_many_seeds(available: When) {
    let mut runtimes = tokio::task::JoinSet::new();
    for seed in 0..WORLDS {
        runtimes.spawn(notices_a_submit(seed, available));
    }
    runtimes.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_waiting_claim_notices_a_submit() {
    on_many_seeds(When::Now).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_waiting_claim_notices_a_delayed_submit() {
    on_many_seeds(When::InMillis(150)).await;
}

/// Submits in two processes, of which one also works. It must get the tasks of both within seconds, although the announcements of the two
/// race for the signal.
async fn notices_submits_of_two_processes(seed: u64) {
    const TASKS: usize = 6;
    let runtime = TokioRuntime::shared();
    // Only signals announce the tasks of the other process.
    let mut config = DirectConfig::default();
    config.signal_interval = Duration::from_millis(100);
    config.touch_interval = Duration::from_millis(50);
    config.fallback_interval = Duration::from_mins(10);
    let memory = Arc::default();
    let worker = process(&memory, config.clone(), 2 * seed);
    let other = process(&memory, config, 2 * seed + 1);
    let submit = async |engine: &DirectEngine| {
        for _ in 0..TASKS / 2 {
            let pause = Duration::from_millis(runtime.random_below(150));
            runtime.sleep(pause).await;
            let request = SubmitRequest::new("job".parse().unwrap(), Json::null());
            engine.submit(request).await.unwrap();
        }
    };
    let claim = async {
        let mut count = 0;
        while count < TASKS {
            let request = ClaimRequest {
                wait_ms: 12_000,
                ..ClaimRequest::new("w-1".parse().unwrap(), vec!["job".parse().unwrap()])
            };
            let claimed = worker.claim(&request).await.unwrap();
            assert!(!claimed.is_empty(), "seed {seed}: the claim waited in vain");
            count += claimed.len();
        }
    };
    futures_util::future::join3(claim, submit(&worker), submit(&other)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_waiting_claim_notices_the_submits_of_two_processes() {
    let mut runtimes = tokio::task::JoinSet::new();
    for seed in 0..WORLDS {
        runtimes.spawn(notices_submits_of_two_processes(seed));
    }
    runtimes.join_all().await;
}
