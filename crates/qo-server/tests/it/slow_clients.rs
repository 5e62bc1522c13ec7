//! Clients that are too slow, too many or send too much.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{WAIT_MAX, api, config, serve};

/// Sends bytes, and returns the response until the server closes the connection.
async fn exchange(authority: &str, bytes: &[u8]) -> String {
    let mut connection = TcpStream::connect(authority).await.unwrap();
    connection.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(WAIT_MAX, connection.read_to_end(&mut answer))
        .await
        .expect("the server should close the connection")
        .ok();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_connection_without_a_complete_head_is_closed() {
    let mut config = config();
    config.limits.header_timeout = Duration::from_millis(300);
    let server = serve(config).await;
    for part in ["", "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-slow: "] {
        let answer = exchange(server.authority(), part.as_bytes()).await;
        assert!(!answer.contains("200"), "{answer}");
    }
    assert_eq!(server.send(api("GET", "/healthz")).await.status(), 200);
}

#[tokio::test]
async fn an_incomplete_body_is_refused_after_a_timeout() {
    let mut config = config();
    config.limits.body_idle_timeout = Duration::from_millis(300);
    let server = serve(config).await;
    let head = "POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let answer = exchange(server.authority(), head.as_bytes()).await;
    assert!(
        answer.starts_with("HTTP/1.1 408") && answer.contains("body_timeout"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_chunked_body_is_refused_at_the_limit() {
    let mut config = config();
    config.limits.body_max_bytes = 1_000;
    let server = serve(config).await;
    let chunk = format!("400\r\n{}\r\n", "x".repeat(1_024));
    let head = format!(
        "POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}"
    );
    let answer = exchange(server.authority(), head.as_bytes()).await;
    assert!(
        answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"),
        "{answer}"
    );
}

#[tokio::test]
async fn bodies_and_event_streams_are_bounded() {
    let mut config = config();
    config.limits.bodies_max_bytes = 100;
    config.limits.listeners_max = 1;
    let server = serve(config).await;
    let body = serde_json::json!({ "task_type": "t", "input": "x".repeat(200) });
    let submit = api("POST", "/v1/tasks").json(&body);
    server.refused(submit, 503, "overloaded").await;
    let small = api("POST", "/v1/tasks").json(&serde_json::json!({ "task_type": "t" }));
    assert_eq!(
        server.send(small).await.status(),
        201,
        "the memory is free again"
    );
    let listener = server.send(api("GET", "/v1/events")).await;
    assert_eq!(listener.status(), 200);
    server
        .refused(api("GET", "/v1/events"), 503, "overloaded")
        .await;
    drop(listener);
    qo_fixtures::until("the slot is free again", async || {
        let status = server.send(api("GET", "/v1/events")).await.status();
        (status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_oversized_head_is_refused() {
    let server = serve(config()).await;
    let head = format!(
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-large: {}\r\n\r\n",
        "x".repeat(64 * 1024)
    );
    let answer = exchange(server.authority(), head.as_bytes()).await;
    assert!(
        answer.starts_with("HTTP/1.1 431") || answer.is_empty(),
        "{answer}"
    );
}

/// Connections that each have sent this request and received a 200.
async fn held_connections(authority: &str, count: usize, path: &str) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        let mut connection = TcpStream::connect(authority).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut buffer = [0; 15];
        connection.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"HTTP/1.1 200 OK");
        held.push(connection);
    }
    held
}

async fn get(authority: &str, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    exchange(authority, request.as_bytes()).await
}

#[tokio::test]
async fn excess_connections_are_refused_except_for_health_checks() {
    let mut config = config();
    config.limits.connections_max = 2;
    let server = serve(config).await;
    let authority = server.authority();
    let held = held_connections(authority, 2, "/v1/info").await;
    let answer = get(authority, "/v1/info").await;
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("overloaded"),
        "{answer}"
    );
    let answer = get(authority, "/healthz").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(held);
    qo_fixtures::until("the slot is free again", async || {
        let answer = get(authority, "/v1/info").await;
        answer.starts_with("HTTP/1.1 200").then_some(())
    })
    .await;
}

#[tokio::test]
async fn idle_connections_do_not_lock_others_out() {
    let mut config = config();
    config.limits.connections_max = 8;
    let server = serve(config).await;
    let authority = server.authority();
    let known = held_connections(authority, 2, "/v1/info").await;
    let mut idle = held_connections(authority, 2, "/healthz").await;
    for _ in 0..30 {
        idle.push(TcpStream::connect(authority).await.unwrap());
        let answer = get(authority, "/v1/info").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    // The connections of a client with an authorized request stay open.
    for mut connection in known {
        connection
            .write_all(b"GET /v1/info HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).await.unwrap();
        assert!(text.contains("HTTP/1.1 200"), "{text}");
    }
}

#[tokio::test]
async fn waiting_requests_leave_room_for_others() {
    let mut config = config();
    config.limits.waiting_max = 1;
    let server = serve(config).await;
    let claim = json!({"worker_id": "w", "wait_ms": 20_000});
    let claim = || api("POST", "/v1/claim").json(&claim);
    let first = server.reply(claim());
    let others = async {
        qo_fixtures::until("a second wait is refused", async || {
            let (status, reply) = server.reply(claim()).await;
            (status == 503 && reply["code"] == "overloaded").then_some(())
        })
        .await;
        let task = json!({"task_type": "t"});
        server.reply(api("POST", "/v1/tasks").json(&task)).await
    };
    let ((status, claimed), (submitted, _)) = tokio::join!(first, others);
    assert_eq!((status, submitted), (200, 201), "{claimed}");
    assert_eq!(claimed["tasks"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_is_disconnected() {
    let mut config = config();
    config.limits.write_timeout = Duration::from_millis(300);
    let server = serve(config).await;
    let input = "x".repeat(1_000_000);
    let body = serde_json::json!({ "task_type": "t", "input": input });
    let (_, answer) = server.reply(api("POST", "/v1/tasks").json(&body)).await;
    let id = answer["task"]["id"].as_str().unwrap().to_owned();
    let mut connection = TcpStream::connect(server.authority()).await.unwrap();
    // More than the socket buffers of both sides.
    let request =
        format!("GET /v1/tasks/{id}/input HTTP/1.1\r\nhost: localhost\r\n\r\n").repeat(64);
    connection.write_all(request.as_bytes()).await.unwrap();
    qo_fixtures::until("the connection is closed", async || {
        let (_, metrics) = server.reply(api("GET", "/metrics")).await;
        metrics
            .as_str()
            .unwrap()
            .contains("qo_connections 1\n")
            .then_some(())
    })
    .await;
}
