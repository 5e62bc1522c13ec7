use std::sync::Arc;

use qo_core::Json;
use qo_engine::api::{ClaimRequest, SubmitRequest, WorkerInfo};
use qo_engine::objects::ObjectsConfig;
use qo_engine::{Engine, ObjectsEngine};
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::world::TokioWorld;
use qo_store::wrap::CountingStore;

#[tokio::test(flavor = "multi_thread")]
async fn submit_claim_complete() {
    let world = TokioWorld::shared();
    let counting = Arc::new(CountingStore::new(Arc::new(
        object_store::memory::InMemory::new(),
    )));
    let client = StoreClient::new(
        counting.clone(),
        Arc::new(StoreClock::new()),
        world.clone(),
        ClientConfig::default(),
    );
    let engine = ObjectsEngine::new(client, None, world, ObjectsConfig::default());
    let requests = (0..2000)
        .map(|n| {
            SubmitRequest::new(
                "noop".parse().unwrap(),
                Json::parse(format!("{n}")).unwrap(),
            )
        })
        .collect();
    for submitted in engine.submit_many(requests).await {
        assert!(!submitted.unwrap().duplicate);
    }
    let worker: qo_core::WorkerId = "w-1".parse().unwrap();
    engine
        .heartbeat(&WorkerInfo::new(worker.clone(), engine.now()))
        .await
        .unwrap();
    let mut request = ClaimRequest::new(worker, vec!["noop".parse().unwrap()]);
    request.max = 64;
    let mut done = 0;
    loop {
        let tasks = engine.claim(&request).await.unwrap();
        if tasks.is_empty() {
            break;
        }
        for task in tasks {
            engine
                .complete(task.id, task.lease_id.unwrap(), Some(Json::null()))
                .await
                .unwrap();
            done += 1;
        }
    }
    engine.close().await;
    println!("{}", counting.counts());
    assert_eq!(done, 2000);
}
