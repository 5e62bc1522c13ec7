//! What people do to tasks.

use qo_core::transition::FailureKind;
use qo_core::{Rejection, Status};

use super::room::{Room, failure, json, name, not_found, rejection, wrong_status};
use crate::api::{IdempotencyRequest, SubmitRequest, TaskFilter, When};
use crate::error::EngineError;

pub(super) async fn cancels_a_pending_task(room: &Room<'_>) {
    let due = room.submit_one().await;
    let request = SubmitRequest {
        available: When::InMillis(3_600_000),
        ..room.request()
    };
    let later = room.submit(request).await;
    for task in [due, later] {
        let reason = Some("no longer wanted".to_owned());
        let cancelled = room.another().await.cancel(task.id, reason).await.unwrap();
        assert_eq!(cancelled.status, Status::Cancelled);
        assert_eq!(cancelled.last_error.as_deref(), Some("no longer wanted"));
        assert!(cancelled.completed_at.is_some());
        wrong_status(room.engine.cancel(task.id, None).await, Status::Cancelled);
    }
    room.nothing_to_claim().await;
}

pub(super) async fn asks_a_running_task_to_stop(room: &Room<'_>) {
    let (task, lease) = room.running().await;
    let asked = room.another().await.cancel(task.id, None).await.unwrap();
    assert_eq!(asked.status, Status::Running, "only its worker can stop it");
    assert!(asked.cancel_requested);
    assert_eq!(
        rejection(room.engine.cancel(task.id, None).await),
        Rejection::CancelAlreadyRequested
    );
    let renewed = room.engine.renew(task.id, lease, None).await.unwrap();
    assert!(renewed.cancel_requested, "the worker learns of it");
    let stopped = failure(FailureKind::Cancelled, "stopped as asked");
    let ended = room.engine.fail(task.id, lease, stopped).await.unwrap();
    assert_eq!(ended.status, Status::Cancelled);
    assert!(!ended.cancel_requested);
    room.nothing_to_claim().await;
}

pub(super) async fn cancels_when_the_attempt_ends(room: &Room<'_>) {
    let (task, lease) = room.running().await;
    room.engine.cancel(task.id, None).await.unwrap();
    let ended = room.engine.release(task.id, lease).await.unwrap();
    assert_eq!(ended.status, Status::Cancelled, "it does not come back");

    let (task, lease) = room.running().await;
    room.engine.cancel(task.id, None).await.unwrap();
    let error = failure(FailureKind::Retryable, "it was in the middle of something");
    let ended = room.engine.fail(task.id, lease, error).await.unwrap();
    assert_eq!(ended.status, Status::Cancelled, "nor is it retried");

    let (task, lease) = room.running().await;
    room.engine.cancel(task.id, None).await.unwrap();
    let ended = room.engine.complete(task.id, lease, None).await.unwrap();
    assert_eq!(
        ended.status,
        Status::Completed,
        "what is done before the worker learns of it is done"
    );
    room.nothing_to_claim().await;
}

pub(super) async fn runs_a_waiting_task_now(room: &Room<'_>) {
    let request = SubmitRequest {
        available: When::InMillis(3_600_000),
        ..room.request()
    };
    let waiting = room.submit(request).await;
    room.nothing_to_claim().await;
    let other = room.another().await;
    let due = other.run_now(waiting.id).await.unwrap();
    assert_eq!(due.status, Status::Pending);
    assert!(due.available_at < waiting.available_at);
    // The same process is asked again: another one's clock may be a little behind, and then it is not due there yet.
    match rejection(other.run_now(waiting.id).await) {
        Rejection::AlreadyDue { available_at } => assert_eq!(available_at, due.available_at),
        other => panic!("expected that it is due, got {other:?}"),
    }
    let (task, lease) = room.claim_one().await;
    assert_eq!((task.id, task.attempt), (waiting.id, 1));
    wrong_status(room.engine.run_now(task.id).await, Status::Running);

    // A retry that waits is a waiting task like any other.
    let error = failure(FailureKind::Retryable, "try again later");
    let back = room.engine.fail(task.id, lease, error).await.unwrap();
    assert_eq!(back.status, Status::Pending);
    match room.engine.run_now(task.id).await {
        // Between the two its time may have come.
        Ok(_) | Err(EngineError::Rejected(Rejection::AlreadyDue { .. })) => {}
        other => panic!("expected that it runs, got {other:?}"),
    }
    let (again, lease) = room.claim_one().await;
    assert_eq!((again.id, again.attempt), (task.id, 2));
    room.engine.complete(task.id, lease, None).await.unwrap();
    wrong_status(room.engine.run_now(task.id).await, Status::Completed);
}

