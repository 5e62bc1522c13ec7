//! The settings of queues.

use qo_core::task::{IdempotencyScope, RETRIES_DEFAULT, TIMEOUT_DEFAULT_SECONDS};
use qo_core::{QueueSettings, Rejection, Route, Status, TaskId};
use qo_store::runtime::RuntimeExt;

use super::context::{TestContext, json, rejection};
use crate::api::{DocumentQuery, DocumentWrite, IdempotencyRequest, SubmitRequest};
use crate::engine::Engine;
use crate::error::EngineError;

/// Replaces the settings of the check's queue. Returns false if the engine has none, and says so.
async fn set(ctx: &TestContext<'_>, engine: &dyn Engine, body: &str) -> bool {
    let id = QueueSettings::document_id(&ctx.queue);
    let known = engine.documents(&DocumentQuery::one(&id)).await.unwrap();
    let expected = known.first().map(|document| document.version);
    let op = ctx.harness.runtime().new_op_id();
    let write = DocumentWrite::new(id, expected, Some(json(body)), op);
    let written = engine.write_document(write).await;
    if !ctx.harness.has_queue_settings() {
        let refused = written.unwrap_err();
        assert!(matches!(refused, EngineError::BadRequest(_)), "{refused}");
        return false;
    }
    assert_eq!(written.unwrap().unwrap().body.as_str(), body);
    true
}

