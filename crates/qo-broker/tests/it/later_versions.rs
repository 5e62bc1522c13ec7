//! The JSON object with tasks of a later version. (SlateDB's rows: `slate/newer_tests.rs`.)

use std::sync::Arc;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use qo_broker::{BrokerEngine, JsonConfig};
use qo_core::TaskId;
use qo_core::task::READER;
use qo_engine::api::{IdempotencyRequest, SubmitRequest};
use qo_engine::conformance::refusals;
use qo_engine::{Engine, EngineError};
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::TokioRuntime;

use super::engines::{all_tasks, claim_one, job, memory};

fn engine(store: &Arc<dyn ObjectStore>) -> BrokerEngine {
    BrokerEngine::json(
        Arc::clone(store),
        Arc::new(StoreClock::new()),
        TokioRuntime::shared(),
        ClientConfig::default(),
        JsonConfig::local(),
    )
}

async fn read(store: &Arc<dyn ObjectStore>) -> serde_json::Value {
    let object = store.get(&Path::from("queue.json")).await.unwrap();
    serde_json::from_slice(&object.bytes().await.unwrap()).unwrap()
}

fn keyed(key: &str) -> SubmitRequest {
    SubmitRequest {
        idempotency: Some(IdempotencyRequest {
            key: key.parse().unwrap(),
            scope: qo_core::task::IdempotencyScope::Type,
            window_ms: None,
        }),
        ..job("a")
    }
}

#[tokio::test]
async fn lines_of_a_later_version_are_left_alone_and_their_ids_and_keys_stay_taken() {
    let store = memory();
    let queue = engine(&store);
    let mut ids: Vec<TaskId> = Vec::new();
    for number in 0..3 {
        let submitted = queue.submit(keyed(&format!("order-{number}"))).await;
        ids.push(submitted.unwrap().task.id);
    }
    queue.submit(job("a")).await.unwrap();
    queue.close().await;
    let mut object = read(&store).await;
    for line in object["tasks"].as_array_mut().unwrap() {
        let position = ids
            .iter()
            .position(|id| line["id"] == serde_json::json!(id));
        match position {
            Some(0) => line["status"] = "hibernating".into(),
            Some(1) => line["min_reader"] = (READER + 1).into(),
            // A damaged line is kept as well.
            Some(2) => line["priority"] = "urgent".into(),
            _ => {}
        }
    }
    let text = object.to_string().into_bytes();
    store
        .put(&Path::from("queue.json"), text.into())
        .await
        .unwrap();

    let old = engine(&store);
    assert_eq!(all_tasks(&old).await.len(), 1);
    for (number, id) in ids.iter().enumerate() {
        let keyed = keyed(&format!("order-{number}"));
        for error in refusals(&old, *id, job("a"), keyed).await {
            assert!(matches!(error, EngineError::Unreadable { .. }), "{error}");
        }
    }
    let (task, lease) = claim_one(&old, "a").await;
    assert!(!ids.contains(&task.id));
    old.complete(task.id, lease, None).await.unwrap();
    let after = read(&store).await;
    let line = |of: &serde_json::Value, id: &TaskId| {
        let lines = of["tasks"].as_array().unwrap().clone();
        lines
            .into_iter()
            .find(|line| line["id"] == serde_json::json!(id))
            .unwrap()
    };
    for id in &ids {
        assert_eq!(line(&after, id), line(&object, id));
    }
}
