//! Idempotency keys: all submits with the same key create one task.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use qo_core::task::IdempotencyScope;
use qo_store::runtime::BoxFuture;

use super::context::{CLOCK_SLACK_MS, TestContext, json, name};
use crate::api::{IdempotencyRequest, SubmitRequest, Submitted};

/// The window of a key that the check lets expire.
const WINDOW_MS: u64 = CLOCK_SLACK_MS + 500;

fn keyed(ctx: &TestContext<'_>, scope: IdempotencyScope, window_ms: Option<u64>) -> SubmitRequest {
    SubmitRequest {
        idempotency: Some(IdempotencyRequest {
            // The key contains the queue name, because global keys are shared with the other checks.
            key: name(&format!("key of {}", ctx.queue)),
            scope,
            window_ms,
        }),
        ..ctx.submit_request()
    }
}

pub(super) async fn creates_one_task_per_key(ctx: &TestContext<'_>) {
    let request = keyed(ctx, IdempotencyScope::Queue, None);
    let first = ctx.submit(request.clone()).await;
    let again = SubmitRequest {
        input: json("\"another input\""),
        ..request
    };
    let second = ctx.new_engine().await.submit(again).await.unwrap();
    assert!(second.duplicate);
    assert_eq!(second.task, first);
    assert_eq!(ctx.claim(10).await.len(), 1, "two submits created one task");
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn separates_key_scopes(ctx: &TestContext<'_>) {
    use IdempotencyScope::{Global, Queue, Type};
    let submit = async |scope, queue: &str, task_type: &str| -> Submitted {
        let request = SubmitRequest {
            queue: name(&format!("{}{queue}", ctx.queue)),
            task_type: name(&format!("{}{task_type}", ctx.task_type)),
            ..keyed(ctx, scope, None)
        };
        ctx.engine.submit(request).await.unwrap()
    };
    let first = submit(Queue, "", "").await;
    assert!(!first.duplicate);
    let same = submit(Queue, "", "-b").await;
    assert_eq!(
        (same.duplicate, same.task.id),
        (true, first.task.id),
        "a key with queue scope applies to all types of the queue"
    );
    assert!(!submit(Queue, "-b", "").await.duplicate, "another queue");

    assert!(!submit(Type, "", "").await.duplicate, "another scope");
    assert!(submit(Type, "", "").await.duplicate);
    assert!(!submit(Type, "", "-b").await.duplicate, "another type");
    assert!(!submit(Type, "-b", "").await.duplicate, "another queue");

    let global = submit(Global, "", "").await;
    assert!(!global.duplicate, "another scope");
    let same = submit(Global, "-b", "-b").await;
    assert_eq!(
        (same.duplicate, same.task.id),
        (true, global.task.id),
        "a global key applies to all queues and types"
    );
}

pub(super) async fn releases_a_key_after_its_window(ctx: &TestContext<'_>) {
    let request = keyed(ctx, IdempotencyScope::Queue, Some(WINDOW_MS));
    let first = ctx.submit(request.clone()).await;
    let second = ctx.engine.submit(request.clone()).await.unwrap();
    if ctx.engine.now() < first.created_at.plus_millis(WINDOW_MS - CLOCK_SLACK_MS) {
        assert!(second.duplicate, "the window is open");
    }
    ctx.sleep(Duration::from_millis(WINDOW_MS)).await;
    let third = ctx
        .poll_until("the window has ended", async || {
            let third = ctx.engine.submit(request.clone()).await.unwrap();
            (!third.duplicate).then_some(third.task)
        })
        .await;
    assert_ne!(third.id, first.id, "a new task is created");
    assert!(
        third.created_at >= first.created_at.plus_millis(WINDOW_MS - CLOCK_SLACK_MS),
        "the key was released before its window ended"
    );
    assert_eq!(ctx.get(first.id).await, first);
}

pub(super) async fn creates_one_task_per_key_concurrently(ctx: &TestContext<'_>) {
    let engines = [ctx.new_engine().await, Arc::clone(&ctx.engine)];
    let jobs = (0..8)
        .map(|n| -> BoxFuture<Submitted> {
            let engine = Arc::clone(&engines[n % 2]);
            let request = keyed(ctx, IdempotencyScope::Queue, None);
            Box::pin(async move { engine.submit(request).await.unwrap() })
        })
        .collect();
    let submitted = ctx.run_concurrently(jobs).await;
    let ids: BTreeSet<_> = submitted.iter().map(|one| one.task.id).collect();
    assert_eq!(
        ids.len(),
        1,
        "all submits return the same task: {submitted:?}"
    );
    let new = submitted.iter().filter(|one| !one.duplicate).count();
    assert_eq!(new, 1, "one submit created the task");
    assert_eq!(ctx.claim(10).await.len(), 1);
    ctx.assert_nothing_to_claim().await;
}
