//! Keys that are held for part of a task's life, and submits that change the task that holds their key.

use std::sync::Arc;

use qo_core::task::{IdempotencyScope, KeyHold, OnConflict, Uniqueness};
use qo_core::{Json, Status, TaskId};
use qo_store::runtime::BoxFuture;

use super::context::{TestContext, assert_out_of_bounds, json, name};
use crate::api::{IdempotencyRequest, SubmitRequest, Submitted, When};
use crate::engine::Engine;
use crate::error::EngineError;

fn keyed(ctx: &TestContext<'_>, hold: KeyHold, on_conflict: OnConflict) -> SubmitRequest {
    SubmitRequest {
        idempotency: Some(IdempotencyRequest {
            key: name(&format!("key of {}", ctx.queue)),
            scope: IdempotencyScope::Queue,
            window_ms: None,
        }),
        uniqueness: Uniqueness { hold, on_conflict },
        ..ctx.submit_request()
    }
}

/// Submits, and expects a task that exists already.
async fn found(engine: &dyn Engine, request: SubmitRequest, id: TaskId) -> qo_core::Task {
    let submitted = engine.submit(request).await.unwrap();
    assert_eq!((submitted.task.id, submitted.duplicate), (id, true));
    submitted.task
}

/// Submits, and expects a new task.
async fn created(engine: &dyn Engine, request: SubmitRequest) -> qo_core::Task {
    let Submitted { task, duplicate } = engine.submit(request).await.unwrap();
    assert!(!duplicate, "the key was free");
    task
}

pub(super) async fn holds_a_key_while_the_task_waits(ctx: &TestContext<'_>) {
    let other = ctx.new_engine().await;
    let request = keyed(ctx, KeyHold::Waiting, OnConflict::Keep);
    let first = ctx.submit(request.clone()).await;
    assert_eq!(first.idempotency_hold, KeyHold::Waiting);
    for engine in [&ctx.engine, &other] {
        found(&**engine, request.clone(), first.id).await;
    }
    let (claimed, lease) = ctx.claim_one().await;
    assert_eq!(claimed.id, first.id);
    // A repeated submit of an id is no new one, whoever holds the key.
    let second = created(&*other, ctx.with_id(request.clone())).await;
    found(&*ctx.engine, request.clone(), second.id).await;
    let repeated = SubmitRequest {
        id: Some(first.id),
        ..request.clone()
    };
    found(&*ctx.engine, repeated, first.id).await;
    // What happens to the first does not matter any more, not even a retry.
    ctx.engine.release(first.id, lease).await.unwrap();
    found(&*other, request.clone(), second.id).await;
    for _ in 0..2 {
        let (task, lease) = ctx.claim_one().await;
        ctx.engine.complete(task.id, lease, None).await.unwrap();
    }
    let third = created(&*ctx.engine, request.clone()).await;
    ctx.engine.cancel(third.id, None).await.unwrap();
    created(&*other, request).await;
}

pub(super) async fn holds_a_key_until_the_task_is_finished(ctx: &TestContext<'_>) {
    let other = ctx.new_engine().await;
    let request = keyed(ctx, KeyHold::Unfinished, OnConflict::Replace);
    let first = ctx.submit(request.clone()).await;
    let (_, lease) = ctx.claim_one().await;
    // A task that has started is not changed.
    let late = SubmitRequest {
        input: json("\"late\""),
        ..request.clone()
    };
    let running = found(&*other, late, first.id).await;
    assert_eq!(ctx.engine.input(&running).await.unwrap(), request.input);
    ctx.engine.complete(first.id, lease, None).await.unwrap();
    let second = created(&*other, request.clone()).await;
    assert_ne!(second.id, first.id);
    // A replay of the first does not ask for the key.
    ctx.engine.replay(first.id).await.unwrap();
    found(&*ctx.engine, request, second.id).await;
}

pub(super) async fn replaces_the_input_of_a_waiting_task(ctx: &TestContext<'_>) {
    let other = ctx.new_engine().await;
    let request = keyed(ctx, KeyHold::Waiting, OnConflict::Replace);
    let first = ctx.submit(request.clone()).await;
    // Inputs of some kilobytes are stored in another way than small ones.
    let large = format!("\"{}\"", "x".repeat(5_000));
    for input in [
        "\"second\"",
        large.as_str(),
        "{ \"n\": 3.0 }",
        large.as_str(),
        "4",
    ] {
        let replacing = SubmitRequest {
            input: Json::parse(input).unwrap(),
            ..request.clone()
        };
        let changed = found(&*ctx.engine, replacing, first.id).await;
        assert_eq!(changed.available_at, first.available_at);
        for engine in [&ctx.engine, &other] {
            let stored = engine.get(first.id).await.unwrap();
            assert_eq!(engine.input(&stored).await.unwrap().as_str(), input);
        }
    }
    let revision = ctx.get(first.id).await.revision;
    let same = SubmitRequest {
        input: json("4"),
        ..request.clone()
    };
    found(&*other, same, first.id).await;
    assert_eq!(
        ctx.get(first.id).await.revision,
        revision,
        "nothing changed"
    );
    let (claimed, lease) = ctx.claim_one().await;
    assert_eq!(ctx.engine.input(&claimed).await.unwrap().as_str(), "4");
    ctx.assert_nothing_to_claim().await;
    let done = ctx.engine.complete(first.id, lease, None).await.unwrap();
    assert_eq!(ctx.engine.input(&done).await.unwrap().as_str(), "4");
    let ended = ctx.get(first.id).await;
    assert_eq!(ctx.engine.input(&ended).await.unwrap().as_str(), "4");
}

