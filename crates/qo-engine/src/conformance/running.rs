//! What a worker does with what it has claimed.

use qo_core::limits::INLINE_PAYLOAD_MAX_BYTES;
use qo_core::transition::{FailureKind, ProgressReport};
use qo_core::{LeaseId, Rejection, Status, TaskId};

use super::room::{CLOCK_SLACK_MS, Room, failure, json, out_of_bounds};
use crate::Operation;
use crate::api::{ClaimRequest, SubmitRequest};
use crate::error::EngineError;

pub(super) async fn completes(room: &Room<'_>) {
    let (task, lease) = room.running().await;
    let output = Some(json("{\"sent\": true}"));
    let ended = room.engine.complete(task.id, lease, output.clone()).await;
    let ended = ended.unwrap();
    assert_eq!(ended.status, Status::Completed);
    assert_eq!(room.engine.output(&ended).await.unwrap(), output);
    assert!(ended.completed_at.is_some());
    assert_eq!((ended.lease_id, ended.lease_expires_at), (None, None));
    assert_eq!(ended.worker_id, Some(room.worker.clone()), "who did it");
    assert_eq!(room.another().await.get(task.id).await.unwrap(), ended);
    room.nothing_to_claim().await;
}

pub(super) async fn acts_on_many(room: &Room<'_>) {
    let complete = |lease, output| Operation::Complete { lease, output };
    let mut operations = Vec::new();
    for number in 0..4 {
        let (task, lease) = room.running().await;
        // The last but one is larger than a record holds, so that it is stored beside the record.
        let output = match number {
            2 => json(&format!("\"{}\"", "x".repeat(INLINE_PAYLOAD_MAX_BYTES))),
            _ => json(&number.to_string()),
        };
        operations.push((task.id, complete(lease, Some(output))));
    }
    // Each has a result of its own: one lost its lease, one is completed already, one does not exist, one is no completion.
    let (untouched, _) = room.running().await;
    let stale = LeaseId::from_random(7);
    operations[1].1 = complete(stale, None);
    let (id, operation) = operations[3].clone();
    room.engine.act(id, operation).await.unwrap();
    operations.push((TaskId::from_random(7), complete(stale, None)));
    let (released, lease) = room.running().await;
    operations.push((released.id, Operation::Release { lease }));
    let results = room.engine.act_many(operations.clone()).await;
    assert_eq!(results.len(), operations.len());
    for (number, (result, (id, operation))) in results.iter().zip(&operations).enumerate() {
        match (number, result) {
            (0 | 2, Ok(task)) => {
                assert_eq!((task.id, task.status), (*id, Status::Completed));
                let output = room.engine.output(task).await.unwrap();
                assert_eq!(output.as_ref(), operation.output());
            }
            (5, Ok(task)) => assert_eq!((task.id, task.status), (*id, Status::Pending)),
            (1 | 3, Err(EngineError::Rejected(Rejection::LeaseLost { .. })))
            | (4, Err(EngineError::Rejected(Rejection::NotFound { .. }))) => {}
            other => panic!("{other:?}"),
        }
    }
    for id in [untouched.id, operations[1].0] {
        let task = room.engine.get(id).await.unwrap();
        assert_eq!(task.status, Status::Running, "a stale lease ends nothing");
    }
    assert!(room.engine.act_many(Vec::new()).await.is_empty());
}

/// A lease is good for its own task alone: a large output that comes with it must not replace another task's.
pub(super) async fn keeps_outputs_apart(room: &Room<'_>) {
    let large = |letter: &str| json(&format!("\"{}\"", letter.repeat(INLINE_PAYLOAD_MAX_BYTES)));
    let (first, first_lease) = room.running().await;
    let (second, second_lease) = room.running().await;
    let completed = room
        .engine
        .complete(second.id, second_lease, Some(large("b")))
        .await
        .unwrap();
    let refused = room
        .engine
        .complete(second.id, first_lease, Some(large("a")))
        .await;
    assert!(refused.unwrap_err().is_lease_lost());
    let output = room.engine.output(&completed).await.unwrap();
    assert_eq!(output, Some(large("b")));
    let untouched = room.engine.get(first.id).await.unwrap();
    assert_eq!(untouched.status, Status::Running);
}

pub(super) async fn renews(room: &Room<'_>) {
    room.submit_one().await;
    let wish = ClaimRequest {
        lease_ms: Some(10_000),
        wait_ms: 10_000,
        ..room.wish(1)
    };
    let task = room.engine.claim(&wish).await.unwrap().pop().unwrap();
    let lease = task.lease_id.unwrap();
    assert_eq!(
        task.lease_expires_at,
        Some(task.started_at.unwrap().plus_millis(10_000)),
        "the lease is as long as was asked"
    );
    // Far enough to fall into another minute, and again into the same.
    for lease_ms in [200_000, 200_001, 300_000] {
        let before = room.engine.now().minus_millis(CLOCK_SLACK_MS);
        let renewed = room.engine.renew(task.id, lease, Some(lease_ms)).await;
        let renewed = renewed.unwrap();
        assert!(renewed.lease_expires_at >= Some(before.plus_millis(lease_ms)));
        assert_eq!((renewed.status, renewed.attempt), (Status::Running, 1));
        assert!(!renewed.cancel_requested);
    }
    let kept = room.engine.renew(task.id, lease, Some(1)).await.unwrap();
    assert!(
        kept.lease_expires_at > Some(room.engine.now().plus_millis(100_000)),
        "a renewal never shortens a lease"
    );
    room.engine.renew(task.id, lease, None).await.unwrap();
    out_of_bounds(room.engine.renew(task.id, lease, Some(0)).await, "lease_ms");
    // A process that did not claim the task can go on with it, if it has the lease.
    let other = room.another().await;
    other.renew(task.id, lease, Some(400_000)).await.unwrap();
    let ended = room.engine.complete(task.id, lease, None).await.unwrap();
    assert_eq!(ended.status, Status::Completed);
}

