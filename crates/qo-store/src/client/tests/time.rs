//! The store's time, as the client tells it.

use object_store::memory::InMemory;

use super::*;

#[tokio::test(start_paused = true)]
async fn time_stands_still_while_a_better_estimate_catches_up_and_follows_a_real_step_back() {
    let world: Arc<dyn World> = Arc::new(PausableWorld::new(7));
    let clock = Arc::new(StoreClock::new());
    let store = Arc::new(InMemory::new());
    let config = ClientConfig::default();
    let client = StoreClient::new(store, Arc::clone(&clock), Arc::clone(&world), config);

    let local = world.now();
    // The first answer allows an offset of up to a second; the second one shows that it is next to none.
    clock.observe(local, local, local);
    let early = client.now();
    assert!(early > local);
    clock.observe(local, local, local.minus_millis(950));
    assert_eq!(client.now(), early);
    world.sleep(Duration::from_secs(2)).await;
    assert!(client.now() > early);

    let told = client.now();
    let local = world.now();
    clock.observe(local, local, local.minus_millis(60_000));
    assert!(client.now() < told.minus_millis(50_000));
}
