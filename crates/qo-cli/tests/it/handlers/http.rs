//! Requests to a real server on this machine, which is allowed by the flag, or refused without it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use qo::Status;
use qo_cli::handlers::http::{Headers, HttpHandler, HttpSettings, Target};
use qo_store::runtime::TokioRuntime;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{Bench, error, eventually, task_type};

/// A request as it came.
type Seen = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// A server that answers as the input of the task says, and remembers what came.
struct Server {
    port: u16,
    seen: Seen,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Seen::default();
        let app = Router::new().fallback(answer).with_state(Arc::clone(&seen));
        TokioRuntime::shared().spawn(Box::pin(async move {
            axum::serve(listener, app).await.unwrap();
        }));
        Self { port, seen }
    }

    fn url(&self, host: &str) -> String {
        format!("http://{host}:{}/hook?key=1", self.port)
    }

    fn requests(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    fn request(&self, index: usize) -> (HeaderMap, String) {
        self.seen.lock().unwrap()[index].clone()
    }
}

async fn answer(State(seen): State<Seen>, headers: HeaderMap, body: Bytes) -> Response {
    let body = String::from_utf8(body.to_vec()).unwrap();
    let wish: Value = serde_json::from_str(&body).unwrap_or_default();
    let nth = {
        let mut seen = seen.lock().unwrap();
        seen.push((headers, body));
        seen.len()
    };
    if wish["hang"] == true {
        TokioRuntime::shared().sleep(Duration::from_mins(10)).await;
    }
    if wish["only_first"] == true && nth > 1 {
        return "second".into_response();
    }
    let status = wish["status"].as_u64().unwrap_or(200);
    let status = StatusCode::from_u16(u16::try_from(status).unwrap()).unwrap();
    let mut answer = HeaderMap::new();
    for (name, value) in wish["headers"].as_object().into_iter().flatten() {
        let name: axum::http::HeaderName = name.parse().unwrap();
        answer.insert(name, value.as_str().unwrap().parse().unwrap());
    }
    let body = match &wish["repeat"] {
        Value::Number(times) => "x".repeat(usize::try_from(times.as_u64().unwrap()).unwrap()),
        _ => wish["body"].as_str().unwrap_or_default().to_owned(),
    };
    (status, answer, body).into_response()
}

fn handler(url: &str, lines: &[&str], allow_private: bool) -> HttpHandler {
    let variables = BTreeMap::from([("TOKEN".to_owned(), "s3cret".to_owned())]);
    let headers = Headers::parse(lines.iter().copied(), &variables).unwrap();
    let runtime = TokioRuntime::shared();
    let settings =
        HttpSettings::new(headers.headers, 64 * 1024, allow_private, false, runtime).unwrap();
    let target = Target::parse(url, allow_private).unwrap();
    HttpHandler::new(task_type(), target, settings)
}

