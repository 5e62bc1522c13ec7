//! Bodies and responses stay within the memory that the server grants them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use object_store::ObjectStore;
use object_store::path::Path;
use object_store::{GetOptions, GetResult};
use qo_fixtures::until;
use qo_store::wrap::layer::{LayeredStore, StoreLayer};
use serde_json::json;
use tokio::sync::Notify;

use crate::access::filled;
use crate::support::{ApiRequest, TestServer, api, config, memory, serve, serve_store};

/// Holds reads below a prefix while it is closed.
#[derive(Clone)]
pub(crate) struct HeldReads {
    inner: Arc<dyn ObjectStore>,
    prefix: &'static str,
    pub(crate) closed: Arc<AtomicBool>,
    pub(crate) held: Arc<AtomicUsize>,
    opened: Arc<Notify>,
}

impl HeldReads {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, prefix: &'static str) -> Self {
        Self {
            inner,
            prefix,
            closed: Arc::default(),
            held: Arc::default(),
            opened: Arc::default(),
        }
    }

    pub(crate) fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
        self.opened.notify_waiters();
    }
}

impl fmt::Debug for HeldReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldReads")
    }
}

#[async_trait]
impl StoreLayer for HeldReads {
    fn inner(&self) -> &dyn ObjectStore {
        self.inner.as_ref()
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        if location.as_ref().starts_with(self.prefix) {
            let opened = self.opened.notified();
            if self.closed.load(Ordering::SeqCst) {
                self.held.fetch_add(1, Ordering::SeqCst);
                opened.await;
            }
        }
        self.inner.get_opts(location, options).await
    }
}

