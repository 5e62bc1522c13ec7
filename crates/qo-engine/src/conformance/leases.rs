//! Only the current attempt can change a task, and one whose worker is dead comes to its end.

use qo_core::transition::{FailureKind, ProgressReport};
use qo_core::{LeaseId, Status, Task, TaskId};

use super::room::{PATIENCE_MS, Room, failure, json};
use crate::api::ClaimRequest;
use crate::engine::Engine;
use crate::error::EngineError;

/// Tries everything that a worker can do, and expects to be refused without any effect.
async fn can_do_nothing(room: &Room<'_>, engine: &dyn Engine, id: TaskId, lease: LeaseId) {
    let before = room.get(id).await;
    let large = json(&format!("\"{}\"", "x".repeat(100 * 1024)));
    let report = ProgressReport {
        percent: 1.0,
        message: None,
    };
    let answers: Vec<(&str, Result<Task, EngineError>)> = vec![
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
    for (operation, answer) in answers {
        match answer {
            Err(error) if error.is_lease_lost() => {}
            other => panic!("{operation} with a stale lease: {other:?}"),
        }
    }
    assert_eq!(room.get(id).await, before, "nothing has changed");
}

pub(super) async fn refuses_every_operation_of_a_stale_lease(room: &Room<'_>) {
    let other = room.another().await;
    let never = LeaseId::from(*room.new_id().as_uuid());
    let pending = room.submit_one().await;
    can_do_nothing(room, &*room.engine, pending.id, never).await;

    let (task, first) = room.claim_one().await;
    can_do_nothing(room, &*other, task.id, never).await;
    room.engine.release(task.id, first).await.unwrap();
    can_do_nothing(room, &*room.engine, task.id, first).await;

    let (_, second) = room.claim_one().await;
    can_do_nothing(room, &*room.engine, task.id, first).await;
    can_do_nothing(room, &*other, task.id, first).await;

    let output = json("\"the second attempt's\"");
    let completed = room
        .engine
        .complete(task.id, second, Some(output.clone()))
        .await
        .unwrap();
    can_do_nothing(room, &*room.engine, task.id, first).await;
    can_do_nothing(room, &*room.engine, task.id, second).await;
    assert_eq!(room.engine.output(&completed).await.unwrap(), Some(output));
}

/// Claims as a worker that dies at once.
async fn claim_and_die(room: &Room<'_>) -> (Task, LeaseId) {
    let wish = ClaimRequest {
        lease_ms: Some(50),
        wait_ms: PATIENCE_MS,
        ..room.wish(1)
    };
    let doomed = room.another().await;
    let task = doomed.claim(&wish).await.unwrap().pop().unwrap();
    let lease = task.lease_id.unwrap();
    (task, lease)
}

pub(super) async fn takes_back_the_task_of_a_dead_worker(room: &Room<'_>) {
    let submitted = room.submit_impatient(3).await;
    let (task, lost) = claim_and_die(room).await;
    assert_eq!(task.id, submitted.id);
    let returned = room.maintain_until_ended(task.id).await;
    assert_eq!(returned.status, Status::Pending);
    assert_eq!(returned.retry_count, 1, "it counts");
    assert!(returned.last_error.unwrap().contains("lease"));
    can_do_nothing(room, &*room.engine, task.id, lost).await;

    let (again, lease) = room.claim_one().await;
    assert_eq!((again.id, again.attempt), (task.id, 2));
    can_do_nothing(room, &*room.engine, task.id, lost).await;
    room.engine.complete(task.id, lease, None).await.unwrap();
}

pub(super) async fn gives_up_a_task_that_kills_its_workers(room: &Room<'_>) {
    let task = room.submit_impatient(1).await;
    for expected in [Status::Pending, Status::Failed] {
        claim_and_die(room).await;
        let ended = room.maintain_until_ended(task.id).await;
        assert_eq!(ended.status, expected);
    }
    assert_eq!(room.get(task.id).await.attempt, 2);
    room.nothing_to_claim().await;
}

pub(super) async fn leaves_a_renewed_lease_alone(room: &Room<'_>) {
    room.submit_one().await;
    let wish = ClaimRequest {
        lease_ms: Some(50),
        wait_ms: PATIENCE_MS,
        ..room.wish(1)
    };
    let task = room.engine.claim(&wish).await.unwrap().pop().unwrap();
    let lease = task.lease_id.unwrap();
    // Nobody has ended the attempt yet, so that even a late renewal keeps it.
    let kept = room.engine.renew(task.id, lease, Some(600_000)).await;
    let kept = kept.unwrap();
    room.until("the first lease is long over", async || {
        let over = task.lease_expires_at.unwrap().plus_millis(2_000);
        (room.engine.now() > over).then_some(())
    })
    .await;
    room.harness.maintain().await;
    assert_eq!(room.get(task.id).await, kept);
    room.engine.complete(task.id, lease, None).await.unwrap();
}