async fn bench() -> (Server, Bench) {
    let server = Server::start().await;
    let bench = Bench::new(handler(&server.url("127.0.0.1"), &[], true)).await;
    (server, bench)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_input_is_posted_with_the_facts_and_the_answer_is_the_output() {
    let server = Server::start().await;
    let lines = ["Authorization: Bearer ${TOKEN}", "X-More: 1"];
    let bench = Bench::new(handler(&server.url("localhost"), &lines, true)).await;
    let task = bench.run(&json!({ "body": "{\"ok\": true}" })).await;
    assert_eq!(task.status, Status::Completed, "{task:?}");
    assert_eq!(bench.output(&task).await.unwrap(), "{\"ok\": true}");

    let (headers, body) = server.request(0);
    assert_eq!(body, r#"{"body":"{\"ok\": true}"}"#);
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "application/json");
    assert_eq!(header("qo-task-id"), task.id.to_string());
    assert_eq!(header("idempotency-key"), task.id.to_string());
    assert_eq!(header("qo-task-type"), "job");
    assert_eq!(header("qo-attempt"), "1");
    assert_eq!(header("qo-queue"), "default");
    assert!(header("qo-deadline").parse::<qo::Timestamp>().is_ok());
    assert_eq!(header("authorization"), "Bearer s3cret");
    assert_eq!(header("x-more"), "1");
    assert!(header("user-agent").starts_with("qo/"));
}

#[tokio::test(flavor = "multi_thread")]
async fn text_stays_text_and_nothing_stays_nothing() {
    let (_server, bench) = bench().await;
    let task = bench.run(&json!({ "body": "thanks" })).await;
    assert_eq!(bench.output(&task).await.unwrap(), r#""thanks""#);
    let task = bench.run(&json!({ "status": 204 })).await;
    assert_eq!(task.status, Status::Completed);
    assert_eq!(bench.output(&task).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_status_means_what_the_table_says() {
    let (_server, bench) = bench().await;
    // With one retry left, a task that fails for good has one attempt, and one that is retried has two.
    for (status, attempts) in [
        (400, 1),
        (401, 1),
        (404, 1),
        (408, 2),
        (409, 1),
        (422, 1),
        (425, 2),
        (429, 2),
        (500, 2),
        (502, 2),
        (503, 2),
    ] {
        let wish = json!({ "status": status, "body": "because" });
        let id = bench.submit_with(&wish, 1, Duration::from_mins(1)).await;
        let task = bench.end(id).await;
        let text = error(&task);
        assert!(
            text.starts_with(&format!("the server answered {status} ")),
            "{text}"
        );
        assert!(text.ends_with(": because"), "{text}");
        assert_eq!(task.attempt, attempts, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed() {
    let (server, bench) = bench().await;
    let elsewhere = server.url("localhost");
    let wish = json!({ "status": 307, "headers": { "location": elsewhere } });
    let id = bench.submit_with(&wish, 3, Duration::from_mins(1)).await;
    let task = bench.end(id).await;
    assert!(
        error(&task).contains("a redirect to http://localhost"),
        "{}",
        error(&task)
    );
    assert!(error(&task).contains("not followed"));
    assert_eq!(task.attempt, 1);
    assert_eq!(server.requests(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_puts_the_task_off_without_counting() {
    let (_server, bench) = bench().await;
    let wish = json!({ "status": 429, "headers": { "retry-after": "1" }, "only_first": true });
    // A retry would end it, since none is left.
    let task = bench.run(&wish).await;
    assert_eq!(task.status, Status::Completed, "{task:?}");
    assert_eq!((task.attempt, task.retry_count), (2, 0));
    assert_eq!(bench.output(&task).await.unwrap(), r#""second""#);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_an_answer_fails_for_good() {
    let (_server, bench) = bench().await;
    let id = bench
        .submit_with(&json!({ "repeat": 65_537 }), 3, Duration::from_mins(1))
        .await;
    let task = bench.end(id).await;
    assert!(
        error(&task).contains("more than 65536 bytes"),
        "{}",
        error(&task)
    );
    assert!(!error(&task).contains("key=1"), "{}", error(&task));
    assert_eq!(task.attempt, 1);
    let fits = bench.run(&json!({ "repeat": 65_536 })).await;
    assert_eq!(fits.status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_refused_also_behind_a_name() {
    let server = Server::start().await;
    assert!(Target::parse(&server.url("127.0.0.1"), false).is_err());
    for name in ["localhost", "LOCALHOST"] {
        let bench = Bench::new(handler(&server.url(name), &[], false)).await;
        let id = bench
            .submit_with(&json!({}), 3, Duration::from_mins(1))
            .await;
        let task = bench.end(id).await;
        let text = error(&task);
        assert!(text.contains("not on the public internet"), "{text}");
        assert!(text.contains("--allow-private-addresses"), "{text}");
        assert_eq!(task.attempt, 1);
    }
    assert_eq!(server.requests(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_tried_again() {
    // A port that was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let bench = Bench::new(handler(&format!("http://127.0.0.1:{port}/"), &[], true)).await;
    let id = bench
        .submit_with(&json!(null), 1, Duration::from_mins(1))
        .await;
    let task = bench.end(id).await;
    assert!(
        error(&task).contains("cannot be reached"),
        "{}",
        error(&task)
    );
    assert_eq!(task.attempt, 2);

    let name = handler("http://no-such-host.invalid/", &[], true);
    let bench = Bench::new(name).await;
    let task = bench.run(&json!(null)).await;
    assert!(
        error(&task).contains("cannot be reached"),
        "{}",
        error(&task)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_or_a_cancel_ends_the_request() {
    let (server, bench) = bench().await;
    let wish = json!({ "hang": true });
    let id = bench.submit_with(&wish, 0, Duration::from_secs(1)).await;
    let task = bench.end(id).await;
    assert!(
        error(&task).contains("timed out after 1 s"),
        "{}",
        error(&task)
    );

    let id = bench.submit(&wish).await;
    eventually("the second request arrives", || server.requests() == 2).await;
    bench.queue.cancel(id, None).await.unwrap();
    assert_eq!(bench.end(id).await.status, Status::Cancelled);
}