#[tokio::test]
async fn an_array_is_refused_at_its_first_item_too_many() {
    let server = serve(config()).await;
    for (path, item) in [
        ("/v1/tasks", r#"{"task_type":"t"}"#),
        (
            "/v1/outcomes",
            r#"{"id":"550e8400-e29b-41d4-a716-446655440000","release":{"lease_id":"650e8400-e29b-41d4-a716-446655440000"}}"#,
        ),
        ("/v1/tasks", "{}"),
    ] {
        // What follows the item too many is not read, so it need not be JSON.
        let body = format!("[{}{item},nonsense", format!("{item},").repeat(1_000));
        let problem = server
            .refused(api("POST", path).body(body), 400, "bad_request")
            .await;
        assert!(
            problem["detail"].as_str().unwrap().contains("1000"),
            "{problem}"
        );
    }
    assert_eq!(server.objects().await, [], "nothing was written");
}

#[tokio::test]
async fn lists_in_bodies_are_bounded_while_they_are_read() {
    let server = serve(config()).await;
    let repeated = |word: &str| vec![word; 2_000].join("\",\"");
    let filter = r#"{"operation":"cancel","dry_run":true,"filter":{"#;
    for (path, start, name, word) in [
        ("/v1/tasks", r#"{"task_type":"t","#, "tags", "n"),
        ("/v1/claim", r#"{"worker_id":"w","#, "queues", "n"),
        ("/v1/claim", r#"{"worker_id":"w","#, "types", "n"),
        ("/v1/claim", r#"{"worker_id":"w","#, "shards", "0"),
        ("/v1/bulk", filter, "statuses", "failed"),
    ] {
        let body = format!(r#"{start}"{name}":["{}",nonsense"#, repeated(word));
        let (status, problem) = server.reply(api("POST", path).body(body)).await;
        assert_eq!(status, 400, "{path} {name}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("at most"), "{path} {name}: {detail}");
    }
}

#[tokio::test]
async fn a_body_without_a_payload_is_small() {
    let server = serve(config()).await;
    for (method, path) in [
        ("POST", "/v1/claim"),
        ("POST", "/v1/tasks/{id}/release"),
        ("POST", "/v1/tasks/{id}/renew"),
        ("POST", "/v1/tasks/{id}/snooze"),
        ("POST", "/v1/tasks/{id}/cancel"),
        ("PUT", "/v1/workers/{worker}"),
    ] {
        let body = format!(r#"{{"x":"{}"}}"#, "x".repeat(2 * 1024 * 1024));
        let request = api(method, filled(path)).body(body);
        server.refused(request, 413, "body_too_large").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_room_of_a_body_is_taken_until_its_request_ends() {
    let mut store = memory();
    let reads = HeldReads::new(Arc::clone(&store.objects), "tasks/");
    store.objects = Arc::new(LayeredStore(reads.clone()));
    let mut config = config();
    config.limits.bodies_max_bytes = 10_000;
    let server = Arc::new(serve_store(store, config).await);
    reads.closed.store(true, Ordering::SeqCst);
    let complete = || {
        let body = json!({
            "lease_id": "650e8400-e29b-41d4-a716-446655440000",
            "output": "x".repeat(8_000),
        });
        api("POST", filled("/v1/tasks/{id}/complete")).json(&body)
    };
    let first = tokio::spawn({
        let (server, request) = (Arc::clone(&server), complete());
        async move { server.reply(request).await }
    });
    until("the first request waits for the store", async || {
        (reads.held.load(Ordering::SeqCst) > 0).then_some(())
    })
    .await;
    server.refused(complete(), 503, "overloaded").await;
    reads.open();
    assert_eq!(first.await.unwrap().0, 404);
    assert_eq!(server.reply(complete()).await.0, 404, "there is room again");
}

/// A server with 40 tasks of 20,000 bytes, whose responses are limited to 100,000 bytes.
async fn with_large_tasks() -> TestServer {
    let server = with_small_responses().await;
    server.reply(large_tasks()).await;
    server
}

async fn with_small_responses() -> TestServer {
    let mut config = config();
    config.limits.response_max_bytes = 100_000;
    serve(config).await
}

/// Submits 40 tasks of 20,000 bytes.
fn large_tasks() -> ApiRequest {
    let task = json!({"task_type": "t", "input": "x".repeat(20_000)});
    api("POST", "/v1/tasks").json(&json!(vec![task; 40]))
}

#[tokio::test]
async fn a_page_of_large_tasks_is_cut_short() {
    let server = with_large_tasks().await;
    let mut seen = 0;
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/tasks?limit=1000{cursor}");
        let response = server.send(api("GET", path)).await;
        assert_eq!(response.status(), 200);
        let body = response.bytes().await.unwrap();
        assert!(body.len() < 400_000, "{}", body.len());
        let page: serde_json::Value = serde_json::from_slice(&body).unwrap();
        seen += page["tasks"].as_array().unwrap().len();
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, 40, "no task is left out");
}

#[tokio::test]
async fn the_response_to_a_claim_is_bounded_and_no_task_is_lost() {
    let server = with_large_tasks().await;
    let mut seen = std::collections::BTreeSet::new();
    let mut counts = Vec::new();
    while seen.len() < 40 {
        let claim = json!({"worker_id": "w", "max": 40, "wait_ms": 20_000});
        let response = server.send(api("POST", "/v1/claim").json(&claim)).await;
        assert_eq!(response.status(), 200);
        let body = response.bytes().await.unwrap();
        assert!(body.len() < 110_000, "{}", body.len());
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let tasks = body["tasks"].as_array().unwrap();
        assert!(!tasks.is_empty(), "{counts:?}");
        counts.push(tasks.len());
        for task in tasks {
            assert_eq!(task["input"].as_str().unwrap().len(), 20_000);
            assert!(seen.insert(task["id"].to_string()), "claimed once");
        }
    }
    // Only the first claim takes more than it can hand out.
    let filter = qo::TaskFilter::default();
    let page = server
        .engine
        .list(qo::TaskQuery::first(&filter, 100))
        .await
        .unwrap();
    let tasks = page.tasks;
    let again = tasks.iter().filter(|task| task.attempt > 1).count();
    assert!(again <= 36, "{again} tasks were claimed twice: {counts:?}");
    assert!(tasks.iter().all(|task| task.attempt <= 2), "{counts:?}");
}

#[tokio::test]
async fn the_results_of_an_array_leave_out_payloads_that_do_not_fit() {
    let server = with_small_responses().await;
    let response = server.send(large_tasks()).await;
    let body = response.bytes().await.unwrap();
    assert!(body.len() < 200_000, "{}", body.len());
    let results: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let results = results.as_array().unwrap();
    assert_eq!(results.len(), 40);
    let inputs = results
        .iter()
        .filter(|result| result["task"]["input"].is_string())
        .count();
    assert_eq!(inputs, 4, "as many as fit");
    for result in results {
        let id = result["task"]["id"].as_str().unwrap();
        let stored = server.engine.get(id.parse().unwrap()).await.unwrap();
        assert!(stored.inline_input().is_some(), "it is stored in full");
    }
}

#[tokio::test]
async fn responses_share_a_room() {
    let mut config = config();
    config.limits.responses_max_bytes = 50_000;
    let server = serve(config).await;
    let body = json!({"task_type": "t", "input": "x".repeat(100_000)});
    let (_, submitted) = server.reply(api("POST", "/v1/tasks").json(&body)).await;
    let id = submitted["task"]["id"].as_str().unwrap();
    let read = || api("GET", format!("/v1/tasks/{id}/input"));
    server.refused(read(), 503, "overloaded").await;
    let small = json!({"task_type": "t", "input": "x".repeat(1_000)});
    let (_, submitted) = server.reply(api("POST", "/v1/tasks").json(&small)).await;
    let id = submitted["task"]["id"].as_str().unwrap();
    for _ in 0..100 {
        let (status, _) = server
            .reply(api("GET", format!("/v1/tasks/{id}/input")))
            .await;
        assert_eq!(status, 200, "a response that was sent takes no room");
    }
}

#[tokio::test]
async fn methods_that_nobody_knows_are_counted_as_one() {
    let server = serve(config()).await;
    for number in 0..20 {
        server
            .send(api(&format!("BREW{number}"), "/v1/tasks"))
            .await;
    }
    let response = server.send(api("GET", "/metrics")).await;
    let text = response.text().await.unwrap();
    assert!(!text.contains("BREW"), "{text}");
    let line = r#"qo_http_requests_total{route="/v1/tasks",method="other",status="405"} 20"#;
    assert!(text.lines().any(|found| found == line), "{text}");
}