pub(super) async fn applies_the_settings_of_a_queue(ctx: &TestContext<'_>) {
    let other = ctx.new_engine().await;
    let before = ctx.submit_one().await;
    assert_eq!(
        other
            .submit(ctx.submit_request())
            .await
            .unwrap()
            .task
            .max_retries,
        RETRIES_DEFAULT
    );
    let body = r#"{"max_retries":7,"timeout_seconds":61,"max_wait_ms":3600000}"#;
    if !set(ctx, &*ctx.engine, body).await {
        return;
    }
    // The process that changed them applies them at once.
    let task = ctx.submit_one().await;
    let defaults =
        |task: &qo_core::Task| (task.max_retries, task.timeout_seconds, task.max_wait_ms);
    assert_eq!(defaults(&task), (7, 61, Some(3_600_000)));
    assert_eq!(defaults(&ctx.get(task.id).await), defaults(&task));
    let own = SubmitRequest {
        max_retries: Some(RETRIES_DEFAULT),
        timeout_seconds: Some(TIMEOUT_DEFAULT_SECONDS),
        ..ctx.submit_request()
    };
    let own = ctx.submit(own).await;
    assert_eq!(
        (own.max_retries, own.timeout_seconds),
        (RETRIES_DEFAULT, TIMEOUT_DEFAULT_SECONDS)
    );
    // Every other process does so soon.
    ctx.poll_until("another process knows the settings", async || {
        let task = other.submit(ctx.submit_request()).await.unwrap().task;
        (task.max_retries == 7).then_some(())
    })
    .await;
    // Tasks of another queue, and those that were there before, are as they were.
    let elsewhere = SubmitRequest {
        queue: ctx.worker.as_str().parse().unwrap(),
        ..ctx.submit_request()
    };
    assert_eq!(ctx.submit(elsewhere).await.max_retries, RETRIES_DEFAULT);
    assert_eq!(ctx.get(before.id).await.max_retries, RETRIES_DEFAULT);
    // Settings can be changed again.
    set(ctx, &*ctx.engine, r#"{"max_retries":0}"#).await;
    assert_eq!(
        defaults(&ctx.submit_one().await),
        (0, TIMEOUT_DEFAULT_SECONDS, None)
    );
}

pub(super) async fn rejects_submits_to_a_full_queue(ctx: &TestContext<'_>) {
    if !set(ctx, &*ctx.engine, r#"{"max_waiting":3}"#).await {
        return;
    }
    let full = Rejection::QueueFull {
        queue: ctx.queue.clone(),
        limit: 3,
    };
    let keyed = ctx.with_id(SubmitRequest {
        idempotency: Some(IdempotencyRequest {
            key: ctx.worker.as_str().parse().unwrap(),
            scope: IdempotencyScope::Queue,
            window_ms: None,
        }),
        ..ctx.submit_request()
    });
    let first = ctx.submit(keyed.clone()).await;
    // Duplicates take no place.
    for _ in 0..3 {
        assert!(ctx.engine.submit(keyed.clone()).await.unwrap().duplicate);
    }
    let requests = vec![ctx.submit_request(); 3];
    let results = ctx.engine.submit_many(requests).await;
    let (added, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!((added.len(), refused.len()), (2, 1));
    for result in refused {
        assert_eq!(rejection(result), full);
    }
    let id = ctx.new_id();
    let late = SubmitRequest {
        id: Some(id),
        ..ctx.submit_request()
    };
    assert_eq!(rejection(ctx.engine.submit(late.clone()).await), full);
    super::context::assert_not_found(ctx.engine.get(id).await, id);
    // A task that exists is found, whether the queue is full or not.
    for request in [
        keyed.clone(),
        SubmitRequest {
            id: None,
            ..keyed.clone()
        },
        SubmitRequest {
            id: Some(first.id),
            ..ctx.submit_request()
        },
    ] {
        let again = ctx.engine.submit(request).await.unwrap();
        assert_eq!((again.task.id, again.duplicate), (first.id, true));
    }
    // Invalid requests are refused as such.
    let invalid = SubmitRequest {
        priority: 99,
        ..ctx.submit_request()
    };
    super::context::assert_out_of_bounds(ctx.engine.submit(invalid).await, "priority");
    // A run of a schedule is never refused.
    let routed: TaskId = ctx.new_id().with_route(Route::DOCUMENTS);
    let schedule = DocumentWrite {
        submits: vec![SubmitRequest {
            id: Some(routed),
            ..ctx.submit_request()
        }],
        ..DocumentWrite::new(
            qo_core::DocumentId {
                kind: qo_core::DocumentKind::Schedules,
                name: ctx.worker.as_str().parse().unwrap(),
            },
            None,
            Some(json("{}")),
            ctx.harness.runtime().new_op_id(),
        )
    };
    ctx.engine.write_document(schedule).await.unwrap();
    assert_eq!(ctx.get(routed).await.status, Status::Pending);
    // Claims make room.
    assert_eq!(ctx.claim(2).await.len(), 2);
    ctx.poll_until("there is room again", async || {
        match ctx.engine.submit(late.clone()).await {
            Ok(submitted) => {
                assert!(!submitted.duplicate, "a new task");
                Some(())
            }
            Err(error) => {
                assert_eq!(error, full.clone().into());
                None
            }
        }
    })
    .await;
}

pub(super) async fn fails_tasks_that_waited_too_long(ctx: &TestContext<'_>) {
    if !set(ctx, &*ctx.engine, r#"{"max_wait_ms":300}"#).await {
        return;
    }
    let task = ctx.submit_one().await;
    let until = task.pending_until().unwrap();
    assert_eq!(until, task.available_at.plus_millis(300));
    ctx.poll_until("the task has waited too long", async || {
        (ctx.engine.now() > until).then_some(())
    })
    .await;
    ctx.assert_nothing_to_claim().await;
    let ended = ctx
        .poll_until("the task has failed", async || {
            ctx.harness.maintain().await;
            let task = ctx.get(task.id).await;
            (task.status != Status::Pending).then_some(task)
        })
        .await;
    assert_eq!((ended.status, ended.attempt), (Status::Failed, 0));
    let error = ended.last_error.unwrap();
    assert!(error.contains("waited longer than 300 ms"), "{error}");
    assert!(error.contains(ctx.queue.as_str()), "{error}");
    // Its operator may run it all the same.
    let replayed = ctx.engine.replay(task.id).await.unwrap();
    assert_eq!(
        (replayed.status, replayed.max_wait_ms),
        (Status::Pending, None)
    );
    let (claimed, _) = ctx.claim_one().await;
    assert_eq!(claimed.id, task.id);
}

pub(super) async fn refuses_invalid_settings(ctx: &TestContext<'_>) {
    let id = QueueSettings::document_id(&ctx.queue);
    for body in [
        "[]",
        "[3,60]",
        r#"{"max_waiting":0}"#,
        r#"{"max_waiting":-1}"#,
        r#"{"max_wait_ms":0}"#,
        r#"{"timeout_seconds":0}"#,
        r#"{"retention_seconds":0}"#,
        r#"{"max_retries":"3"}"#,
        r#"{"max_retries":10001}"#,
        r#"{"group_weights":{"a":0}}"#,
        r#"{"group_weights":{"a":1001}}"#,
        r#"{"group_weights":{"no/slash":1}}"#,
    ] {
        let op = ctx.harness.runtime().new_op_id();
        let write = DocumentWrite::new(id.clone(), None, Some(json(body)), op);
        let refused = ctx.engine.write_document(write).await.unwrap_err();
        assert!(
            matches!(refused, EngineError::BadRequest(_)),
            "{body}: {refused}"
        );
    }
    let query = DocumentQuery::one(&id);
    assert_eq!(ctx.engine.documents(&query).await.unwrap(), []);
}
