//! Settings of queues: what they cost in requests, how soon a change takes effect, and the retention of each queue.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::memory::InMemory;
use qo_core::{Json, QueueSettings, Rejection, Task};
use qo_direct::{DirectConfig, DirectEngine};
use qo_engine::api::{ClaimRequest, DocumentWrite, SubmitRequest};
use qo_engine::{Engine, EngineError};
use qo_fixtures::until;
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{RuntimeExt, TokioRuntime};
use qo_store::wrap::{CountingStore, Operation};

const WAIT_MAX: Duration = Duration::from_secs(30);

struct Bucket {
    counting: Arc<CountingStore>,
}

impl Bucket {
    fn new() -> Self {
        Self {
            counting: Arc::new(CountingStore::new(Arc::new(InMemory::new()))),
        }
    }

    fn client(&self) -> StoreClient {
        StoreClient::new(
            self.counting.clone(),
            Arc::new(StoreClock::new()),
            TokioRuntime::shared(),
            ClientConfig::default(),
        )
    }

    fn engine(&self, config: DirectConfig) -> DirectEngine {
        DirectEngine::new(self.client(), None, TokioRuntime::shared(), config)
    }

    /// The reads of settings, of the signal and of the paused queues so far.
    fn reads(&self) -> u64 {
        self.counting.counts().of("meta", Operation::Get).requests
    }
}

fn request(queue: &str) -> SubmitRequest {
    SubmitRequest {
        queue: queue.parse().unwrap(),
        ..SubmitRequest::new("noop".parse().unwrap(), Json::null())
    }
}

async fn set(engine: &DirectEngine, queue: &str, body: &str) {
    let id = QueueSettings::document_id(&queue.parse().unwrap());
    let known = engine
        .documents(&qo_engine::api::DocumentQuery::one(&id))
        .await
        .unwrap();
    let expected = known.first().map(|document| document.version);
    let op = TokioRuntime::shared().new_op_id();
    let body = Some(Json::parse(body).unwrap());
    let write = DocumentWrite::new(id, expected, body, op);
    engine.write_document(write).await.unwrap();
}

async fn submitted(engine: &DirectEngine, queue: &str) -> Task {
    engine.submit(request(queue)).await.unwrap().task
}

