//! Claims of clients that disconnect or repeat a request.

use std::time::Duration;

use qo::{Status, SubmitRequest};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use qo_fixtures::until;

use crate::support::{api, config, serve};

fn request() -> SubmitRequest {
    SubmitRequest::new("t".parse().unwrap(), qo::Json::null())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_claim_gets_the_same_tasks() {
    let server = serve(config()).await;
    for _ in 0..3 {
        server.engine.submit(request()).await.unwrap();
    }
    let claim = |name: &str, max: u32| {
        api("POST", "/v1/claim")
            .header("x-request-id", name)
            .json(&json!({"worker_id": "w", "max": max, "wait_ms": 20_000}))
    };
    let (_, first) = server.reply(claim("one", 1)).await;
    let (_, again) = server.reply(claim("one", 1)).await;
    let (_, other) = server.reply(claim("two", 1)).await;
    assert_eq!(first["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(first, again);
    assert_ne!(first["tasks"][0]["id"], other["tasks"][0]["id"]);
    server.refused(claim("one", 2), 400, "bad_request").await;

    // Both copies of a waiting claim get the same task.
    let (_, third) = server.reply(claim("three", 1)).await;
    assert_eq!(third["tasks"].as_array().unwrap().len(), 1);
    let waiting = futures_util::future::join3(
        server.reply(claim("four", 1)),
        server.reply(claim("four", 1)),
        async {
            tokio::time::timeout(Duration::from_millis(300), std::future::pending::<()>())
                .await
                .ok();
            server.engine.submit(request()).await.unwrap();
        },
    );
    let ((_, one), (_, two), ()) = waiting.await;
    assert_eq!(one, two);
    assert_eq!(one["tasks"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tasks_of_a_disconnected_client_are_released() {
    let server = serve(config()).await;
    let mut connection = TcpStream::connect(server.authority()).await.unwrap();
    let body = json!({"worker_id": "gone", "wait_ms": 20_000}).to_string();
    let head = format!(
        "POST /v1/claim HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        server.authority(),
        body.len()
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    until("the server has the request", async || {
        let (_, metrics) = server.reply(api("GET", "/metrics")).await;
        metrics
            .as_str()
            .unwrap()
            .contains("qo_connections 2")
            .then_some(())
    })
    .await;
    // Long enough for the claim to have read the queue.
    tokio::time::timeout(Duration::from_millis(500), std::future::pending::<()>())
        .await
        .ok();
    drop(connection);
    until("the server sees the disconnect", async || {
        let (_, metrics) = server.reply(api("GET", "/metrics")).await;
        metrics
            .as_str()
            .unwrap()
            .contains("qo_connections 1")
            .then_some(())
    })
    .await;
    let task = server.engine.submit(request()).await.unwrap().task;
    let returned = until("the task is released", async || {
        let task = server.engine.get(task.id).await.unwrap();
        (task.attempt == 1 && task.status == Status::Pending).then_some(task)
    })
    .await;
    assert_eq!(returned.retry_count, 0, "a release is not a retry");
}
