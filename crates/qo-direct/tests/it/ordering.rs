//! The limit of a line.

use std::sync::Arc;

use qo_core::task::{OnFailure, OrderingRule};
use qo_core::{Json, Rejection, TaskId};
use qo_direct::{DirectConfig, DirectEngine, LINE_MAX_TASKS};
use qo_engine::api::SubmitRequest;
use qo_engine::{Engine, EngineError};
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{RuntimeExt, TokioRuntime};

fn ordered(id: Option<TaskId>) -> SubmitRequest {
    SubmitRequest {
        id,
        ordering: Some(OrderingRule {
            key: "k".parse().unwrap(),
            on_failure: OnFailure::Continue,
        }),
        ..SubmitRequest::new("noop".parse().unwrap(), Json::null())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_line_refuses_tasks_and_stores_nothing_of_them() {
    let runtime = TokioRuntime::shared();
    let client = StoreClient::new(
        Arc::new(object_store::memory::InMemory::new()),
        Arc::new(StoreClock::new()),
        Arc::clone(&runtime),
        ClientConfig::default(),
    );
    let engine = DirectEngine::new(client, None, Arc::clone(&runtime), DirectConfig::default());
    let requests = (0..LINE_MAX_TASKS + 2).map(|_| ordered(Some(runtime.new_task_id())));
    let requests: Vec<SubmitRequest> = requests.collect();
    let results = engine.submit_many(requests.clone()).await;
    let full = EngineError::Rejected(Rejection::LineFull {
        limit: LINE_MAX_TASKS as u64,
    });
    for (index, result) in results.iter().enumerate() {
        match result {
            Ok(submitted) => assert!(index < LINE_MAX_TASKS && !submitted.duplicate),
            Err(error) => assert!(index >= LINE_MAX_TASKS && *error == full, "{error}"),
        }
    }
    let refused = requests[LINE_MAX_TASKS].id.unwrap();
    assert!(engine.get(refused).await.unwrap_err().is_not_found());
    // A repeated submit of a task that is in the line is a duplicate.
    let again = engine.submit(requests[7].clone()).await.unwrap();
    assert!(again.duplicate);
    // When one leaves, there is room for another.
    engine.cancel(requests[5].id.unwrap(), None).await.unwrap();
    engine.submit(ordered(None)).await.unwrap();
    assert_eq!(engine.submit(ordered(None)).await.unwrap_err(), full);
    engine.close().await;
}