async fn complete_all(engine: &DirectEngine, queue: &str) {
    let mut claim = ClaimRequest::new("w".parse().unwrap(), vec!["noop".parse().unwrap()]);
    claim.queues = vec![queue.parse().unwrap()];
    claim.max = 100;
    for task in engine.claim(&claim).await.unwrap() {
        let lease = task.lease_id.unwrap();
        engine.complete(task.id, lease, None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn submits_and_claims_need_no_requests_for_settings() {
    let bucket = Bucket::new();
    let engine = bucket.engine(DirectConfig::default());
    let many = (0..500).map(|_| request("default")).collect();
    for result in engine.submit_many(many).await {
        result.unwrap();
    }
    for _ in 0..100 {
        submitted(&engine, "default").await;
    }
    complete_all(&engine, "default").await;
    // Settings are read once at the start, and once when the process reads the signal for the first time. The signal is read once a second.
    let counts = bucket.counting.counts();
    assert!((2..=20).contains(&bucket.reads()), "{counts}");
    // The limits are listed once, when the process begins to claim, and the webhooks, when its first task ends.
    assert_eq!(counts.of("meta", Operation::List).requests, 2, "{counts}");
    // A queue with settings, but without a limit on waiting tasks, costs the same.
    let before = bucket.reads();
    set(&engine, "default", r#"{"max_retries":1}"#).await;
    for _ in 0..100 {
        assert_eq!(submitted(&engine, "default").await.max_retries, 1);
    }
    assert!(
        bucket.reads() - before <= 20,
        "{}",
        bucket.counting.counts()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_takes_effect_in_other_processes_within_seconds() {
    let bucket = Bucket::new();
    let (one, other) = (
        bucket.engine(DirectConfig::default()),
        bucket.engine(DirectConfig::default()),
    );
    let runtime = TokioRuntime::shared();
    assert_eq!(submitted(&other, "mail").await.max_retries, 3);
    for (body, expected) in [(r#"{"max_retries":8}"#, 8), ("{}", 3)] {
        set(&one, "mail", body).await;
        let began = runtime.monotonic();
        until("the other process reads the settings", async || {
            let task = submitted(&other, "mail").await;
            (task.max_retries == expected).then_some(())
        })
        .await;
        assert!(runtime.monotonic().saturating_sub(began) < Duration::from_secs(12));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_settings_stop_no_submit() {
    let bucket = Bucket::new();
    let engine = bucket.engine(DirectConfig::local());
    let client = bucket.client();
    for body in ["{\"max_waiting\":0}", "[1]", "nonsense"] {
        let text = format!(
            r#"{{"revision":1,"op_id":"550e8400-e29b-41d4-a716-446655440000","updated_at":"2026-01-01T00:00:00.000Z","body":{body}}}"#
        );
        let key = "meta/settings/queues/mail.json";
        client.put(key, Bytes::from(text)).await.unwrap();
        let fresh = bucket.engine(DirectConfig::local());
        match fresh.submit(request("mail")).await {
            Ok(submitted) => assert_eq!(submitted.task.max_retries, 3, "{body}"),
            // A document that is no JSON at all is reported, and nothing is written.
            Err(error) => assert!(
                body == "nonsense" && matches!(error, EngineError::Store(_)),
                "{body}: {error}"
            ),
        }
    }
    // Those of other queues are not affected.
    submitted(&engine, "default").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_keeps_the_limit_and_counts_once_a_second() {
    let bucket = Bucket::new();
    let engine = bucket.engine(DirectConfig::default());
    set(&engine, "mail", r#"{"max_waiting":20}"#).await;
    let full: EngineError = Rejection::QueueFull {
        queue: "mail".parse().unwrap(),
        limit: 20,
    }
    .into();
    let before = bucket
        .counting
        .counts()
        .of("ready", Operation::List)
        .requests;
    let many = (0..100).map(|_| request("mail")).collect();
    let results = engine.submit_many(many).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 20);
    assert!(
        results
            .iter()
            .flatten()
            .all(|submitted| !submitted.duplicate)
    );
    assert!(
        results
            .iter()
            .filter_map(|result| result.as_ref().err())
            .all(|error| *error == full)
    );
    let lists = bucket
        .counting
        .counts()
        .of("ready", Operation::List)
        .requests
        - before;
    assert!(lists <= 6, "{lists} LISTs for 100 submits");
    // Another process counts what is there.
    let other = bucket.engine(DirectConfig::default());
    assert_eq!(other.submit(request("mail")).await.unwrap_err(), full);
    // Other queues have room, and finished tasks make some.
    submitted(&engine, "default").await;
    complete_all(&engine, "mail").await;
    until("there is room", async || {
        let result = engine.submit(request("mail")).await;
        assert!(
            result.is_ok() || result.as_ref().err() == Some(&full),
            "{result:?}"
        );
        result.ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_tasks_are_kept_as_long_as_their_queue_says() {
    let bucket = Bucket::new();
    let engine = bucket.engine(DirectConfig::local());
    set(&engine, "short", r#"{"retention_seconds":1}"#).await;
    set(&engine, "long", r#"{"retention_seconds":3600}"#).await;
    let queues = ["short", "long", "default"];
    let mut tasks = Vec::new();
    for queue in queues {
        tasks.push(submitted(&engine, queue).await);
        complete_all(&engine, queue).await;
    }
    let pending = submitted(&engine, "short").await;
    let runtime = TokioRuntime::shared();
    let began = runtime.monotonic();
    while engine.get(tasks[0].id).await.is_ok() {
        assert!(runtime.monotonic().saturating_sub(began) < WAIT_MAX);
        runtime.sleep(Duration::from_millis(200)).await;
        engine.sweep_step().await.unwrap();
    }
    assert!(runtime.monotonic().saturating_sub(began) > Duration::from_millis(800));
    for kept in [&tasks[1], &tasks[2], &pending] {
        engine.get(kept.id).await.unwrap();
    }
    // Records that are kept are not read in every pass.
    let reads = || {
        bucket
            .counting
            .counts()
            .of("tasks", Operation::Get)
            .requests
    };
    engine.sweep_step().await.unwrap();
    let before = reads();
    for _ in 0..10 {
        engine.sweep_step().await.unwrap();
    }
    let more = reads() - before;
    assert!(more <= 10, "{more} reads of 3 records in 10 passes");
}
