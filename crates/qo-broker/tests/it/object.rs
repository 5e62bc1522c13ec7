//! The JSON object: its format, its size, and its retention.

use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use qo_broker::BrokerEngine;
use qo_broker::JsonConfig;
use qo_core::{Json, Status};
use qo_engine::api::SubmitRequest;
use qo_engine::{Engine, EngineError};
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::TokioRuntime;

use super::engines::{all_tasks, claim_one, job, memory};

fn engine(store: &Arc<dyn ObjectStore>, config: JsonConfig) -> BrokerEngine {
    BrokerEngine::json(
        Arc::clone(store),
        Arc::new(StoreClock::new()),
        TokioRuntime::shared(),
        ClientConfig::default(),
        config,
    )
}

async fn read(store: &Arc<dyn ObjectStore>) -> String {
    let object = store.get(&Path::from("queue.json")).await.unwrap();
    String::from_utf8(object.bytes().await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn the_object_is_readable_json() {
    let store = memory();
    let queue = engine(&store, JsonConfig::local());
    for n in 0..3 {
        let request = SubmitRequest {
            input: Json::parse(format!("{{\"number\": {n}}}")).unwrap(),
            ..job("send_email")
        };
        queue.submit(request).await.unwrap();
    }
    let text = read(&store).await;
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["format"], 1);
    assert_eq!(value["tasks"].as_array().unwrap().len(), 3);
    for task in value["tasks"].as_array().unwrap() {
        assert_eq!(task["status"], "pending");
        assert_eq!(task["task_type"], "send_email");
    }
    let lines = text.lines().filter(|line| line.contains("send_email"));
    assert_eq!(lines.count(), 3, "each task is a line");
}

#[tokio::test]
async fn fields_and_records_of_later_versions_survive() {
    let store = memory();
    let queue = engine(&store, JsonConfig::local());
    queue.submit(job("a")).await.unwrap();
    queue.close().await;
    let text = read(&store).await;
    let text = text.replacen("\"paused\"", "\"later\":{\"x\": 1},\n\"paused\"", 1);
    let text = text.replacen("{\"id\"", "{\"mood\":\"good\",\"id\"", 1);
    let strange = "{\"id\":\"550e8400-e29b-41d4-a716-446655440000\",\"status\":\"dreaming\"}";
    let text = text.replacen("\"tasks\":[", &format!("\"tasks\":[{strange},{{}},"), 1);
    store
        .put(&Path::from("queue.json"), text.into_bytes().into())
        .await
        .unwrap();
    let queue = engine(&store, JsonConfig::local());
    let (task, lease) = claim_one(&queue, "a").await;
    queue.complete(task.id, lease, None).await.unwrap();
    let value: serde_json::Value = serde_json::from_str(&read(&store).await).unwrap();
    assert_eq!(value["later"]["x"], 1);
    let tasks = value["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 3);
    assert!(tasks.iter().any(|task| task["status"] == "dreaming"));
    assert!(
        tasks
            .iter()
            .any(|task| task["mood"] == "good" && task["status"] == "completed")
    );
}

#[tokio::test]
async fn a_full_queue_refuses_submits_and_serves_everything_else() {
    let store = memory();
    let mut config = JsonConfig::local();
    config.object_max_bytes = 20_000;
    config.finished_max = 0;
    let queue = engine(&store, config);
    let mut accepted = 0;
    let error = loop {
        match queue.submit(job("a")).await {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!((10..40).contains(&accepted), "{accepted}");
    assert!(matches!(error, EngineError::ObjectFull { .. }), "{error}");
    assert!(error.to_string().contains("?engine=slate"), "{error}");
    for _ in 0..accepted {
        let (task, lease) = claim_one(&queue, "a").await;
        queue.complete(task.id, lease, None).await.unwrap();
    }
    queue.submit(job("a")).await.unwrap();
}

#[tokio::test]
async fn finished_tasks_are_kept_up_to_an_age_and_a_number() {
    let store = memory();
    let mut config = JsonConfig::local();
    config.finished_max = 5;
    config.finished_keep = Duration::from_secs(6);
    let runtime = TokioRuntime::shared();
    let queue = engine(&store, config);
    let mut ended = Vec::new();
    for n in 0..8 {
        let mut request = job("a");
        if n == 0 {
            request.input = Json::parse(format!("\"{}\"", "x".repeat(20_000))).unwrap();
        }
        queue.submit(request).await.unwrap();
        let (task, lease) = claim_one(&queue, "a").await;
        ended.push(queue.complete(task.id, lease, None).await.unwrap());
        // Times have millisecond precision, so the order within a millisecond is undefined.
        runtime.sleep(Duration::from_millis(3)).await;
    }
    let kept: Vec<_> = all_tasks(&queue).await.iter().map(|task| task.id).collect();
    assert_eq!(kept.len(), 5);
    assert!(
        ended[3..].iter().all(|task| kept.contains(&task.id)),
        "the newest are kept"
    );
    // The separate payload is deleted with its task.
    let deadline = runtime.monotonic() + super::engines::WAIT_MAX;
    while queue.input(&ended[0]).await.is_ok() {
        assert!(runtime.monotonic() < deadline);
        runtime.sleep(Duration::from_millis(20)).await;
    }
    loop {
        queue.submit(job("b")).await.unwrap();
        let tasks = all_tasks(&queue).await;
        if tasks.iter().all(|task| task.status == Status::Pending) {
            break;
        }
        assert!(runtime.monotonic() < deadline);
        runtime.sleep(Duration::from_millis(100)).await;
    }
}
