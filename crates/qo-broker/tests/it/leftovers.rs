//! The payloads of tasks that SlateDB drops after their retention are deleted, and no others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::stream::{BoxStream, StreamExt as _};
use object_store::ObjectStore;
use object_store::path::Path;
use qo_broker::BrokerEngine;
use qo_broker::SlateConfig;
use qo_core::{Task, Timestamp};
use qo_engine::Engine;
use qo_engine::api::SubmitRequest;
use qo_fixtures::{LayeredStore, StoreLayer};
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{BoxFuture, Runtime, TokioRuntime};

use tokio::sync::Semaphore;

use super::engines::{WAIT_MAX, claim_one, claim_request, job, json, memory};

/// The interval of the cleanup, which nothing else has.
const CLEANUP_INTERVAL: Duration = Duration::from_mins(7);

/// A runtime in which the cleanup runs when a permit is added.
#[derive(Debug)]
struct Gated {
    runtime: Arc<dyn Runtime>,
    runs: Runs,
}

/// The runs of the cleanup.
#[derive(Debug, Clone)]
struct Runs {
    permits: Arc<Semaphore>,
    /// How often the cleanup has waited for a permit.
    waits: Arc<AtomicUsize>,
}

impl Runs {
    /// Lets the cleanup run once.
    fn begin(&self) {
        self.permits.add_permits(1);
    }