pub(super) async fn reports_progress(room: &Room<'_>) {
    let (task, lease) = room.running().await;
    let report = |percent| ProgressReport {
        percent,
        message: Some("half of it".into()),
    };
    let told = room.engine.progress(task.id, lease, report(50.0)).await;
    assert_eq!(told.unwrap().status, Status::Running);
    let read = room.another().await.get(task.id).await.unwrap();
    let progress = read.progress.unwrap();
    assert!((progress.percent - 50.0).abs() < f64::EPSILON);
    assert_eq!(progress.message.as_deref(), Some("half of it"));
    for percent in [-0.1, 100.1, f64::NAN] {
        let refused = room.engine.progress(task.id, lease, report(percent)).await;
        out_of_bounds(refused, "percent");
    }
    room.engine.complete(task.id, lease, None).await.unwrap();
}

pub(super) async fn releases(room: &Room<'_>) {
    let (task, lease) = room.running().await;
    let released = room.engine.release(task.id, lease).await.unwrap();
    assert_eq!((released.status, released.attempt), (Status::Pending, 1));
    assert_eq!(released.retry_count, 0, "it does not count as a retry");
    assert_eq!((released.worker_id, released.lease_id), (None, None));
    let (again, second_lease) = room.claim_one().await;
    assert_eq!((again.id, again.attempt), (task.id, 2));
    assert_ne!(second_lease, lease);
    room.engine
        .complete(task.id, second_lease, None)
        .await
        .unwrap();
}

pub(super) async fn snoozes(room: &Room<'_>) {
    let (task, lease) = room.running().await;
    let snoozed = room.engine.snooze(task.id, lease, 1_000).await.unwrap();
    assert_eq!((snoozed.status, snoozed.retry_count), (Status::Pending, 0));
    let waits_ms = snoozed.available_at.since(snoozed.updated_at).as_millis();
    assert!(waits_ms.abs_diff(1_000) < 100, "it waits {waits_ms} ms");
    if room.engine.now().plus_millis(500) < snoozed.available_at {
        room.nothing_to_claim().await;
    }
    let (again, lease) = room.claim_one().await;
    assert_eq!((again.id, again.attempt), (task.id, 2));
    assert!(again.started_at.unwrap() >= snoozed.available_at);
    let year_and_a_day_ms = 366 * 24 * 3_600_000;
    out_of_bounds(
        room.engine.snooze(task.id, lease, year_and_a_day_ms).await,
        "delay_ms",
    );
    room.engine.complete(task.id, lease, None).await.unwrap();
}

pub(super) async fn retries_and_then_gives_up(room: &Room<'_>) {
    let mut request = SubmitRequest {
        max_retries: 2,
        ..room.request()
    };
    request.retry_policy.initial_interval_ms = 200;
    request.retry_policy.multiplier = 2.0;
    request.retry_policy.jitter_percent = 0.0;
    let task = room.submit(request).await;
    let mut not_before = None;
    for attempt in 1..=3_u32 {
        let (claimed, lease) = room.claim_one().await;
        assert_eq!((claimed.id, claimed.attempt), (task.id, attempt));
        assert!(claimed.started_at >= not_before, "not before its time");
        let error = failure(FailureKind::Retryable, &format!("error {attempt}"));
        let failed = room.engine.fail(task.id, lease, error).await.unwrap();
        assert_eq!(
            failed.last_error.as_deref(),
            Some(&*format!("error {attempt}"))
        );
        if attempt == 3 {
            assert_eq!(failed.status, Status::Failed, "no retries are left");
            assert_eq!(failed.retry_count, 2);
            assert!(failed.completed_at.is_some());
            break;
        }
        assert_eq!(failed.status, Status::Pending);
        assert_eq!(failed.retry_count, attempt);
        let wait_ms = 200 * u64::from(attempt);
        let waits_ms = failed.available_at.since(failed.updated_at).as_millis();
        assert!(
            waits_ms.abs_diff(wait_ms.into()) < 100,
            "it waits {waits_ms} ms after failure {attempt}"
        );
        not_before = Some(failed.available_at);
    }
    room.nothing_to_claim().await;
}

pub(super) async fn gives_up_at_once_where_nothing_can_help(room: &Room<'_>) {
    let (task, lease) = room.running().await;
    let error = failure(FailureKind::Permanent, "no such address");
    let failed = room.engine.fail(task.id, lease, error).await.unwrap();
    assert_eq!((failed.status, failed.retry_count), (Status::Failed, 0));
    assert_eq!(failed.last_error.as_deref(), Some("no such address"));
    room.nothing_to_claim().await;
}

pub(super) async fn retries_after_a_timeout(room: &Room<'_>) {
    let task = room.submit_impatient(1).await;
    for expected in [Status::Pending, Status::Failed] {
        let (_, lease) = room.claim_one().await;
        let error = failure(FailureKind::Timeout, "took too long");
        let failed = room.engine.fail(task.id, lease, error).await.unwrap();
        assert_eq!(failed.status, expected);
    }
}
