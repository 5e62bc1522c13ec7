//! A new process reads exactly what was acknowledged.

use std::sync::Arc;

use qo_core::transition::{Failure, FailureKind};
use qo_core::{DocumentId, DocumentKind, Route, Status, Task};
use qo_engine::Engine;
use qo_engine::api::{DocumentQuery, DocumentWrite, IdempotencyRequest, SubmitRequest, When};
use qo_store::runtime::{RuntimeExt, TokioRuntime};

use super::engines::{Journal, all_tasks, claim_one, claim_request, job, json, memory};

/// A queue with a task in every state, and one that is paused.
async fn furnish(engine: &dyn Engine) {
    engine.submit(job("pending")).await.unwrap();
    let later = SubmitRequest {
        available: When::InMillis(3_600_000),
        tags: vec!["t".parse().unwrap()],
        ..job("later")
    };
    engine.submit(later).await.unwrap();
    engine.submit(job("running")).await.unwrap();
    claim_one(engine, "running").await;
    for (name, kind) in [
        ("failed", FailureKind::Permanent),
        ("retried", FailureKind::Retryable),
    ] {
        engine.submit(job(name)).await.unwrap();
        let (task, lease) = claim_one(engine, name).await;
        let error = "no".into();
        engine
            .fail(task.id, lease, Failure { kind, error })
            .await
            .unwrap();
    }
    for name in ["completed", "archived", "replayed", "purged", "large"] {
        let mut request = SubmitRequest {
            idempotency: Some(IdempotencyRequest {
                key: name.parse().unwrap(),
                scope: qo_core::task::IdempotencyScope::Queue,
                window_ms: None,
            }),
            ..job(name)
        };
        if name == "large" {
            request.input = json(&format!("\"{}\"", "x".repeat(100_000)));
        }
        engine.submit(request).await.unwrap();
        let (task, lease) = claim_one(engine, name).await;
        engine
            .complete(task.id, lease, Some(json("[7]")))
            .await
            .unwrap();
        match name {
            "archived" => drop(engine.archive(task.id).await.unwrap()),
            "replayed" => drop(engine.replay(task.id).await.unwrap()),
            "purged" => engine.purge(task.id).await.unwrap(),
            _ => {}
        }
    }
    engine.pause(&"resting".parse().unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_new_process_reads_everything() {
    for journal in Journal::BOTH {
        // Once after a clean stop, and once after a crash.
        for closes in [true, false] {
            let runtime = TokioRuntime::shared();
            let store = memory();
            let first = journal.open(Arc::clone(&store), &runtime).await.unwrap();
            furnish(&first).await;
            let before: Vec<Task> = all_tasks(&first).await;
            let stats = first.stats().await.unwrap();
            assert_eq!(before.len(), 9);
            if closes {
                first.close().await;
            } else {
                drop(first);
            }
            let second = journal.open(store, &runtime).await.unwrap();
            assert_eq!(all_tasks(&second).await, before, "{journal:?}");
            let mut again = second.stats().await.unwrap();
            for (name, queue) in &mut again.queues {
                // Due tasks are still due.
                queue.oldest_due = stats.queues[name].oldest_due;
            }
            assert_eq!(again, stats, "{journal:?}");
            assert!(stats.queues[&"resting".parse().unwrap()].paused);

            // Keys still identify their tasks, live or finished. The key of a purged task is free.
            for name in ["completed", "archived", "replayed", "purged"] {
                let request = SubmitRequest {
                    idempotency: Some(IdempotencyRequest {
                        key: name.parse().unwrap(),
                        scope: qo_core::task::IdempotencyScope::Queue,
                        window_ms: None,
                    }),
                    ..job(name)
                };
                let submitted = second.submit(request).await.unwrap();
                assert_eq!(submitted.duplicate, name != "purged", "{journal:?} {name}");
            }
            // A finished task can be replayed.
            let ended = before
                .iter()
                .find(|task| task.status == Status::Completed)
                .unwrap();
            second.replay(ended.id).await.unwrap();
            let claimed = second
                .claim(&claim_request(ended.task_type.as_str(), 1, 5_000))
                .await;
            let claimed = claimed.unwrap().pop().unwrap();
            assert_eq!((claimed.id, claimed.attempt), (ended.id, 2));
            assert_eq!(
                second.input(&claimed).await.unwrap(),
                second.input(ended).await.unwrap()
            );
            second.close().await;
        }
    }
}

#[tokio::test]
async fn documents_and_their_tasks_survive_a_restart() {
    let runtime = TokioRuntime::shared();
    for journal in Journal::BOTH {
        let objects = memory();
        let engine = journal.open(Arc::clone(&objects), &runtime).await.unwrap();
        let id = DocumentId {
            kind: DocumentKind::Schedules,
            name: "nightly".parse().unwrap(),
        };
        let task = runtime.new_task_id().with_route(Route::DOCUMENTS);
        let write = DocumentWrite {
            submits: vec![SubmitRequest {
                id: Some(task),
                ..job("report")
            }],
            ..DocumentWrite::new(
                id.clone(),
                None,
                Some(json("{\"n\": 1.0}")),
                runtime.new_op_id(),
            )
        };
        let written = engine.write_document(write).await.unwrap().unwrap();
        let removed = DocumentId {
            name: "gone".parse().unwrap(),
            ..id.clone()
        };
        let op = runtime.new_op_id();
        let create = DocumentWrite::new(removed.clone(), None, Some(json("{}")), op);
        engine.write_document(create).await.unwrap();
        let remove = DocumentWrite::new(removed, Some(op), None, runtime.new_op_id());
        engine.write_document(remove).await.unwrap();
        engine.close().await;
        let again = journal.open(objects, &runtime).await.unwrap();
        let all = DocumentQuery::all(DocumentKind::Schedules);
        assert_eq!(again.documents(&all).await.unwrap(), [written]);
        assert_eq!(again.get(task).await.unwrap().id, task);
        let stale = DocumentWrite::new(id, None, Some(json("{}")), runtime.new_op_id());
        assert!(again.write_document(stale).await.is_err());
        again.close().await;
    }
}
