//! Requests to a real server on this machine, which are allowed only with the flag.

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

use super::{HandlerTest, error, eventually, task_type};

/// The received requests.
type ReceivedRequests = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// A server whose response is controlled by the task's input. It records the requests.
struct TestServer {
    port: u16,
    received: ReceivedRequests,
}

impl TestServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = ReceivedRequests::default();
        let app = Router::new()
            .fallback(respond)
            .with_state(Arc::clone(&received));
        TokioRuntime::shared().spawn(Box::pin(async move {
            axum::serve(listener, app).await.unwrap();
        }));
        Self { port, received }
    }

    fn url(&self, host: &str) -> String {
        format!("http://{host}:{}/hook?key=1", self.port)
    }

    fn requests(&self) -> usize {
        self.received.lock().unwrap().len()
    }

    fn request(&self, index: usize) -> (HeaderMap, String) {
        self.received.lock().unwrap()[index].clone()
    }
}

async fn respond(
    State(received): State<ReceivedRequests>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = String::from_utf8(body.to_vec()).unwrap();
    let script: Value = serde_json::from_str(&body).unwrap_or_default();
    let nth = {
        let mut received = received.lock().unwrap();
        received.push((headers, body));
        received.len()
    };
    if script["hang"] == true {
        TokioRuntime::shared().sleep(Duration::from_mins(10)).await;
    }
    if script["only_first"] == true && nth > 1 {
        return "second".into_response();
    }
    let status = script["status"].as_u64().unwrap_or(200);
    let status = StatusCode::from_u16(u16::try_from(status).unwrap()).unwrap();
    let mut response_headers = HeaderMap::new();
    for (name, value) in script["headers"].as_object().into_iter().flatten() {
        let name: axum::http::HeaderName = name.parse().unwrap();
        response_headers.insert(name, value.as_str().unwrap().parse().unwrap());
    }
    let body = match &script["repeat"] {
        Value::Number(times) => "x".repeat(usize::try_from(times.as_u64().unwrap()).unwrap()),
        _ => script["body"].as_str().unwrap_or_default().to_owned(),
    };
    (status, response_headers, body).into_response()
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

async fn test_with_server() -> (TestServer, HandlerTest) {
    let server = TestServer::start().await;
    let test = HandlerTest::new(handler(&server.url("127.0.0.1"), &[], true)).await;
    (server, test)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_input_is_posted_with_task_headers_and_the_response_is_the_output() {
    let server = TestServer::start().await;
    let lines = ["Authorization: Bearer ${TOKEN}", "X-More: 1"];
    let test = HandlerTest::new(handler(&server.url("localhost"), &lines, true)).await;
    let task = test.run(&json!({ "body": "{\"ok\": true}" })).await;
    assert_eq!(task.status, Status::Completed, "{task:?}");
    assert_eq!(test.output(&task).await.unwrap(), "{\"ok\": true}");

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
async fn text_and_empty_responses_are_kept() {
    let (_server, test) = test_with_server().await;
    let task = test.run(&json!({ "body": "thanks" })).await;
    assert_eq!(test.output(&task).await.unwrap(), r#""thanks""#);
    let task = test.run(&json!({ "status": 204 })).await;
    assert_eq!(task.status, Status::Completed);
    assert_eq!(test.output(&task).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn statuses_map_as_documented() {
    let (_server, test) = test_with_server().await;
    // With one retry, a permanent failure has one attempt and a retried one has two.
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
        let script = json!({ "status": status, "body": "because" });
        let id = test.submit_with(&script, 1, Duration::from_mins(1)).await;
        let task = test.end(id).await;
        let text = error(&task);
        assert!(
            text.starts_with(&format!("the server responded with {status} ")),
            "{text}"
        );
        assert!(text.ends_with(": because"), "{text}");
        assert_eq!(task.attempt, attempts, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed() {
    let (server, test) = test_with_server().await;
    let elsewhere = server.url("localhost");
    let script = json!({ "status": 307, "headers": { "location": elsewhere } });
    let id = test.submit_with(&script, 3, Duration::from_mins(1)).await;
    let task = test.end(id).await;
    assert!(
        error(&task).contains("redirects to http://localhost"),
        "{}",
        error(&task)
    );
    assert!(error(&task).contains("not followed"));
    assert_eq!(task.attempt, 1);
    assert_eq!(server.requests(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_does_not_count_as_a_retry() {
    let (_server, test) = test_with_server().await;
    let script = json!({ "status": 429, "headers": { "retry-after": "1" }, "only_first": true });
    // A retry would fail the task, since none is left.
    let task = test.run(&script).await;
    assert_eq!(task.status, Status::Completed, "{task:?}");
    assert_eq!((task.attempt, task.retry_count), (2, 0));
    assert_eq!(test.output(&task).await.unwrap(), r#""second""#);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_a_response_is_a_permanent_failure() {
    let (_server, test) = test_with_server().await;
    let id = test
        .submit_with(&json!({ "repeat": 65_537 }), 3, Duration::from_mins(1))
        .await;
    let task = test.end(id).await;
    assert!(
        error(&task).contains("more than 65536 bytes"),
        "{}",
        error(&task)
    );
    assert!(!error(&task).contains("key=1"), "{}", error(&task));
    assert_eq!(task.attempt, 1);
    let fits = test.run(&json!({ "repeat": 65_536 })).await;
    assert_eq!(fits.status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_rejected_even_behind_a_name() {
    let server = TestServer::start().await;
    assert!(Target::parse(&server.url("127.0.0.1"), false).is_err());
    for name in ["localhost", "LOCALHOST"] {
        let test = HandlerTest::new(handler(&server.url(name), &[], false)).await;
        let id = test
            .submit_with(&json!({}), 3, Duration::from_mins(1))
            .await;
        let task = test.end(id).await;
        let text = error(&task);
        assert!(text.contains("not on the public internet"), "{text}");
        assert!(text.contains("--allow-private-addresses"), "{text}");
        assert_eq!(task.attempt, 1);
    }
    assert_eq!(server.requests(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_server_is_retried() {
    // A port on which nothing listens any more.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let test = HandlerTest::new(handler(&format!("http://127.0.0.1:{port}/"), &[], true)).await;
    let id = test
        .submit_with(&json!(null), 1, Duration::from_mins(1))
        .await;
    let task = test.end(id).await;
    assert!(
        error(&task).contains("cannot be reached"),
        "{}",
        error(&task)
    );
    assert_eq!(task.attempt, 2);

    let name = handler("http://no-such-host.invalid/", &[], true);
    let test = HandlerTest::new(name).await;
    let task = test.run(&json!(null)).await;
    assert!(
        error(&task).contains("cannot be reached"),
        "{}",
        error(&task)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_or_a_cancel_ends_the_request() {
    let (server, test) = test_with_server().await;
    let script = json!({ "hang": true });
    let id = test.submit_with(&script, 0, Duration::from_secs(1)).await;
    let task = test.end(id).await;
    assert!(
        error(&task).contains("timed out after 1 s"),
        "{}",
        error(&task)
    );

    let id = test.submit(&script).await;
    eventually("the second request arrives", || server.requests() == 2).await;
    test.queue.cancel(id, None).await.unwrap();
    assert_eq!(test.end(id).await.status, Status::Cancelled);
}
