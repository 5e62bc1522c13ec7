//! Operations of a worker on a claimed task.

use qo_core::limits::INLINE_PAYLOAD_MAX_BYTES;
use qo_core::transition::{FailureKind, ProgressReport};
use qo_core::{LeaseId, Rejection, Status, TaskId};

use super::context::{CLOCK_SLACK_MS, TestContext, assert_out_of_bounds, failure, json};
use crate::Operation;
use crate::api::{ClaimRequest, SubmitRequest};
use crate::error::EngineError;

pub(super) async fn completes(ctx: &TestContext<'_>) {
    let (task, lease) = ctx.running().await;
    let output = Some(json("{\"sent\": true}"));
    let ended = ctx.engine.complete(task.id, lease, output.clone()).await;
    let ended = ended.unwrap();
    assert_eq!(ended.status, Status::Completed);
    assert_eq!(ctx.engine.output(&ended).await.unwrap(), output);
    assert!(ended.completed_at.is_some());
    assert_eq!((ended.lease_id, ended.lease_expires_at), (None, None));
    assert_eq!(
        ended.worker_id,
        Some(ctx.worker.clone()),
        "the worker that completed it"
    );
    assert_eq!(ctx.new_engine().await.get(task.id).await.unwrap(), ended);
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn acts_on_many(ctx: &TestContext<'_>) {
    let complete = |lease, output| Operation::Complete { lease, output };
    let mut operations = Vec::new();
    for number in 0..4 {
        let (task, lease) = ctx.running().await;
        // The third output is too large for the record, so it is stored in its own object.
        let output = match number {
            2 => json(&format!("\"{}\"", "x".repeat(INLINE_PAYLOAD_MAX_BYTES))),
            _ => json(&number.to_string()),
        };
        operations.push((task.id, complete(lease, Some(output))));
    }
    // Each operation has its own result: one lost its lease, one is completed already, one does not exist, one is a release.
    let (untouched, _) = ctx.running().await;
    let stale = LeaseId::from_random(7);
    operations[1].1 = complete(stale, None);
    let (id, operation) = operations[3].clone();
    ctx.engine.act(id, operation).await.unwrap();
    operations.push((TaskId::from_random(7), complete(stale, None)));
    let (released, lease) = ctx.running().await;
    operations.push((released.id, Operation::Release { lease }));
    let results = ctx.engine.act_many(operations.clone()).await;
    assert_eq!(results.len(), operations.len());
    for (number, (result, (id, operation))) in results.iter().zip(&operations).enumerate() {
        match (number, result) {
            (0 | 2, Ok(task)) => {
                assert_eq!((task.id, task.status), (*id, Status::Completed));
                let output = ctx.engine.output(task).await.unwrap();
                assert_eq!(output.as_ref(), operation.output());
            }
            (5, Ok(task)) => assert_eq!((task.id, task.status), (*id, Status::Pending)),
            (1 | 3, Err(EngineError::Rejected(Rejection::LeaseLost { .. })))
            | (4, Err(EngineError::Rejected(Rejection::NotFound { .. }))) => {}
            other => panic!("{other:?}"),
        }
    }
    for id in [untouched.id, operations[1].0] {
        let task = ctx.engine.get(id).await.unwrap();
        assert_eq!(
            task.status,
            Status::Running,
            "a stale lease does not end the attempt"
        );
    }
    assert!(ctx.engine.act_many(Vec::new()).await.is_empty());
}

/// A lease is valid only for its own task: it must not allow replacing the stored output of another task.
pub(super) async fn protects_outputs_from_foreign_leases(ctx: &TestContext<'_>) {
    let large = |letter: &str| json(&format!("\"{}\"", letter.repeat(INLINE_PAYLOAD_MAX_BYTES)));
    let (first, first_lease) = ctx.running().await;
    let (second, second_lease) = ctx.running().await;
    let completed = ctx
        .engine
        .complete(second.id, second_lease, Some(large("b")))
        .await
        .unwrap();
    let result = ctx
        .engine
        .complete(second.id, first_lease, Some(large("a")))
        .await;
    assert!(result.unwrap_err().is_lease_lost());
    let output = ctx.engine.output(&completed).await.unwrap();
    assert_eq!(output, Some(large("b")));
    let untouched = ctx.engine.get(first.id).await.unwrap();
    assert_eq!(untouched.status, Status::Running);
}

pub(super) async fn renews(ctx: &TestContext<'_>) {
    ctx.submit_one().await;
    let request = ClaimRequest {
        lease_ms: Some(10_000),
        wait_ms: 10_000,
        ..ctx.claim_request(1)
    };
    let task = ctx.engine.claim(&request).await.unwrap().pop().unwrap();
    let lease = task.lease_id.unwrap();
    assert_eq!(
        task.lease_expires_at,
        Some(task.started_at.unwrap().plus_millis(10_000)),
        "the lease has the requested duration"
    );
    // The first falls into another minute, the second into the same minute again.
    for lease_ms in [200_000, 200_001, 300_000] {
        let before = ctx.engine.now().minus_millis(CLOCK_SLACK_MS);
        let renewed = ctx.engine.renew(task.id, lease, Some(lease_ms)).await;
        let renewed = renewed.unwrap();
        assert!(renewed.lease_expires_at >= Some(before.plus_millis(lease_ms)));
        assert_eq!((renewed.status, renewed.attempt), (Status::Running, 1));
        assert!(!renewed.cancel_requested);
    }
    let kept = ctx.engine.renew(task.id, lease, Some(1)).await.unwrap();
    assert!(
        kept.lease_expires_at > Some(ctx.engine.now().plus_millis(100_000)),
        "a renewal never shortens a lease"
    );
    ctx.engine.renew(task.id, lease, None).await.unwrap();
    assert_out_of_bounds(ctx.engine.renew(task.id, lease, Some(0)).await, "lease_ms");
    // Another engine can renew the lease if it presents it.
    let other = ctx.new_engine().await;
    other.renew(task.id, lease, Some(400_000)).await.unwrap();
    let ended = ctx.engine.complete(task.id, lease, None).await.unwrap();
    assert_eq!(ended.status, Status::Completed);
}

pub(super) async fn reports_progress(ctx: &TestContext<'_>) {
    let (task, lease) = ctx.running().await;
    let report = |percent| ProgressReport {
        percent,
        message: Some("half of it".into()),
    };
    let updated = ctx.engine.progress(task.id, lease, report(50.0)).await;
    assert_eq!(updated.unwrap().status, Status::Running);
    let read = ctx.new_engine().await.get(task.id).await.unwrap();
    let progress = read.progress.unwrap();
    assert!((progress.percent - 50.0).abs() < f64::EPSILON);
    assert_eq!(progress.message.as_deref(), Some("half of it"));
    for percent in [-0.1, 100.1, f64::NAN] {
        let result = ctx.engine.progress(task.id, lease, report(percent)).await;
        assert_out_of_bounds(result, "percent");
    }
    ctx.engine.complete(task.id, lease, None).await.unwrap();
}

pub(super) async fn releases(ctx: &TestContext<'_>) {
    let (task, lease) = ctx.running().await;
    let released = ctx.engine.release(task.id, lease).await.unwrap();
    assert_eq!((released.status, released.attempt), (Status::Pending, 1));
    assert_eq!(
        released.retry_count, 0,
        "a release does not count as a retry"
    );
    assert_eq!((released.worker_id, released.lease_id), (None, None));
    let (again, second_lease) = ctx.claim_one().await;
    assert_eq!((again.id, again.attempt), (task.id, 2));
    assert_ne!(second_lease, lease);
    ctx.engine
        .complete(task.id, second_lease, None)
        .await
        .unwrap();
}

pub(super) async fn snoozes(ctx: &TestContext<'_>) {
    let (task, lease) = ctx.running().await;
    let snoozed = ctx.engine.snooze(task.id, lease, 1_000).await.unwrap();
    assert_eq!((snoozed.status, snoozed.retry_count), (Status::Pending, 0));
    let waits_ms = snoozed.available_at.since(snoozed.updated_at).as_millis();
    assert!(waits_ms.abs_diff(1_000) < 100, "the delay is {waits_ms} ms");
    if ctx.engine.now().plus_millis(500) < snoozed.available_at {
        ctx.assert_nothing_to_claim().await;
    }
    let (again, lease) = ctx.claim_one().await;
    assert_eq!((again.id, again.attempt), (task.id, 2));
    assert!(again.started_at.unwrap() >= snoozed.available_at);
    let year_and_a_day_ms = 366 * 24 * 3_600_000;
    assert_out_of_bounds(
        ctx.engine.snooze(task.id, lease, year_and_a_day_ms).await,
        "delay_ms",
    );
    ctx.engine.complete(task.id, lease, None).await.unwrap();
}

pub(super) async fn retries_up_to_the_limit_then_fails(ctx: &TestContext<'_>) {
    let mut request = SubmitRequest {
        max_retries: Some(2),
        ..ctx.submit_request()
    };
    request.retry_policy.initial_interval_ms = 200;
    request.retry_policy.multiplier = 2.0;
    request.retry_policy.jitter_percent = 0.0;
    let task = ctx.submit(request).await;
    let mut not_before = None;
    for attempt in 1..=3_u32 {
        let (claimed, lease) = ctx.claim_one().await;
        assert_eq!((claimed.id, claimed.attempt), (task.id, attempt));
        assert!(
            claimed.started_at >= not_before,
            "claimed before it was due"
        );
        let error = failure(FailureKind::Retryable, &format!("error {attempt}"));
        let failed = ctx.engine.fail(task.id, lease, error).await.unwrap();
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
            "the delay after failure {attempt} is {waits_ms} ms"
        );
        not_before = Some(failed.available_at);
    }
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn fails_at_once_on_a_permanent_error(ctx: &TestContext<'_>) {
    let (task, lease) = ctx.running().await;
    let error = failure(FailureKind::Permanent, "no such address");
    let failed = ctx.engine.fail(task.id, lease, error).await.unwrap();
    assert_eq!((failed.status, failed.retry_count), (Status::Failed, 0));
    assert_eq!(failed.last_error.as_deref(), Some("no such address"));
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn retries_after_a_timeout(ctx: &TestContext<'_>) {
    let task = ctx.submit_with_instant_retry(1).await;
    for expected in [Status::Pending, Status::Failed] {
        let (_, lease) = ctx.claim_one().await;
        let error = failure(FailureKind::Timeout, "took too long");
        let failed = ctx.engine.fail(task.id, lease, error).await.unwrap();
        assert_eq!(failed.status, expected);
    }
}

pub(super) async fn keeps_logs(ctx: &TestContext<'_>) {
    let task = ctx.submit_with_instant_retry(3).await;
    let (_, lease) = ctx.claim_one().await;
    let failure = failure(FailureKind::Retryable, "broken");
    let fail = Operation::Fail { lease, failure }.logged(Some("first try\n"));
    let failed = ctx.engine.act(task.id, fail).await.unwrap();
    assert_eq!(failed.logs().len(), 1);
    let (claimed, lease) = ctx.claim_one().await;
    let output = Some(json("1"));
    let complete = Operation::Complete { lease, output }.logged(Some("second try\n"));
    let results = ctx.engine.act_many(vec![(claimed.id, complete)]).await;
    let done = results.into_iter().next().unwrap().unwrap();
    let stored = ctx.new_engine().await.get(task.id).await.unwrap();
    for task in [&done, &stored] {
        assert_eq!(task.status, Status::Completed);
        let logs: Vec<_> = task
            .logs()
            .iter()
            .map(|log| (log.attempt, &*log.text))
            .collect();
        assert_eq!(logs, [(1, "first try\n"), (2, "second try\n")]);
    }
    assert_eq!(ctx.engine.output(&stored).await.unwrap(), Some(json("1")));
}
