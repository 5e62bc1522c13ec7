//! An idempotency key stays with the task that took it last.

use std::time::Duration;

use qo_broker::BrokerEngine;
use qo_core::task::IdempotencyScope;
use qo_core::{Task, TaskId};
use qo_engine::Engine;
use qo_engine::api::{IdempotencyRequest, SubmitRequest, Submitted};
use qo_store::runtime::TokioRuntime;

use super::engines::{Journal, claim_one, job, memory};

/// How long the first holder keeps the key.
const WINDOW_MS: u64 = 20;

async fn submit(engine: &BrokerEngine, window_ms: Option<u64>) -> Submitted {
    let request = SubmitRequest {
        idempotency: Some(IdempotencyRequest {
            key: "key".parse().unwrap(),
            scope: IdempotencyScope::Global,
            window_ms,
        }),
        ..job("a")
    };
    engine.submit(request).await.unwrap()
}

async fn complete(engine: &BrokerEngine, expected: TaskId) -> Task {
    let (task, lease) = claim_one(engine, "a").await;
    assert_eq!(task.id, expected);
    engine.complete(task.id, lease, None).await.unwrap()
}

/// Submits a task with a key, and waits until the key is free again.
async fn old_holder(engine: &BrokerEngine) -> TaskId {
    let old = submit(engine, Some(WINDOW_MS)).await;
    TokioRuntime::shared()
        .sleep(Duration::from_millis(2 * WINDOW_MS))
        .await;
    old.task.id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_an_old_task_leaves_its_key_with_the_newer_holder() {
    for journal in Journal::BOTH {
        for replays in [false, true] {
            let runtime = TokioRuntime::shared();
            let engine = journal.open(memory(), &runtime).await.unwrap();
            let old = old_holder(&engine).await;
            complete(&engine, old).await;
            let new = submit(&engine, None).await;
            assert!(!new.duplicate);
            complete(&engine, new.task.id).await;
            if replays {
                engine.replay(old).await.unwrap();
            } else {
                engine.archive(old).await.unwrap();
            }
            let again = submit(&engine, None).await;
            assert_eq!(
                (again.duplicate, again.task.id),
                (true, new.task.id),
                "{journal:?}, replays: {replays}"
            );
            engine.close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_leaves_a_key_with_its_newer_holder() {
    for journal in Journal::BOTH {
        let runtime = TokioRuntime::shared();
        let store = memory();
        let engine = journal.open(store.clone(), &runtime).await.unwrap();
        let old = old_holder(&engine).await;
        let (running, _) = claim_one(&engine, "a").await;
        assert_eq!(running.id, old);
        let new = submit(&engine, None).await;
        complete(&engine, new.task.id).await;
        engine.close().await;
        let engine = journal.open(store, &runtime).await.unwrap();
        let again = submit(&engine, None).await;
        assert_eq!(
            (again.duplicate, again.task.id),
            (true, new.task.id),
            "{journal:?}"
        );
        engine.close().await;
    }
}