    /// Waits until a number of runs have ended: the cleanup waits before each run and after the last one.
    async fn until_ended(&self, count: usize) {
        let runtime = TokioRuntime::shared();
        let deadline = runtime.monotonic() + WAIT_MAX;
        while self.waits.load(Ordering::SeqCst) <= count {
            assert!(runtime.monotonic() < deadline, "the cleanup has not ended");
            runtime.sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Runtime for Gated {
    fn now(&self) -> Timestamp {
        self.runtime.now()
    }

    fn monotonic(&self) -> Duration {
        self.runtime.monotonic()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        if duration != CLEANUP_INTERVAL {
            return self.runtime.sleep(duration);
        }
        self.runs.waits.fetch_add(1, Ordering::SeqCst);
        let permits = Arc::clone(&self.runs.permits);
        Box::pin(async move { permits.acquire_owned().await.unwrap().forget() })
    }

    fn spawn(&self, future: BoxFuture<()>) {
        self.runtime.spawn(future);
    }

    fn random(&self) -> u64 {
        self.runtime.random()
    }
}

/// An engine that keeps finished tasks for a second, and the runs of its cleanup.
async fn gated(store: &Arc<dyn ObjectStore>) -> (BrokerEngine, Runs) {
    let runs = Runs {
        permits: Arc::new(Semaphore::new(0)),
        waits: Arc::default(),
    };
    let runtime = Gated {
        runtime: TokioRuntime::shared(),
        runs: runs.clone(),
    };
    let mut config = SlateConfig::default();
    config.state.inline_max_bytes = 1_024;
    config.retention = Duration::from_secs(1);
    config.cleanup_interval = CLEANUP_INTERVAL;
    let engine = BrokerEngine::slate(
        Arc::clone(store),
        Arc::new(StoreClock::new()),
        Arc::new(runtime),
        ClientConfig::default(),
        config,
    );
    (engine.await.unwrap(), runs)
}

async fn until_dropped(engine: &BrokerEngine, task: &Task) {
    let runtime = TokioRuntime::shared();
    let deadline = runtime.monotonic() + WAIT_MAX;
    while engine.get(task.id).await.is_ok() {
        assert!(runtime.monotonic() < deadline);
        runtime.sleep(Duration::from_millis(50)).await;
    }
}

async fn until_cleaned(store: &dyn ObjectStore, tasks: &[Task]) {
    let runtime = TokioRuntime::shared();
    let deadline = runtime.monotonic() + WAIT_MAX;
    let prefix = Path::from("data");
    loop {
        let objects: Vec<_> = store.list(Some(&prefix)).try_collect().await.unwrap();
        let left = tasks.iter().filter(|task| {
            let id = task.id.to_string();
            let mut locations = objects.iter().map(|object| object.location.as_ref());
            locations.any(|location| location.contains(&id))
        });
        let left = left.count();
        if left == 0 {
            return;
        }
        assert!(runtime.monotonic() < deadline, "{left} tasks are left");
        runtime.sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_input_of_a_task_whose_id_was_used_before_is_kept() {
    let store = memory();
    let (engine, runs) = gated(&store).await;
    let first = run(&engine, "x").await;
    let other = run(&engine, "y").await;
    until_dropped(&engine, &first).await;
    until_dropped(&engine, &other).await;
    let request = SubmitRequest {
        id: Some(first.id),
        input: json(&large("x")),
        ..job("a")
    };
    let again = engine.submit(request).await.unwrap();
    assert!(!again.duplicate);
    runs.begin();
    // Entries are processed in the order of their times, but some at the same time, so a wrong deletion may come after that of the other task.
    until_cleaned(store.as_ref(), &[other]).await;
    runs.until_ended(1).await;
    let input = engine.input(&again.task).await.unwrap();
    assert_eq!(input.as_str(), large("x"));
    engine.close().await;
}

/// A store that refuses to delete the payloads of one task.
#[derive(Debug)]
struct Undeletable {
    store: Arc<dyn ObjectStore>,
    id: Arc<OnceLock<String>>,
}

impl StoreLayer for Undeletable {
    fn inner(&self) -> &dyn ObjectStore {
        self.store.as_ref()
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        let id = Arc::clone(&self.id);
        let allowed = locations.map(move |location| {
            let location = location?;
            let is_kept = id
                .get()
                .is_some_and(|id| location.as_ref().contains(id.as_str()));
            if is_kept {
                return Err(object_store::Error::PermissionDenied {
                    path: location.to_string(),
                    source: "a policy of the bucket forbids it".into(),
                });
            }
            Ok(location)
        });
        self.inner().delete_stream(Box::pin(allowed))
    }
}

/// Runs tasks with large inputs to their end. Returns them in this order.
async fn run_many(engine: &BrokerEngine, count: usize) -> Vec<Task> {
    let requests = (0..count).map(|_| SubmitRequest {
        input: json(&large("x")),
        ..job("a")
    });
    for submitted in engine.submit_many(requests.collect()).await {
        submitted.unwrap();
    }
    let mut done: Vec<Task> = Vec::new();
    while done.len() < count {
        let tasks = engine
            .claim(&claim_request("a", 500, 30_000))
            .await
            .unwrap();
        for task in tasks {
            let lease = task.lease_id.unwrap();
            done.push(engine.complete(task.id, lease, None).await.unwrap());
        }
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_cleanup_deletes_everything_that_is_due() {
    let store = memory();
    let (engine, runs) = gated(&store).await;
    let done = run_many(&engine, 1_200).await;
    until_dropped(&engine, done.last().unwrap()).await;
    runs.begin();
    until_cleaned(store.as_ref(), &done).await;
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_cannot_be_deleted_does_not_stop_the_cleanup() {
    let below = memory();
    let id = Arc::new(OnceLock::new());
    let store: Arc<dyn ObjectStore> = Arc::new(LayeredStore(Undeletable {
        store: Arc::clone(&below),
        id: Arc::clone(&id),
    }));
    let (engine, runs) = gated(&store).await;
    let done = run_many(&engine, 600).await;
    id.set(done[0].id.to_string()).unwrap();
    until_dropped(&engine, done.last().unwrap()).await;
    runs.begin();
    until_cleaned(below.as_ref(), &done[1..]).await;
    assert_eq!(payloads(below.as_ref(), &done[0]).await, 1);
    engine.close().await;
}

/// A runtime that shortens long sleeps, so that periodic work runs all the time.
#[derive(Debug)]
struct Sleepless(Arc<dyn Runtime>);

impl Runtime for Sleepless {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        let is_long = duration > Duration::from_mins(5);
        let short = Duration::from_millis(50);
        self.0.sleep(if is_long { short } else { duration })
    }

    fn spawn(&self, future: BoxFuture<()>) {
        self.0.spawn(future);
    }

    fn random(&self) -> u64 {
        self.0.random()
    }
}

fn large(mark: &str) -> String {
    format!("\"{}\"", mark.repeat(2_048))
}

async fn run(engine: &BrokerEngine, mark: &str) -> Task {
    let request = SubmitRequest {
        input: json(&large(mark)),
        ..job("a")
    };
    let id = engine.submit(request).await.unwrap().task.id;
    let (task, lease) = claim_one(engine, "a").await;
    assert_eq!(task.id, id);
    let output = Some(json(&large(mark)));
    engine.complete(id, lease, output).await.unwrap()
}

async fn payloads(store: &dyn ObjectStore, task: &Task) -> usize {
    let id = task.id.to_string();
    let prefix = Path::from("data");
    let objects: Vec<_> = store.list(Some(&prefix)).try_collect().await.unwrap();
    objects
        .iter()
        .filter(|object| object.location.as_ref().contains(&id))
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_are_deleted_with_the_tasks_that_the_database_drops() {
    let store = memory();
    let runtime: Arc<dyn Runtime> = Arc::new(Sleepless(TokioRuntime::shared()));
    let mut config = SlateConfig::default();
    config.state.inline_max_bytes = 1_024;
    config.retention = Duration::from_secs(6);
    let engine = BrokerEngine::slate(
        Arc::clone(&store),
        Arc::new(StoreClock::new()),
        Arc::clone(&runtime),
        ClientConfig::default(),
        config,
    )
    .await
    .unwrap();
    let done = run(&engine, "x").await;
    assert_eq!(payloads(store.as_ref(), &done).await, 2);
    // A task that is replayed before its retention ends keeps its input.
    let replayed = run(&engine, "y").await;
    let replayed = engine.replay(replayed.id).await.unwrap();
    let deadline = runtime.monotonic() + WAIT_MAX;
    while payloads(store.as_ref(), &done).await > 0 {
        assert!(
            runtime.monotonic() < deadline,
            "the payloads are still there"
        );
        runtime.sleep(Duration::from_millis(50)).await;
    }
    assert!(engine.get(done.id).await.unwrap_err().is_not_found());
    let input = engine.input(&replayed).await.unwrap();
    assert_eq!(input.as_str(), large("y"));
    let (again, lease) = claim_one(&engine, "a").await;
    assert_eq!(again.id, replayed.id);
    let output = Some(json(&large("z")));
    let again = engine.complete(again.id, lease, output).await.unwrap();
    let output = engine.output(&again).await.unwrap().unwrap();
    assert_eq!(output.as_str(), large("z"));
    engine.close().await;
}
