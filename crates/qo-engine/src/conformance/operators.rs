//! Operations of operators: cancel, run now, replay, archive, purge.

use qo_core::transition::FailureKind;
use qo_core::{Rejection, Status};

use super::context::{
    TestContext, assert_not_found, assert_wrong_status, failure, json, name, rejection,
};
use crate::api::{IdempotencyRequest, SubmitRequest, When};
use crate::error::EngineError;

pub(super) async fn cancels_a_pending_task(ctx: &TestContext<'_>) {
    let due = ctx.submit_one().await;
    let request = SubmitRequest {
        available: When::InMillis(3_600_000),
        ..ctx.submit_request()
    };
    let later = ctx.submit(request).await;
    for task in [due, later] {
        let reason = Some("no longer wanted".to_owned());
        let cancelled = ctx
            .new_engine()
            .await
            .cancel(task.id, reason)
            .await
            .unwrap();
        assert_eq!(cancelled.status, Status::Cancelled);
        assert_eq!(cancelled.last_error.as_deref(), Some("no longer wanted"));
        assert!(cancelled.completed_at.is_some());
        assert_wrong_status(ctx.engine.cancel(task.id, None).await, Status::Cancelled);
    }
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn requests_cancellation_of_a_running_task(ctx: &TestContext<'_>) {
    let (task, lease) = ctx.running().await;
    let cancelling = ctx.new_engine().await.cancel(task.id, None).await.unwrap();
    assert_eq!(
        cancelling.status,
        Status::Running,
        "only the worker can stop the attempt"
    );
    assert!(cancelling.cancel_requested);
    assert_eq!(
        rejection(ctx.engine.cancel(task.id, None).await),
        Rejection::CancelAlreadyRequested
    );
    let renewed = ctx.engine.renew(task.id, lease, None).await.unwrap();
    assert!(
        renewed.cancel_requested,
        "the renewal shows the cancel request"
    );
    let stopped = failure(FailureKind::Cancelled, "stopped on request");
    let ended = ctx.engine.fail(task.id, lease, stopped).await.unwrap();
    assert_eq!(ended.status, Status::Cancelled);
    assert!(!ended.cancel_requested);
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn cancels_when_the_attempt_ends(ctx: &TestContext<'_>) {
    let (task, lease) = ctx.running().await;
    ctx.engine.cancel(task.id, None).await.unwrap();
    let ended = ctx.engine.release(task.id, lease).await.unwrap();
    assert_eq!(
        ended.status,
        Status::Cancelled,
        "a released task with a cancel request is cancelled"
    );

    let (task, lease) = ctx.running().await;
    ctx.engine.cancel(task.id, None).await.unwrap();
    let error = failure(FailureKind::Retryable, "interrupted");
    let ended = ctx.engine.fail(task.id, lease, error).await.unwrap();
    assert_eq!(
        ended.status,
        Status::Cancelled,
        "a failed task with a cancel request is not retried"
    );

    let (task, lease) = ctx.running().await;
    ctx.engine.cancel(task.id, None).await.unwrap();
    let ended = ctx.engine.complete(task.id, lease, None).await.unwrap();
    assert_eq!(
        ended.status,
        Status::Completed,
        "a completion wins over a cancel request"
    );
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn runs_a_delayed_task_now(ctx: &TestContext<'_>) {
    let request = SubmitRequest {
        available: When::InMillis(3_600_000),
        ..ctx.submit_request()
    };
    let waiting = ctx.submit(request).await;
    ctx.assert_nothing_to_claim().await;
    let other = ctx.new_engine().await;
    let due = other.run_now(waiting.id).await.unwrap();
    assert_eq!(due.status, Status::Pending);
    assert!(due.available_at < waiting.available_at);
    // Use the same engine: the clock of another may be a little behind, and the task would not be due there yet.
    match rejection(other.run_now(waiting.id).await) {
        Rejection::AlreadyDue { available_at } => assert_eq!(available_at, due.available_at),
        other => panic!("expected AlreadyDue, got {other:?}"),
    }
    let (task, lease) = ctx.claim_one().await;
    assert_eq!((task.id, task.attempt), (waiting.id, 1));
    assert_wrong_status(ctx.engine.run_now(task.id).await, Status::Running);

    // A task that waits for its retry is delayed like any other.
    let error = failure(FailureKind::Retryable, "try again later");
    let back = ctx.engine.fail(task.id, lease, error).await.unwrap();
    assert_eq!(back.status, Status::Pending);
    match ctx.engine.run_now(task.id).await {
        // It may have become due in the meantime.
        Ok(_) | Err(EngineError::Rejected(Rejection::AlreadyDue { .. })) => {}
        other => panic!("expected success or AlreadyDue, got {other:?}"),
    }
    let (again, lease) = ctx.claim_one().await;
    assert_eq!((again.id, again.attempt), (task.id, 2));
    ctx.engine.complete(task.id, lease, None).await.unwrap();
    assert_wrong_status(ctx.engine.run_now(task.id).await, Status::Completed);
}

pub(super) async fn replays(ctx: &TestContext<'_>) {
    let pending = ctx.submit_one().await;
    assert_wrong_status(ctx.engine.replay(pending.id).await, Status::Pending);
    let (task, lease) = ctx.claim_one().await;
    assert_wrong_status(ctx.engine.replay(task.id).await, Status::Running);
    let error = failure(FailureKind::Permanent, "a bug");
    ctx.engine.fail(task.id, lease, error).await.unwrap();

    let replayed = ctx.new_engine().await.replay(task.id).await.unwrap();
    assert_eq!(replayed.status, Status::Pending);
    assert_eq!((replayed.retry_count, replayed.attempt), (0, 1));
    assert_eq!(replayed.completed_at, None);
    let (again, lease) = ctx.claim_one().await;
    assert_eq!((again.id, again.attempt), (task.id, 2));
    let output = Some(json("1"));
    ctx.engine.complete(task.id, lease, output).await.unwrap();

    let replayed = ctx.engine.replay(task.id).await.unwrap();
    assert_eq!(ctx.engine.output(&replayed).await.unwrap(), None);
    ctx.engine.cancel(task.id, None).await.unwrap();
    let replayed = ctx.engine.replay(task.id).await.unwrap();
    assert_eq!(replayed.status, Status::Pending);
    assert_eq!(ctx.claim_one().await.0.attempt, 3);
}

pub(super) async fn archives_and_unarchives(ctx: &TestContext<'_>) {
    let task = ctx.submit_one().await;
    assert_wrong_status(ctx.engine.archive(task.id).await, Status::Pending);
    let (_, lease) = ctx.claim_one().await;
    assert_wrong_status(ctx.engine.archive(task.id).await, Status::Running);
    assert_wrong_status(ctx.engine.unarchive(task.id).await, Status::Running);
    let output = Some(json("\"kept\""));
    ctx.engine
        .complete(task.id, lease, output.clone())
        .await
        .unwrap();

    let archived = ctx.new_engine().await.archive(task.id).await.unwrap();
    assert_eq!(archived.status, Status::Archived);
    assert_wrong_status(ctx.engine.archive(task.id).await, Status::Archived);
    assert_wrong_status(ctx.engine.replay(task.id).await, Status::Archived);
    assert_wrong_status(ctx.engine.cancel(task.id, None).await, Status::Archived);
    let unarchived = ctx.engine.unarchive(task.id).await.unwrap();
    assert_eq!(
        unarchived.status,
        Status::Completed,
        "the previous status is restored"
    );
    assert_eq!(ctx.engine.output(&unarchived).await.unwrap(), output);
    assert_wrong_status(ctx.engine.unarchive(task.id).await, Status::Completed);
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn purges_everything(ctx: &TestContext<'_>) {
    let request = ctx.with_id(SubmitRequest {
        input: json(&format!("\"{}\"", "i".repeat(100 * 1024))),
        idempotency: Some(IdempotencyRequest {
            key: name("only once"),
            scope: qo_core::task::IdempotencyScope::Queue,
            window_ms: None,
        }),
        ..ctx.submit_request()
    });
    let task = ctx.submit(request.clone()).await;
    assert_wrong_status(ctx.engine.purge(task.id).await, Status::Pending);
    let (_, lease) = ctx.claim_one().await;
    assert_wrong_status(ctx.engine.purge(task.id).await, Status::Running);
    let output = Some(json(&format!("\"{}\"", "o".repeat(100 * 1024))));
    let ended = ctx.engine.complete(task.id, lease, output).await.unwrap();

    ctx.new_engine().await.purge(task.id).await.unwrap();
    assert_not_found(ctx.engine.get(task.id).await, task.id);
    assert_not_found(ctx.engine.purge(task.id).await, task.id);
    assert_not_found(ctx.engine.history(task.id).await, task.id);
    assert_not_found(ctx.engine.versions(task.id, 100).await, task.id);
    assert!(
        ctx.engine.input(&ended).await.is_err(),
        "the payload is deleted"
    );
    assert!(
        ctx.engine.output(&ended).await.is_err(),
        "the payload is deleted"
    );
    ctx.assert_queue_is_empty().await;

    // The id and the key are free again, and the new task contains nothing of the old one.
    let again = ctx.submit(request).await;
    assert_eq!((again.id, again.attempt), (task.id, 0));
    match ctx.engine.versions(again.id, 100).await {
        Ok(versions) => assert_eq!(
            versions.iter().filter(|one| one.task.is_some()).count(),
            1,
            "the old versions are deleted: {versions:?}"
        ),
        Err(error) => assert_eq!(error, EngineError::NotVersioned),
    }
}
