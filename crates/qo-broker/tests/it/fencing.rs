//! An engine on SlateDB that another one has replaced reports that, changes nothing, and stops.

use std::sync::Arc;

use async_trait::async_trait;
use object_store::path::Path;
use object_store::{ObjectStore, PutOptions, PutPayload, PutResult};
use qo_broker::{BrokerEngine, SlateConfig};
use qo_core::Status;
use qo_engine::{Engine, EngineError};
use qo_fixtures::{LayeredStore, StoreLayer};
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{RuntimeExt, TokioRuntime};
use tokio::sync::watch;

use super::engines::{Journal, all_tasks, claim_one, claim_request, job, memory};
use crate::engines::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replaced_engine_serves_nothing_and_writes_nothing() {
    let runtime = TokioRuntime::shared();
    let store = memory();
    let old = Journal::Slate
        .open(Arc::clone(&store), &runtime)
        .await
        .unwrap();
    let task = old.submit(job("a")).await.unwrap().task;
    let (_, lease) = claim_one(&old, "a").await;
    let new = Journal::Slate.open(store, &runtime).await.unwrap();

    // Reads come first, because only they could return stale data.
    assert_eq!(old.get(task.id).await, Err(EngineError::NotLeader));
    assert_eq!(old.stats().await.unwrap_err(), EngineError::NotLeader);
    let refused = [
        old.complete(task.id, lease, Some(json("\"old\""))).await,
        old.cancel(task.id, None).await,
    ];
    for answer in refused {
        assert_eq!(answer.unwrap_err(), EngineError::NotLeader);
    }
    assert_eq!(
        old.submit(job("a")).await.unwrap_err(),
        EngineError::NotLeader
    );
    for answer in old.submit_many(vec![job("a"), job("b")]).await {
        assert_eq!(answer.unwrap_err(), EngineError::NotLeader);
    }
    let claim = old.claim(&claim_request("a", 1, 5_000)).await;
    assert_eq!(claim.unwrap_err(), EngineError::NotLeader);
    old.close().await;

    let tasks = all_tasks(&new).await;
    assert_eq!(tasks.len(), 1, "nothing of it was written: {tasks:?}");
    assert_eq!(tasks[0].status, Status::Running);
    let done = new.complete(task.id, lease, None).await.unwrap();
    assert_eq!(
        done.status,
        Status::Completed,
        "the attempt goes on elsewhere"
    );
    new.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everything_a_replaced_engine_acknowledged_exists() {
    let runtime = TokioRuntime::shared();
    let store = memory();
    let mut engine = Journal::Slate
        .open(Arc::clone(&store), &runtime)
        .await
        .unwrap();
    let mut acknowledged = std::collections::BTreeSet::new();
    for _ in 0..4 {
        // Clients submit while the next engine takes over.
        let mut submitters = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let engine = engine.clone();
            submitters.spawn(async move {
                let mut ids = Vec::new();
                loop {
                    match engine.submit(job("a")).await {
                        Ok(submitted) => ids.push(submitted.task.id),
                        Err(EngineError::NotLeader) => return ids,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let enough = async { while engine.stats().await.unwrap().queues.is_empty() {} };
        enough.await;
        let successor = Journal::Slate
            .open(Arc::clone(&store), &runtime)
            .await
            .unwrap();
        acknowledged.extend(submitters.join_all().await.concat());
        engine = successor;
    }
    let there: std::collections::BTreeSet<_> = all_tasks(&engine)
        .await
        .into_iter()
        .map(|task| task.id)
        .collect();
    assert!(!acknowledged.is_empty());
    assert!(
        acknowledged.is_subset(&there),
        "{} of {} are missing",
        acknowledged.difference(&there).count(),
        acknowledged.len()
    );
    engine.close().await;
}

/// A write that became durable before a takeover says nothing about a read that comes after it, even if the response to the write
/// comes after the read.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests in real time use tokio's tasks"
)]
async fn a_write_before_a_takeover_does_not_confirm_a_read_after_it() {
    let runtime = TokioRuntime::shared();
    let store = memory();
    let late = Arc::new(LayeredStore(LateResponses::new(Arc::clone(&store))));
    let old = Journal::Slate.open(late.clone(), &runtime).await.unwrap();
    let task = old.submit(job("a")).await.unwrap().task;

    late.0.holds.send_replace(true);
    let writer = old.clone();
    let write = tokio::spawn(async move { writer.submit(job("b")).await });
    let mut applied = late.0.applied.subscribe();
    applied.wait_for(|applied| *applied).await.unwrap();
    let new = Journal::Slate.open(store, &runtime).await.unwrap();
    new.cancel(task.id, None).await.unwrap();

    let reader = old.clone();
    let read = tokio::spawn(async move { reader.get(task.id).await });
    // Long enough for the read to be behind the write, and not long enough for the old engine to notice its successor.
    runtime.sleep(std::time::Duration::from_millis(300)).await;
    late.0.holds.send_replace(false);
    assert_eq!(read.await.unwrap(), Err(EngineError::NotLeader));
    drop(write);
    new.close().await;
}

/// Holds back the responses to applied writes of the log.
#[derive(Debug)]
struct LateResponses {
    inner: Arc<dyn ObjectStore>,
    holds: watch::Sender<bool>,
    applied: watch::Sender<bool>,
}

impl LateResponses {
    fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self {
            inner,
            holds: watch::Sender::new(false),
            applied: watch::Sender::new(false),
        }
    }
}

#[async_trait]
impl StoreLayer for LateResponses {
    fn inner(&self) -> &dyn ObjectStore {
        &*self.inner
    }

    async fn put_opts(
        &self,
        path: &Path,
        body: PutPayload,
        opts: PutOptions,
    ) -> object_store::Result<PutResult> {
        let result = self.inner.put_opts(path, body, opts).await;
        if path.as_ref().starts_with("slate/wal/") && *self.holds.borrow() {
            self.applied.send_replace(true);
            let mut holds = self.holds.subscribe();
            let _ = holds.wait_for(|holds| !holds).await;
        }
        result
    }
}

/// SlateDB refuses writes with a clock behind that of the last writer. The times of two gateways of one store can differ by more than
/// SlateDB waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_successor_whose_clock_is_behind_writes_at_once() {
    let runtime = TokioRuntime::shared();
    let store = memory();
    let open = async |clock_ahead_ms: u64| {
        let clock = StoreClock::new();
        let date = runtime.now().plus_millis(clock_ahead_ms);
        clock.observe(runtime.moment(), runtime.moment(), date);
        BrokerEngine::slate(
            Arc::clone(&store),
            Arc::new(clock),
            Arc::clone(&runtime),
            ClientConfig::default(),
            SlateConfig::default(),
        )
        .await
        .unwrap()
    };
    let ahead = open(60_000).await;
    ahead.submit(job("a")).await.unwrap();
    ahead.close().await;
    let behind = open(0).await;
    behind.submit(job("a")).await.unwrap();
    assert_eq!(all_tasks(&behind).await.len(), 2);
    behind.close().await;
}
