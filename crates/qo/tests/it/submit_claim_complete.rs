//! A successful task, seen by three processes.

use std::time::Duration;

use qo::{Json, Status};
use serde_json::json;

use crate::test_queue::{TestQueue, claim_one};

async fn scenario(test_queue: TestQueue) {
    let client = test_queue.connect().await;
    let submitted = client
        .task("send_email", &json!({ "to": "ada@example.org" }))
        .unwrap()
        .priority(1)
        .timeout(Duration::from_mins(1))
        .tag("newsletter")
        .submit()
        .await
        .unwrap();
    assert!(!submitted.duplicate);
    let id = submitted.task.id;
    assert_eq!(client.get(id).await.unwrap().status, Status::Pending);

    let worker = test_queue.connect().await;
    let (task, lease) = claim_one(&worker, "worker-1", "send_email").await;
    assert_eq!((task.id, task.attempt), (id, 1));
    let running = client.get(id).await.unwrap();
    assert_eq!(running.status, Status::Running);
    assert_eq!(running.worker_id, Some("worker-1".parse().unwrap()));
    assert!(running.lease_expires_at.unwrap() > running.started_at.unwrap());

    let input: serde_json::Value = worker.input(&task).await.unwrap().to_value().unwrap();
    assert_eq!(input["to"], "ada@example.org");
    let output = Json::from_value(&json!({ "message_id": 17 })).unwrap();
    let waiting = client.wait(id, Duration::from_secs(30));
    let completing = worker.complete(id, lease, Some(output.clone()));
    let (waited, completed) = futures_util::future::join(waiting, completing).await;
    assert_eq!(completed.unwrap().status, Status::Completed);

    let waited = waited.unwrap();
    assert_eq!(waited.status, Status::Completed);
    assert_eq!(client.output(&waited).await.unwrap(), Some(output));
    let steps: Vec<_> = test_queue
        .connect()
        .await
        .history(id)
        .await
        .unwrap()
        .into_iter()
        .map(|event| event.to)
        .collect();
    assert_eq!(steps, [Status::Pending, Status::Running, Status::Completed]);
    worker.close().await;
    client.close().await;
}

on_every_store!(scenario);
