//! The payloads of tasks that SlateDB drops after their retention are deleted, and no others.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use qo_broker::BrokerEngine;
use qo_broker::SlateConfig;
use qo_core::{Task, Timestamp};
use qo_engine::Engine;
use qo_engine::api::SubmitRequest;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{BoxFuture, Runtime, TokioRuntime};

use super::engines::{WAIT_MAX, claim_one, job, json, memory};

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
