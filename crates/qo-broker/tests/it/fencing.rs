//! An engine on SlateDB that another one has replaced reports that, changes nothing, and stops.

use std::sync::Arc;

use qo_core::Status;
use qo_engine::{Engine, EngineError};
use qo_store::runtime::TokioRuntime;

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
