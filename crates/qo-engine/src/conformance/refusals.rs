//! Bad input gets an error of its own, and nothing is written.

use qo_core::limits::{LEASE_MAX_MS, RETRIES_MAX, TAGS_MAX, TIMEOUT_MAX_SECONDS};
use qo_core::transition::{FailureKind, ProgressReport};
use qo_core::{LeaseId, Rejection, RetryPolicy};

use super::room::{Room, failure, json, name, not_found, out_of_bounds, rejection};
use crate::api::{ClaimRequest, IdempotencyRequest, SubmitRequest, TaskFilter, When};
use crate::error::EngineError;

pub(super) async fn does_not_know_an_unknown_task(room: &Room<'_>) {
    let (engine, id) = (&room.engine, room.new_id());
    let lease = LeaseId::from(*room.new_id().as_uuid());
    let report = ProgressReport {
        percent: 1.0,
        message: None,
    };
    let error = failure(FailureKind::Retryable, "x");
    not_found(engine.get(id).await, id);
    not_found(engine.renew(id, lease, None).await, id);
    not_found(engine.progress(id, lease, report).await, id);
    not_found(engine.complete(id, lease, None).await, id);
    not_found(engine.fail(id, lease, error).await, id);
    not_found(engine.release(id, lease).await, id);
    not_found(engine.snooze(id, lease, 1).await, id);
    not_found(engine.cancel(id, None).await, id);
    not_found(engine.replay(id).await, id);
    not_found(engine.archive(id).await, id);
    not_found(engine.unarchive(id).await, id);
    not_found(engine.purge(id).await, id);
    not_found(engine.history(id).await, id);
    not_found(engine.versions(id, 10).await, id);
    not_found(engine.get(id).await, id);
}

/// Nothing came of a refused submit: no task, and no trace of its id or its key.
async fn left_no_trace(room: &Room<'_>, request: &SubmitRequest) {
    not_found(
        room.engine.get(request.id.unwrap()).await,
        request.id.unwrap(),
    );
    let filter = TaskFilter {
        queue: Some(room.queue.clone()),
        ..TaskFilter::default()
    };
    let page = room.engine.list(&filter, None, 10).await.unwrap();
    assert_eq!(page.tasks, []);
    room.nothing_to_claim().await;
}

fn named(room: &Room<'_>) -> SubmitRequest {
    SubmitRequest {
        id: Some(room.new_id()),
        idempotency: Some(IdempotencyRequest {
            key: name("a key"),
            scope: qo_core::task::IdempotencyScope::Queue,
            window_ms: None,
        }),
        ..room.request()
    }
}

pub(super) async fn refuses_what_is_out_of_bounds(room: &Room<'_>) {
    let good = named(room);
    let refused = [
        (
            "priority",
            SubmitRequest {
                priority: 10,
                ..good.clone()
            },
        ),
        (
            "timeout_seconds",
            SubmitRequest {
                timeout_seconds: 0,
                ..good.clone()
            },
        ),
        (
            "timeout_seconds",
            SubmitRequest {
                timeout_seconds: TIMEOUT_MAX_SECONDS + 1,
                ..good.clone()
            },
        ),
        (
            "max_retries",
            SubmitRequest {
                max_retries: RETRIES_MAX + 1,
                ..good.clone()
            },
        ),
        (
            "tags",
            SubmitRequest {
                tags: (0..=TAGS_MAX).map(|n| name(&format!("tag {n}"))).collect(),
                ..good.clone()
            },
        ),
        (
            "expires_at",
            SubmitRequest {
                available: When::InMillis(5_000),
                expires: Some(When::InMillis(5_000)),
                ..good.clone()
            },
        ),
    ];
    for (field, request) in refused {
        out_of_bounds(room.engine.submit(request).await, field);
    }
    let policy = SubmitRequest {
        retry_policy: RetryPolicy {
            multiplier: 0.5,
            ..RetryPolicy::default()
        },
        ..good.clone()
    };
    assert!(matches!(
        rejection(room.engine.submit(policy).await),
        Rejection::RetryPolicy(_)
    ));
    left_no_trace(room, &good).await;

    for lease_ms in [0, LEASE_MAX_MS + 1] {
        let wish = ClaimRequest {
            lease_ms: Some(lease_ms),
            ..room.wish(1)
        };
        out_of_bounds(room.engine.claim(&wish).await, "lease_ms");
    }
    let task = room.submit(good).await;
    let wish = ClaimRequest {
        lease_ms: Some(0),
        ..room.wish(1)
    };
    out_of_bounds(room.engine.claim(&wish).await, "lease_ms");
    assert_eq!(room.get(task.id).await, task);
    assert_eq!(room.claim_one().await.0.id, task.id);
}

pub(super) async fn refuses_payloads_that_are_too_large(room: &Room<'_>) {
    let max_bytes = room.harness.payload_max_bytes();
    let length = usize::try_from(max_bytes).unwrap();
    // Two quotes belong to the text.
    let largest = json(&format!("\"{}\"", "x".repeat(length - 2)));
    let too_large = json(&format!("\"{}\"", "x".repeat(length - 1)));
    let expect_too_large = |error: EngineError, expected: &str| match error {
        EngineError::PayloadTooLarge { field, size, .. } => {
            assert_eq!((field, size), (expected, max_bytes + 1));
        }
        other => panic!("{other:?}"),
    };
    let refused = SubmitRequest {
        input: too_large.clone(),
        ..named(room)
    };
    let error = room.engine.submit(refused.clone()).await.unwrap_err();
    expect_too_large(error, "input");
    left_no_trace(room, &refused).await;

    let accepted = SubmitRequest {
        input: largest.clone(),
        ..refused
    };
    let task = room.submit(accepted).await;
    let (running, lease) = room.claim_one().await;
    assert_eq!(room.engine.input(&running).await.unwrap(), largest);
    let refused = room.engine.complete(task.id, lease, Some(too_large)).await;
    expect_too_large(refused.unwrap_err(), "output");
    assert_eq!(room.get(task.id).await, running, "it is still running");
    room.engine
        .complete(task.id, lease, Some(largest))
        .await
        .unwrap();
}
