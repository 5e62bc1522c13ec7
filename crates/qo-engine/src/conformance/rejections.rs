//! Invalid input is rejected with a specific error, and nothing is written.

use qo_core::limits::{LEASE_MAX_MS, RETRIES_MAX, TAGS_MAX, TIMEOUT_MAX_SECONDS};
use qo_core::transition::{FailureKind, ProgressReport};
use qo_core::{LeaseId, Rejection, RetryPolicy};

use super::context::{
    TestContext, assert_not_found, assert_out_of_bounds, failure, json, name, rejection,
};
use crate::api::{ClaimRequest, IdempotencyRequest, SubmitRequest, When};
use crate::error::EngineError;

pub(super) async fn reports_an_unknown_task_as_not_found(ctx: &TestContext<'_>) {
    let (engine, id) = (&ctx.engine, ctx.new_id());
    let lease = LeaseId::from(*ctx.new_id().as_uuid());
    let report = ProgressReport {
        percent: 1.0,
        message: None,
    };
    let error = failure(FailureKind::Retryable, "x");
    assert_not_found(engine.get(id).await, id);
    assert_not_found(engine.renew(id, lease, None).await, id);
    assert_not_found(engine.progress(id, lease, report).await, id);
    assert_not_found(engine.complete(id, lease, None).await, id);
    assert_not_found(engine.fail(id, lease, error).await, id);
    assert_not_found(engine.release(id, lease).await, id);
    assert_not_found(engine.snooze(id, lease, 1).await, id);
    assert_not_found(engine.cancel(id, None).await, id);
    assert_not_found(engine.replay(id).await, id);
    assert_not_found(engine.archive(id).await, id);
    assert_not_found(engine.unarchive(id).await, id);
    assert_not_found(engine.purge(id).await, id);
    assert_not_found(engine.history(id).await, id);
    assert_not_found(engine.versions(id, 10).await, id);
    assert_not_found(engine.get(id).await, id);
}

/// Asserts that a rejected submit left no task and did not use up its id.
async fn assert_nothing_written(ctx: &TestContext<'_>, request: &SubmitRequest) {
    assert_not_found(
        ctx.engine.get(request.id.unwrap()).await,
        request.id.unwrap(),
    );
    ctx.assert_queue_is_empty().await;
}

fn request_with_id_and_key(ctx: &TestContext<'_>) -> SubmitRequest {
    ctx.with_id(SubmitRequest {
        idempotency: Some(IdempotencyRequest {
            key: name("a key"),
            scope: qo_core::task::IdempotencyScope::Queue,
            window_ms: None,
        }),
        ..ctx.submit_request()
    })
}

pub(super) async fn rejects_out_of_bounds_values(ctx: &TestContext<'_>) {
    let valid = request_with_id_and_key(ctx);
    let invalid = [
        (
            "priority",
            SubmitRequest {
                priority: 10,
                ..valid.clone()
            },
        ),
        (
            "timeout_seconds",
            SubmitRequest {
                timeout_seconds: Some(0),
                ..valid.clone()
            },
        ),
        (
            "timeout_seconds",
            SubmitRequest {
                timeout_seconds: Some(TIMEOUT_MAX_SECONDS + 1),
                ..valid.clone()
            },
        ),
        (
            "max_retries",
            SubmitRequest {
                max_retries: Some(RETRIES_MAX + 1),
                ..valid.clone()
            },
        ),
        (
            "tags",
            SubmitRequest {
                tags: (0..=TAGS_MAX).map(|n| name(&format!("tag {n}"))).collect(),
                ..valid.clone()
            },
        ),
        (
            "expires_at",
            SubmitRequest {
                available: When::InMillis(5_000),
                expires: Some(When::InMillis(5_000)),
                ..valid.clone()
            },
        ),
    ];
    for (field, request) in invalid {
        assert_out_of_bounds(ctx.engine.submit(request).await, field);
    }
    let policy = SubmitRequest {
        retry_policy: RetryPolicy {
            multiplier: 0.5,
            ..RetryPolicy::default()
        },
        ..valid.clone()
    };
    assert!(matches!(
        rejection(ctx.engine.submit(policy).await),
        Rejection::RetryPolicy(_)
    ));
    assert_nothing_written(ctx, &valid).await;

    for lease_ms in [0, LEASE_MAX_MS + 1] {
        let request = ClaimRequest {
            lease_ms: Some(lease_ms),
            ..ctx.claim_request(1)
        };
        assert_out_of_bounds(ctx.engine.claim(&request).await, "lease_ms");
    }
    let task = ctx.submit(valid).await;
    let request = ClaimRequest {
        lease_ms: Some(0),
        ..ctx.claim_request(1)
    };
    assert_out_of_bounds(ctx.engine.claim(&request).await, "lease_ms");
    assert_eq!(ctx.get(task.id).await, task);
    assert_eq!(ctx.claim_one().await.0.id, task.id);
}

pub(super) async fn rejects_payloads_over_the_limit(ctx: &TestContext<'_>) {
    let max_bytes = ctx.harness.payload_max_bytes();
    let length = usize::try_from(max_bytes).unwrap();
    // The JSON text includes two quotes.
    let largest = json(&format!("\"{}\"", "x".repeat(length - 2)));
    let too_large = json(&format!("\"{}\"", "x".repeat(length - 1)));
    let expect_too_large = |error: EngineError, expected: &str| match error {
        EngineError::PayloadTooLarge { field, size, .. } => {
            assert_eq!((field, size), (expected, max_bytes + 1));
        }
        other => panic!("{other:?}"),
    };
    let oversized = SubmitRequest {
        input: too_large.clone(),
        ..request_with_id_and_key(ctx)
    };
    let error = ctx.engine.submit(oversized.clone()).await.unwrap_err();
    expect_too_large(error, "input");
    assert_nothing_written(ctx, &oversized).await;

    let accepted = SubmitRequest {
        input: largest.clone(),
        ..oversized
    };
    let task = ctx.submit(accepted).await;
    let (mut running, lease) = ctx.claim_one().await;
    assert_eq!(ctx.engine.input(&running).await.unwrap(), largest);
    // Only the response to a claim has it.
    running.log_index = None;
    let result = ctx.engine.complete(task.id, lease, Some(too_large)).await;
    expect_too_large(result.unwrap_err(), "output");
    assert_eq!(ctx.get(task.id).await, running, "the task is still running");
    ctx.engine
        .complete(task.id, lease, Some(largest))
        .await
        .unwrap();
}
