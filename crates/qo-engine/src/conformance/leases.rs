//! Only the current attempt can change a task, and the attempt of a dead worker is ended.

use qo_core::transition::{FailureKind, ProgressReport};
use qo_core::{LeaseId, Status, Task, TaskId};

use super::context::{TIMEOUT_MS, TestContext, failure, json};
use crate::api::ClaimRequest;
use crate::engine::Engine;
use crate::error::EngineError;

/// Tries every operation of a worker and asserts that each is rejected without any effect.
async fn assert_lease_rejected(
    ctx: &TestContext<'_>,
    engine: &dyn Engine,
    id: TaskId,
    lease: LeaseId,
) {
    let before = ctx.get(id).await;
    let large = json(&format!("\"{}\"", "x".repeat(100 * 1024)));
    let report = ProgressReport {
        percent: 1.0,
        message: None,
    };
    let results: Vec<(&str, Result<Task, EngineError>)> = vec![
        ("renew", engine.renew(id, lease, None).await),
        ("progress", engine.progress(id, lease, report).await),
        ("complete", engine.complete(id, lease, None).await),
        (
            "complete with a large output",
            engine.complete(id, lease, Some(large)).await,
        ),
        (
            "fail",
            engine
                .fail(id, lease, failure(FailureKind::Permanent, "zombie"))
                .await,
        ),
        ("release", engine.release(id, lease).await),
        ("snooze", engine.snooze(id, lease, 1).await),
    ];
    for (operation, result) in results {
        match result {
            Err(error) if error.is_lease_lost() => {}
            other => panic!("{operation} with a stale lease: {other:?}"),
        }
    }
    assert_eq!(ctx.get(id).await, before, "the task is unchanged");
}

pub(super) async fn rejects_every_operation_with_a_stale_lease(ctx: &TestContext<'_>) {
    let other = ctx.new_engine().await;
    let never = LeaseId::from(*ctx.new_id().as_uuid());
    let pending = ctx.submit_one().await;
    assert_lease_rejected(ctx, &*ctx.engine, pending.id, never).await;

    let (task, first) = ctx.claim_one().await;
    assert_lease_rejected(ctx, &*other, task.id, never).await;
    ctx.engine.release(task.id, first).await.unwrap();
    assert_lease_rejected(ctx, &*ctx.engine, task.id, first).await;

    let (_, second) = ctx.claim_one().await;
    assert_lease_rejected(ctx, &*ctx.engine, task.id, first).await;
    assert_lease_rejected(ctx, &*other, task.id, first).await;

    let output = json("\"the second attempt's\"");
    let completed = ctx
        .engine
        .complete(task.id, second, Some(output.clone()))
        .await
        .unwrap();
    assert_lease_rejected(ctx, &*ctx.engine, task.id, first).await;
    assert_lease_rejected(ctx, &*ctx.engine, task.id, second).await;
    assert_eq!(ctx.engine.output(&completed).await.unwrap(), Some(output));
}

pub(super) async fn retries_the_task_of_a_dead_worker(ctx: &TestContext<'_>) {
    let submitted = ctx.submit_with_instant_retry(3).await;
    let (task, lost) = ctx.claim_as_dying_worker().await;
    assert_eq!(task.id, submitted.id);
    let returned = ctx.maintain_until_not_running(task.id).await;
    assert_eq!(returned.status, Status::Pending);
    assert_eq!(returned.retry_count, 1, "a lost lease counts as a retry");
    assert!(returned.last_error.unwrap().contains("lease"));
    assert_lease_rejected(ctx, &*ctx.engine, task.id, lost).await;

    let (again, lease) = ctx.claim_one().await;
    assert_eq!((again.id, again.attempt), (task.id, 2));
    assert_lease_rejected(ctx, &*ctx.engine, task.id, lost).await;
    ctx.engine.complete(task.id, lease, None).await.unwrap();
}

pub(super) async fn fails_a_task_that_kills_its_workers(ctx: &TestContext<'_>) {
    let task = ctx.submit_with_instant_retry(1).await;
    for expected in [Status::Pending, Status::Failed] {
        ctx.claim_as_dying_worker().await;
        let ended = ctx.maintain_until_not_running(task.id).await;
        assert_eq!(ended.status, expected);
    }
    assert_eq!(ctx.get(task.id).await.attempt, 2);
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn does_not_expire_a_renewed_lease(ctx: &TestContext<'_>) {
    ctx.submit_one().await;
    let request = ClaimRequest {
        lease_ms: Some(50),
        wait_ms: TIMEOUT_MS,
        ..ctx.claim_request(1)
    };
    let task = ctx.engine.claim(&request).await.unwrap().pop().unwrap();
    let lease = task.lease_id.unwrap();
    // The attempt has not been ended yet, so even a late renewal keeps the lease.
    let kept = ctx.engine.renew(task.id, lease, Some(600_000)).await;
    let kept = kept.unwrap();
    ctx.poll_until("the first lease expired long ago", async || {
        let over = task.lease_expires_at.unwrap().plus_millis(2_000);
        (ctx.engine.now() > over).then_some(())
    })
    .await;
    ctx.harness.maintain().await;
    assert_eq!(ctx.get(task.id).await, kept);
    ctx.engine.complete(task.id, lease, None).await.unwrap();
}
