//! A waiting claim hears of every submit, however the requests of both cross each other.
//!
//! Many small worlds run at once, each with delays of its own, so that looks fall before, between and after the steps of the
//! submit. A look that comes too early and is not repeated would be made good only by the fallback interval, half a minute later.

use std::sync::Arc;
use std::time::Duration;

use qo_core::Json;
use qo_engine::api::{ClaimRequest, SubmitRequest, When};
use qo_engine::objects::ObjectsConfig;
use qo_engine::{Engine, ObjectsEngine};
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::world::{TokioWorld, World, WorldExt};
use qo_store::wrap::{Delay, LatencyStore};

const WORLDS: u64 = 200;

/// Submits to a waiting claim of the same process, and expects it to be handed out within seconds.
async fn hears_of_a_submit(seed: u64, available: When) {
    let world = TokioWorld::shared();
    let delay = Delay::Uniform {
        low: Duration::from_millis(1),
        high: Duration::from_millis(80),
    };
    let memory = Arc::new(object_store::memory::InMemory::new());
    let store = LatencyStore::new(memory, Arc::clone(&world), delay, seed);
    let client = StoreClient::new(
        Arc::new(store),
        Arc::new(StoreClock::new()),
        Arc::clone(&world),
        ClientConfig::default(),
    );
    let engine = ObjectsEngine::new(client, None, world.clone(), ObjectsConfig::default());
    let request = SubmitRequest {
        available,
        ..SubmitRequest::new("job".parse().unwrap(), Json::null())
    };
    let wish = ClaimRequest {
        wait_ms: 6_000,
        ..ClaimRequest::new("w-1".parse().unwrap(), vec!["job".parse().unwrap()])
    };
    let submit = async {
        let pause = Duration::from_millis(world.random_below(150));
        world.sleep(pause).await;
        engine.submit(request).await.unwrap().task
    };
    let (claimed, task) = futures_util::future::join(engine.claim(&wish), submit).await;
    let claimed = claimed.unwrap();
    assert_eq!(claimed.len(), 1, "seed {seed}: the claim waited in vain");
    assert_eq!(claimed[0].id, task.id);
}

async fn in_all_worlds(available: When) {
    let mut worlds = tokio::task::JoinSet::new();
    for seed in 0..WORLDS {
        worlds.spawn(hears_of_a_submit(seed, available));
    }
    worlds.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_waiting_claim_hears_of_a_submit() {
    in_all_worlds(When::Now).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_waiting_claim_hears_of_a_delayed_submit() {
    in_all_worlds(When::InMillis(150)).await;
}
