//! Each queue keeps its finished tasks as long as its settings say.

use std::sync::Arc;
use std::time::Duration;

use qo_broker::{BrokerEngine, JsonConfig, SlateConfig};
use qo_core::{Json, QueueSettings, Status, Task};
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, DocumentWrite, SubmitRequest};
use qo_fixtures::until;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{RuntimeExt, TokioRuntime};

use super::engines::{job, memory};

async fn set(engine: &BrokerEngine, queue: &str, body: &str) {
    let id = QueueSettings::document_id(&queue.parse().unwrap());
    let op = TokioRuntime::shared().new_op_id();
    let write = DocumentWrite::new(id, None, Some(Json::parse(body).unwrap()), op);
    engine.write_document(write).await.unwrap();
}

async fn completed(engine: &BrokerEngine, queue: &str) -> Task {
    let request = SubmitRequest {
        queue: queue.parse().unwrap(),
        ..job("a")
    };
    engine.submit(request).await.unwrap();
    let mut claim = ClaimRequest::new("w".parse().unwrap(), vec!["a".parse().unwrap()]);
    claim.queues = vec![queue.parse().unwrap()];
    let task = engine.claim(&claim).await.unwrap().pop().unwrap();
    let lease = task.lease_id.unwrap();
    engine.complete(task.id, lease, None).await.unwrap()
}

/// Completes a task in each queue, and waits until the one of the queue with the short retention is gone.
async fn check(engine: &BrokerEngine) {
    set(engine, "short", r#"{"retention_seconds":1}"#).await;
    set(engine, "long", r#"{"retention_seconds":7200}"#).await;
    let short = completed(engine, "short").await;
    let others = [
        completed(engine, "long").await,
        completed(engine, "default").await,
    ];
    until("the retention of the short queue ends", async || {
        // The JSON engine drops tasks when it writes.
        completed(engine, "default").await;
        engine.get(short.id).await.is_err().then_some(())
    })
    .await;
    for task in others {
        let kept = engine.get(task.id).await.unwrap();
        assert_eq!(kept.status, Status::Completed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_json_engine() {
    let mut config = JsonConfig::local();
    config.finished_keep = Duration::from_hours(1);
    config.finished_max = 10_000;
    let engine = BrokerEngine::json(
        memory(),
        Arc::new(StoreClock::new()),
        TokioRuntime::shared(),
        ClientConfig::default(),
        config,
    );
    check(&engine).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_slate_engine() {
    let store = memory();
    let open = async || {
        let engine = BrokerEngine::slate(
            Arc::clone(&store),
            Arc::new(StoreClock::new()),
            TokioRuntime::shared(),
            ClientConfig::default(),
            SlateConfig::default(),
        );
        engine.await.unwrap()
    };
    let engine = open().await;
    check(&engine).await;
    engine.close().await;
    // The settings are there after a restart.
    let engine = open().await;
    let documents = engine
        .documents(&qo_engine::api::DocumentQuery::all(
            qo_core::DocumentKind::Queues,
        ))
        .await
        .unwrap();
    assert_eq!(documents.len(), 2);
}