pub(super) async fn postpones_a_waiting_task(ctx: &TestContext<'_>) {
    let other = ctx.new_engine().await;
    let after = |millis, on_conflict| SubmitRequest {
        available: When::InMillis(millis),
        ..keyed(ctx, KeyHold::Waiting, on_conflict)
    };
    let first = ctx.submit(after(600, OnConflict::Postpone)).await;
    let postponed = found(&*other, after(3_000, OnConflict::Postpone), first.id).await;
    assert!(postponed.available_at >= first.available_at.plus_millis(1_500));
    // It never becomes due sooner.
    let sooner = found(&*ctx.engine, after(1, OnConflict::Postpone), first.id).await;
    assert_eq!(sooner.available_at, postponed.available_at);
    let both = SubmitRequest {
        input: json("\"newest\""),
        ..after(3_100, OnConflict::ReplaceAndPostpone)
    };
    let last = found(&*ctx.engine, both, first.id).await;
    ctx.poll_until("the first due time has passed", async || {
        (ctx.engine.now() > first.available_at.plus_millis(100)).then_some(())
    })
    .await;
    if ctx.engine.now().plus_millis(1_000) < last.available_at {
        ctx.assert_nothing_to_claim().await;
    }
    let (claimed, _) = ctx.claim_one().await;
    assert_eq!(claimed.id, first.id);
    assert!(claimed.started_at.unwrap() >= last.available_at);
    assert_eq!(
        ctx.engine.input(&claimed).await.unwrap(),
        json("\"newest\"")
    );
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn lets_one_submit_win_a_free_key(ctx: &TestContext<'_>) {
    let engines = [Arc::clone(&ctx.engine), ctx.new_engine().await];
    let request = keyed(ctx, KeyHold::Waiting, OnConflict::Replace);
    let mut known = vec![ctx.submit(request.clone()).await.id];
    for round in 0..3 {
        let (_, lease) = ctx.claim_one().await;
        let jobs: Vec<BoxFuture<Submitted>> = (0..6)
            .map(|number| {
                let engine = Arc::clone(&engines[number % 2]);
                let request = SubmitRequest {
                    input: json(&format!("[{round},{number}]")),
                    ..request.clone()
                };
                Box::pin(async move { engine.submit(request).await.unwrap() }) as BoxFuture<_>
            })
            .collect();
        let results = ctx.run_concurrently(jobs).await;
        let id = results[0].task.id;
        assert!(!known.contains(&id), "the key was free");
        assert!(results.iter().all(|result| result.task.id == id));
        let new = results.iter().filter(|result| !result.duplicate).count();
        assert!(new <= 1, "{new} submits made the task {id}");
        let stored = ctx.get(id).await;
        assert_eq!(stored.status, Status::Pending);
        let input = ctx.engine.input(&stored).await.unwrap();
        let inputs = (0..6).map(|number| format!("[{round},{number}]"));
        assert!(inputs.into_iter().any(|one| one == input.as_str()));
        let done = known.last().copied().unwrap();
        ctx.engine.complete(done, lease, None).await.unwrap();
        known.push(id);
    }
}

pub(super) async fn refuses_invalid_uniqueness(ctx: &TestContext<'_>) {
    let postpone = keyed(ctx, KeyHold::Waiting, OnConflict::Postpone);
    assert_out_of_bounds(ctx.engine.submit(postpone).await, "available_at");
    let huge = SubmitRequest {
        input: Json::parse(format!("\"{}\"", "x".repeat(70_000))).unwrap(),
        ..keyed(ctx, KeyHold::Kept, OnConflict::Replace)
    };
    let refused = ctx.engine.submit(huge).await.unwrap_err();
    assert!(
        matches!(
            refused,
            EngineError::Rejected(_) | EngineError::PayloadTooLarge { .. }
        ),
        "{refused}"
    );
    let without_key = SubmitRequest {
        idempotency: None,
        ..keyed(ctx, KeyHold::Waiting, OnConflict::Keep)
    };
    let refused = ctx.engine.submit(without_key).await.unwrap_err();
    assert!(
        matches!(
            refused,
            EngineError::Rejected(_) | EngineError::BadRequest(_)
        ),
        "{refused}"
    );
    ctx.assert_queue_is_empty().await;
}
