//! The records of workers that died are deleted.

use std::sync::Arc;
use std::time::Duration;

use qo_broker::{BrokerEngine, JsonConfig};
use qo_engine::Engine;
use qo_engine::api::WorkerInfo;
use qo_fixtures::Bucket;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::Runtime;

#[tokio::test(start_paused = true)]
async fn the_record_of_a_dead_worker_is_deleted_after_a_day() {
    let bucket = Bucket::new();
    let engine = BrokerEngine::json(
        bucket.objects(),
        Arc::new(StoreClock::new()),
        bucket.runtime.clone(),
        ClientConfig::default(),
        JsonConfig::local(),
    );
    let [dead, alive] = ["dead", "alive"].map(|name| name.parse().unwrap());
    let beat = |name: &qo_core::WorkerId| {
        let info = WorkerInfo::new(name.clone(), engine.now());
        let engine = engine.clone();
        async move { engine.heartbeat(&info).await.unwrap() }
    };
    beat(&dead).await;
    for _ in 0..27 {
        beat(&alive).await;
        bucket.runtime.sleep(Duration::from_hours(1)).await;
    }
    let workers = engine.workers().await.unwrap();
    let names: Vec<_> = workers.iter().map(|worker| &worker.worker_id).collect();
    assert_eq!(names, [&alive]);
    engine.close().await;
}