pub(super) async fn replays(room: &Room<'_>) {
    let pending = room.submit_one().await;
    wrong_status(room.engine.replay(pending.id).await, Status::Pending);
    let (task, lease) = room.claim_one().await;
    wrong_status(room.engine.replay(task.id).await, Status::Running);
    let error = failure(FailureKind::Permanent, "a bug");
    room.engine.fail(task.id, lease, error).await.unwrap();

    let replayed = room.another().await.replay(task.id).await.unwrap();
    assert_eq!(replayed.status, Status::Pending);
    assert_eq!((replayed.retry_count, replayed.attempt), (0, 1));
    assert_eq!(replayed.completed_at, None);
    let (again, lease) = room.claim_one().await;
    assert_eq!((again.id, again.attempt), (task.id, 2));
    let output = Some(json("1"));
    room.engine.complete(task.id, lease, output).await.unwrap();

    let replayed = room.engine.replay(task.id).await.unwrap();
    assert_eq!(room.engine.output(&replayed).await.unwrap(), None);
    room.engine.cancel(task.id, None).await.unwrap();
    let replayed = room.engine.replay(task.id).await.unwrap();
    assert_eq!(replayed.status, Status::Pending);
    assert_eq!(room.claim_one().await.0.attempt, 3);
}

pub(super) async fn archives_and_unarchives(room: &Room<'_>) {
    let task = room.submit_one().await;
    wrong_status(room.engine.archive(task.id).await, Status::Pending);
    let (_, lease) = room.claim_one().await;
    wrong_status(room.engine.archive(task.id).await, Status::Running);
    wrong_status(room.engine.unarchive(task.id).await, Status::Running);
    let output = Some(json("\"kept\""));
    room.engine
        .complete(task.id, lease, output.clone())
        .await
        .unwrap();

    let archived = room.another().await.archive(task.id).await.unwrap();
    assert_eq!(archived.status, Status::Archived);
    wrong_status(room.engine.archive(task.id).await, Status::Archived);
    wrong_status(room.engine.replay(task.id).await, Status::Archived);
    wrong_status(room.engine.cancel(task.id, None).await, Status::Archived);
    let unarchived = room.engine.unarchive(task.id).await.unwrap();
    assert_eq!(unarchived.status, Status::Completed, "as it was");
    assert_eq!(room.engine.output(&unarchived).await.unwrap(), output);
    wrong_status(room.engine.unarchive(task.id).await, Status::Completed);
    room.nothing_to_claim().await;
}

pub(super) async fn purges_for_good(room: &Room<'_>) {
    let request = SubmitRequest {
        id: Some(room.new_id()),
        input: json(&format!("\"{}\"", "i".repeat(100 * 1024))),
        idempotency: Some(IdempotencyRequest {
            key: name("only once"),
            scope: qo_core::task::IdempotencyScope::Queue,
            window_ms: None,
        }),
        ..room.request()
    };
    let task = room.submit(request.clone()).await;
    wrong_status(room.engine.purge(task.id).await, Status::Pending);
    let (_, lease) = room.claim_one().await;
    wrong_status(room.engine.purge(task.id).await, Status::Running);
    let output = Some(json(&format!("\"{}\"", "o".repeat(100 * 1024))));
    let ended = room.engine.complete(task.id, lease, output).await.unwrap();

    room.another().await.purge(task.id).await.unwrap();
    not_found(room.engine.get(task.id).await, task.id);
    not_found(room.engine.purge(task.id).await, task.id);
    not_found(room.engine.history(task.id).await, task.id);
    not_found(room.engine.versions(task.id, 100).await, task.id);
    assert!(
        room.engine.input(&ended).await.is_err(),
        "payloads are gone"
    );
    assert!(
        room.engine.output(&ended).await.is_err(),
        "payloads are gone"
    );
    let filter = TaskFilter {
        queue: Some(room.queue.clone()),
        ..TaskFilter::default()
    };
    let page = room.engine.list(&filter, None, 10).await.unwrap();
    assert_eq!(page.tasks, []);
    room.nothing_to_claim().await;

    // The id and the key are free again, and nothing of the old task shines through.
    let again = room.submit(request).await;
    assert_eq!((again.id, again.attempt), (task.id, 0));
    match room.engine.versions(again.id, 100).await {
        Ok(versions) => assert_eq!(
            versions.iter().filter(|one| one.task.is_some()).count(),
            1,
            "the old versions are gone: {versions:?}"
        ),
        Err(error) => assert_eq!(error, EngineError::NotVersioned),
    }
}
