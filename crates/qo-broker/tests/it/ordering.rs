//! Ordering keys across restarts.

use std::sync::Arc;

use qo_core::task::{OnFailure, OrderingRule};
use qo_core::transition::{Failure, FailureKind};
use qo_core::{Status, TaskId};
use qo_engine::Engine;
use qo_engine::api::SubmitRequest;
use qo_store::runtime::TokioRuntime;

use super::engines::{Journal, claim_one, claim_request, job, memory};

fn ordered(on_failure: OnFailure) -> SubmitRequest {
    SubmitRequest {
        ordering: Some(OrderingRule {
            key: "account 17".parse().unwrap(),
            on_failure,
        }),
        ..job("ordered")
    }
}

async fn claim_all(engine: &dyn Engine) -> Vec<TaskId> {
    let claimed = engine
        .claim(&claim_request("ordered", 10, 0))
        .await
        .unwrap();
    claimed.into_iter().map(|task| task.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_key_stays_stopped_and_ordered_after_a_restart() {
    for journal in Journal::BOTH {
        let (objects, runtime) = (memory(), TokioRuntime::shared());
        let engine = journal.open(Arc::clone(&objects), &runtime).await.unwrap();
        let requests = (0..4).map(|_| ordered(OnFailure::Stop)).collect();
        let submitted = engine.submit_many(requests).await.into_iter();
        let ids: Vec<TaskId> = submitted.map(|one| one.unwrap().task.id).collect();
        // The first one completes and joins the line again at its end.
        let (task, lease) = claim_one(&engine, "ordered").await;
        assert_eq!(task.id, ids[0]);
        engine.complete(task.id, lease, None).await.unwrap();
        engine.replay(ids[0]).await.unwrap();
        let (task, lease) = claim_one(&engine, "ordered").await;
        assert_eq!(task.id, ids[1]);
        let failure = Failure {
            kind: FailureKind::Permanent,
            error: "broken".into(),
        };
        engine.fail(task.id, lease, failure).await.unwrap();
        engine.close().await;

        let engine = journal.open(Arc::clone(&objects), &runtime).await.unwrap();
        assert_eq!(engine.get(ids[1]).await.unwrap().status, Status::Failed);
        assert_eq!(claim_all(&engine).await, [], "{journal:?}");
        let stats = engine.stats().await.unwrap();
        let counts = &stats.queues[&qo_core::QueueName::default()];
        assert_eq!(
            counts.statuses.get(&Status::Failed),
            Some(&1),
            "{journal:?}"
        );
        engine.replay(ids[1]).await.unwrap();
        engine.close().await;

        let engine = journal.open(objects, &runtime).await.unwrap();
        for id in [ids[1], ids[2], ids[3], ids[0]] {
            let claimed = engine
                .claim(&claim_request("ordered", 10, 0))
                .await
                .unwrap();
            assert_eq!(claimed.len(), 1, "{journal:?}");
            assert_eq!(claimed[0].id, id, "{journal:?}");
            let lease = claimed[0].lease_id.unwrap();
            engine.complete(id, lease, None).await.unwrap();
        }
        engine.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_claim_gets_the_next_task_of_a_key() {
    for journal in Journal::BOTH {
        let engine = journal
            .open(memory(), &TokioRuntime::shared())
            .await
            .unwrap();
        let requests = (0..2).map(|_| ordered(OnFailure::Continue)).collect();
        engine.submit_many(requests).await;
        let (first, lease) = claim_one(&engine, "ordered").await;
        let request = claim_request("ordered", 1, 30_000);
        let (next, ()) = tokio::join!(engine.claim(&request), async {
            tokio::task::yield_now().await;
            engine.complete(first.id, lease, None).await.unwrap();
        });
        assert_eq!(next.unwrap().len(), 1, "{journal:?}");
        engine.close().await;
    }
}
