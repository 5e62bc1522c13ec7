//! Claims of clients that disconnect or repeat a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use object_store::path::Path;
use object_store::{ObjectStore, PutMode, PutOptions, PutPayload, PutResult, Result};
use qo::{Status, SubmitRequest};
use qo_store::wrap::{CountingStore, Operation};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use qo_fixtures::{LayeredStore, StoreLayer, until};

use crate::support::{
    TestServer, WAIT_MAX, api, config, json_on, memory, serve, serve_engine, serve_store,
};

fn request() -> SubmitRequest {
    SubmitRequest::new("t".parse().unwrap(), qo::Json::null())
}

/// Sends a claim on a connection of its own, which the caller can break.
async fn claim_on_connection(server: &TestServer, body: &Value) -> TcpStream {
    let mut connection = TcpStream::connect(server.authority()).await.unwrap();
    let body = body.to_string();
    let head = format!(
        "POST /v1/claim HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        server.authority(),
        body.len()
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    connection
}

/// Waits until the server has this many connections, one of which asks for their number.
async fn until_connections(server: &TestServer, count: usize) {
    let line = format!("qo_connections {count}\n");
    until("the number of connections changes", async || {
        let (_, metrics) = server.reply(api("GET", "/metrics")).await;
        metrics.as_str().unwrap().contains(&line).then_some(())
    })
    .await;
}

/// Breaks the connection of a claim that waits, and waits until the server has seen it.
async fn vanish_while_waiting(server: &TestServer, body: &Value) {
    let connection = claim_on_connection(server, body).await;
    until_connections(server, 2).await;
    // Long enough for the claim to have read the queue.
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(connection);
    until_connections(server, 1).await;
}

/// Holds the swaps of tasks back while it is closed.
#[derive(Debug)]
struct HeldSwaps {
    inner: Arc<dyn ObjectStore>,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    is_closed: AtomicBool,
    held: AtomicUsize,
    opened: tokio::sync::Notify,
}

#[async_trait]
impl StoreLayer for HeldSwaps {
    fn inner(&self) -> &dyn ObjectStore {
        self.inner.as_ref()
    }

    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let is_swap = matches!(opts.mode, PutMode::Update(_));
        if is_swap && path.as_ref().starts_with("tasks/") {
            let opened = self.gate.opened.notified();
            if self.gate.is_closed.load(Ordering::SeqCst) {
                self.gate.held.fetch_add(1, Ordering::SeqCst);
                opened.await;
            }
        }
        self.inner.put_opts(path, body, opts).await
    }
}

/// Direct mode: the swap of a claim is under way when the client goes and the server stops. The server ends after the swap, and not before
/// it has released the task, which therefore does not wait for the end of its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_a_claim_that_is_being_made_and_releases_its_task() {
    let mut store = memory();
    let gate = Arc::new(Gate::default());
    store.objects = Arc::new(LayeredStore(HeldSwaps {
        inner: Arc::clone(&store.objects),
        gate: Arc::clone(&gate),
    }));
    let mut server = serve_store(store, config()).await;
    let task = server.engine.submit(request()).await.unwrap().task;
    gate.is_closed.store(true, Ordering::SeqCst);
    let connection = claim_on_connection(&server, &json!({"worker_id": "gone"})).await;
    until("the claim swaps the task", async || {
        (gate.held.load(Ordering::SeqCst) > 0).then_some(())
    })
    .await;
    drop(connection);
    until_connections(&server, 1).await;
    server.stop();
    let mut ended = server.ended.take().unwrap();
    let early = tokio::time::timeout(Duration::from_millis(500), &mut ended).await;
    assert!(early.is_err(), "the server ended before the claim");
    gate.is_closed.store(false, Ordering::SeqCst);
    gate.opened.notify_waiters();
    tokio::time::timeout(WAIT_MAX, ended)
        .await
        .unwrap()
        .unwrap();
    let task = server.engine.get(task.id).await.unwrap();
    assert_eq!((task.status, task.attempt), (Status::Pending, 1));
    assert_eq!(task.retry_count, 0, "a release is not a retry");
}

/// A claim can have hundreds of tasks. Releasing one after the other would need a commit for each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tasks_of_a_client_that_has_gone_are_released_together() {
    const TASKS: usize = 100;
    let mut store = memory();
    let counting = Arc::new(CountingStore::new(Arc::clone(&store.objects)));
    store.objects = Arc::clone(&counting) as _;
    let engine = Arc::new(json_on(&store));
    let server = serve_engine(store, engine, config()).await;
    let body = json!({"worker_id": "gone", "max": TASKS, "wait_ms": 20_000});
    vanish_while_waiting(&server, &body).await;
    for result in server.engine.submit_many(vec![request(); TASKS]).await {
        result.unwrap();
    }
    let all_have = async |attempt: u32, status: Status| {
        let filter = qo::TaskFilter::default();
        let query = qo::engine::api::TaskQuery::first(&filter, 1_000);
        let tasks = server.engine.list(query).await.unwrap().tasks;
        let is_so = |task: &qo::Task| (task.attempt, task.status) == (attempt, status);
        (tasks.iter().filter(|task| is_so(task)).count() == TASKS).then_some(())
    };
    until("the claim has all tasks", async || {
        all_have(1, Status::Running).await
    })
    .await;
    let writes = || counting.counts().total(Operation::Swap).requests;
    let before = writes();
    until("the tasks are released", async || {
        all_have(1, Status::Pending).await
    })
    .await;
    let spent = writes() - before;
    assert!(spent <= 10, "{spent} commits for {TASKS} tasks");
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
    vanish_while_waiting(&server, &json!({"worker_id": "gone", "wait_ms": 20_000})).await;
    let task = server.engine.submit(request()).await.unwrap().task;
    let returned = until("the task is released", async || {
        let task = server.engine.get(task.id).await.unwrap();
        (task.attempt == 1 && task.status == Status::Pending).then_some(task)
    })
    .await;
    assert_eq!(returned.retry_count, 0, "a release is not a retry");
}
