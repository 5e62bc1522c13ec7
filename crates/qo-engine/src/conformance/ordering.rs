//! Ordering keys: tasks of one queue with the same key run one at a time, in submit order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use qo_core::task::{OnFailure, OrderingRule};
use qo_core::transition::FailureKind;
use qo_core::{DocumentId, DocumentKind, LeaseId, Rejection, Route, Status, Task, TaskId};
use qo_store::runtime::{BoxFuture, RuntimeExt};

use super::context::{TestContext, failure, json, name, rejection};
use crate::api::{ClaimRequest, DocumentWrite, SubmitRequest, WaitReason, When};
use crate::error::EngineError;

fn ordered(ctx: &TestContext<'_>, key: &str, on_failure: OnFailure) -> SubmitRequest {
    let mut request = SubmitRequest {
        ordering: Some(OrderingRule {
            key: name(key),
            on_failure,
        }),
        ..ctx.submit_request()
    };
    request.retry_policy.initial_interval_ms = 1;
    request.retry_policy.max_interval_ms = 1;
    request
}

/// Submits tasks with one key in one call.
async fn submit_line(ctx: &TestContext<'_>, count: usize, on_failure: OnFailure) -> Vec<TaskId> {
    let requests = (0..count).map(|_| ordered(ctx, "account 17", on_failure));
    let results = ctx.engine.submit_many(requests.collect()).await;
    results
        .into_iter()
        .map(|one| one.unwrap().task.id)
        .collect()
}

/// Claims as many tasks as there are, and expects exactly this one.
async fn claim_only(ctx: &TestContext<'_>, expected: TaskId) -> (Task, LeaseId) {
    let tasks = ctx.claim(10).await;
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    assert_eq!(ids, [expected], "only the head of the line can be claimed");
    ctx.assert_nothing_to_claim().await;
    let task = tasks.into_iter().next().unwrap();
    let lease = task.lease_id.unwrap();
    (task, lease)
}

async fn run(ctx: &TestContext<'_>, expected: TaskId) {
    let (task, lease) = claim_only(ctx, expected).await;
    ctx.engine.complete(task.id, lease, None).await.unwrap();
}

async fn waits_behind(ctx: &TestContext<'_>, id: TaskId) -> Option<(TaskId, u64, bool)> {
    let task = ctx.get(id).await;
    match ctx.engine.waits_for(&task).await.unwrap()? {
        WaitReason::OrderingKey {
            behind,
            ahead,
            stopped,
        } => Some((behind, ahead, stopped)),
        other => panic!("{other:?}"),
    }
}

pub(super) async fn runs_tasks_of_one_key_in_submit_order(ctx: &TestContext<'_>) {
    // Some of them are submitted in a way of their own: with an id, or with an input that is stored apart.
    let requests: Vec<SubmitRequest> = (0..6)
        .map(|number| {
            let request = ordered(ctx, "account 17", OnFailure::Continue);
            match number {
                2 => ctx.with_id(request),
                3 => SubmitRequest {
                    input: json(&format!("\"{}\"", "x".repeat(100 * 1024))),
                    ..request
                },
                _ => request,
            }
        })
        .collect();
    let mut ids = Vec::new();
    for result in ctx.engine.submit_many(requests).await {
        let task = result.unwrap().task;
        assert_eq!(task.ordering_key, Some(name("account 17")));
        ids.push(task.id);
    }
    let urgent = SubmitRequest {
        priority: 0,
        ..ordered(ctx, "account 17", OnFailure::Continue)
    };
    ids.push(ctx.submit(urgent).await.id);
    let other = ctx.submit(ordered(ctx, "account 18", OnFailure::Continue));
    let other = other.await.id;
    let both = ctx.claim(10).await;
    let mut claimed: Vec<TaskId> = both.iter().map(|task| task.id).collect();
    claimed.sort();
    let mut expected = vec![ids[0], other];
    expected.sort();
    assert_eq!(claimed, expected, "the heads of two lines");
    assert_eq!(
        waits_behind(ctx, ids[4]).await,
        Some((ids[0], 4, false)),
        "it says why it waits"
    );
    for task in &both {
        assert_eq!(waits_behind(ctx, task.id).await, None);
        let lease = task.lease_id.unwrap();
        ctx.engine.complete(task.id, lease, None).await.unwrap();
    }
    for id in &ids[1..] {
        run(ctx, *id).await;
    }
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn keeps_the_place_of_a_returned_task(ctx: &TestContext<'_>) {
    let ids = submit_line(ctx, 2, OnFailure::Continue).await;
    let (task, lease) = claim_only(ctx, ids[0]).await;
    ctx.engine.release(task.id, lease).await.unwrap();
    let (task, lease) = claim_only(ctx, ids[0]).await;
    let error = failure(FailureKind::Retryable, "again");
    ctx.engine.fail(task.id, lease, error).await.unwrap();
    let (task, lease) = claim_only(ctx, ids[0]).await;
    ctx.engine.snooze(task.id, lease, 3_600_000).await.unwrap();
    ctx.assert_nothing_to_claim().await;
    assert_eq!(waits_behind(ctx, ids[1]).await, Some((ids[0], 1, false)));
    ctx.new_engine().await.run_now(ids[0]).await.unwrap();
    run(ctx, ids[0]).await;
    run(ctx, ids[1]).await;

    // A delayed task holds its line up as well, and making a task due that is not the head changes nothing.
    let delayed = SubmitRequest {
        available: When::InMillis(3_600_000),
        ..ordered(ctx, "account 17", OnFailure::Continue)
    };
    let first = ctx.submit(delayed.clone()).await.id;
    let second = ctx.submit(delayed).await.id;
    ctx.engine.run_now(second).await.unwrap();
    ctx.assert_nothing_to_claim().await;
    ctx.engine.run_now(first).await.unwrap();
    run(ctx, first).await;
    run(ctx, second).await;
}

pub(super) async fn keeps_the_place_of_a_task_whose_worker_died(ctx: &TestContext<'_>) {
    let ids = submit_line(ctx, 2, OnFailure::Continue).await;
    let request = ClaimRequest {
        lease_ms: Some(1_000),
        wait_ms: super::context::TIMEOUT_MS,
        ..ctx.claim_request(10)
    };
    let claimed = ctx.engine.claim(&request).await.unwrap();
    assert_eq!(claimed.len(), 1);
    let returned = ctx.maintain_until_not_running(ids[0]).await;
    assert_eq!(returned.status, Status::Pending);
    run(ctx, ids[0]).await;
    run(ctx, ids[1]).await;
}

pub(super) async fn passes_over_tasks_that_left_the_line(ctx: &TestContext<'_>) {
    let mut ids = submit_line(ctx, 3, OnFailure::Continue).await;
    let perishable = SubmitRequest {
        expires: Some(When::InMillis(1)),
        ..ordered(ctx, "account 17", OnFailure::Continue)
    };
    let perishable = ctx.submit(perishable).await;
    ids.extend(submit_line(ctx, 1, OnFailure::Continue).await);
    ctx.engine.cancel(ids[1], None).await.unwrap();
    ctx.new_engine().await.cancel(ids[0], None).await.unwrap();
    ctx.engine.purge(ids[1]).await.unwrap();
    run(ctx, ids[2]).await;
    ctx.wait_until_due_everywhere(ctx.engine.as_ref(), perishable.expires_at.unwrap())
        .await;
    // The expired head is cancelled by a claim or by maintenance.
    ctx.poll_until("the expired head is passed over", async || {
        ctx.harness.maintain().await;
        let claimed = ctx.engine.claim(&ctx.claim_request(10)).await.unwrap();
        let task = claimed.into_iter().next()?;
        assert_eq!(task.id, ids[3]);
        let lease = task.lease_id.unwrap();
        ctx.engine.complete(task.id, lease, None).await.unwrap();
        Some(())
    })
    .await;
    let expired = ctx.get(perishable.id).await;
    assert_eq!((expired.status, expired.attempt), (Status::Cancelled, 0));
}

pub(super) async fn continues_after_a_failure(ctx: &TestContext<'_>) {
    let ids = submit_line(ctx, 2, OnFailure::Continue).await;
    let (task, lease) = claim_only(ctx, ids[0]).await;
    let error = failure(FailureKind::Permanent, "broken");
    let failed = ctx.engine.fail(task.id, lease, error).await.unwrap();
    assert_eq!(failed.status, Status::Failed);
    run(ctx, ids[1]).await;
    ctx.engine.purge(ids[0]).await.unwrap();
}

/// Lets the head of a line fail, and checks that the line stands still, also for a process that starts now.
async fn stopped(ctx: &TestContext<'_>) -> Vec<TaskId> {
    let ids = submit_line(ctx, 3, OnFailure::Stop).await;
    let (task, lease) = claim_only(ctx, ids[0]).await;
    let error = failure(FailureKind::Permanent, "broken");
    ctx.engine.fail(task.id, lease, error).await.unwrap();
    for _ in 0..2 {
        ctx.harness.maintain().await;
        ctx.assert_nothing_to_claim().await;
    }
    let other = ctx.new_engine().await;
    let claimed = other.claim(&ctx.claim_request(10)).await.unwrap();
    assert_eq!(claimed, []);
    assert_eq!(waits_behind(ctx, ids[1]).await, Some((ids[0], 1, true)));
    for (action, result) in [
        ("archive", ctx.engine.archive(ids[0]).await.map(drop)),
        ("purge", ctx.engine.purge(ids[0]).await),
    ] {
        assert_eq!(rejection(result), Rejection::StopsLine { action });
    }
    ids
}

pub(super) async fn stops_a_key_until_the_failed_task_is_replayed(ctx: &TestContext<'_>) {
    let ids = stopped(ctx).await;
    ctx.new_engine().await.replay(ids[0]).await.unwrap();
    for id in ids {
        run(ctx, id).await;
    }
}

pub(super) async fn stops_a_key_until_the_failed_task_is_cancelled(ctx: &TestContext<'_>) {
    let ids = stopped(ctx).await;
    let cancelled = ctx.new_engine().await.cancel(ids[0], None).await.unwrap();
    assert_eq!(cancelled.status, Status::Cancelled);
    assert_eq!(cancelled.last_error.as_deref(), Some("broken"));
    run(ctx, ids[1]).await;
    run(ctx, ids[2]).await;
    ctx.engine.purge(ids[0]).await.unwrap();
}

pub(super) async fn lets_a_replayed_task_join_at_the_end(ctx: &TestContext<'_>) {
    let ids = submit_line(ctx, 3, OnFailure::Continue).await;
    run(ctx, ids[0]).await;
    ctx.new_engine().await.replay(ids[0]).await.unwrap();
    ctx.engine.cancel(ids[2], None).await.unwrap();
    ctx.engine.replay(ids[2]).await.unwrap();
    for id in [ids[1], ids[0], ids[2]] {
        run(ctx, id).await;
    }
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn orders_concurrent_workers(ctx: &TestContext<'_>) {
    const KEYS: usize = 3;
    const TASKS: usize = 5;
    let requests: Vec<SubmitRequest> = (0..KEYS * TASKS)
        .map(|number| ordered(ctx, &format!("key {}", number % KEYS), OnFailure::Continue))
        .collect();
    let results = ctx.engine.submit_many(requests).await;
    let ids: Vec<TaskId> = results
        .into_iter()
        .map(|one| one.unwrap().task.id)
        .collect();
    let engines = [ctx.new_engine().await, Arc::clone(&ctx.engine)];
    let jobs = (0..4)
        .map(
            |number: usize| -> BoxFuture<Vec<(TaskId, Duration, Duration)>> {
                let (engine, runtime) = (Arc::clone(&engines[number % 2]), ctx.harness.runtime());
                let request = ClaimRequest {
                    wait_ms: 3_000,
                    ..ctx.claim_request(2)
                };
                Box::pin(async move {
                    let mut done = Vec::new();
                    loop {
                        let claimed = engine.claim(&request).await.unwrap();
                        let claimed_at = runtime.monotonic();
                        if claimed.is_empty() {
                            return done;
                        }
                        for task in claimed {
                            let lease = task.lease_id.unwrap();
                            let ended_at = runtime.monotonic();
                            engine.complete(task.id, lease, None).await.unwrap();
                            done.push((task.id, claimed_at, ended_at));
                        }
                    }
                })
            },
        )
        .collect();
    let done: BTreeMap<TaskId, (Duration, Duration)> = (ctx.run_concurrently(jobs).await)
        .into_iter()
        .flatten()
        .map(|(id, claimed_at, ended_at)| (id, (claimed_at, ended_at)))
        .collect();
    assert_eq!(done.len(), ids.len(), "every task has run");
    for key in 0..KEYS {
        let line: Vec<TaskId> = ids.iter().skip(key).step_by(KEYS).copied().collect();
        for pair in line.windows(2) {
            assert!(
                done[&pair[0]].1 <= done[&pair[1]].0,
                "{} was claimed before {} ended",
                pair[1],
                pair[0]
            );
        }
    }
}

pub(super) async fn orders_tasks_of_documents(ctx: &TestContext<'_>) {
    let tasks: Vec<TaskId> = (0..2)
        .map(|_| ctx.new_id().with_route(Route::DOCUMENTS))
        .collect();
    let request = |id: &TaskId| SubmitRequest {
        id: Some(*id),
        ..ordered(ctx, "account 17", OnFailure::Stop)
    };
    let id = DocumentId {
        kind: DocumentKind::Schedules,
        name: name(ctx.worker.as_str()),
    };
    let op = ctx.harness.runtime().new_op_id();
    let write = DocumentWrite {
        submits: tasks.iter().map(request).collect(),
        ..DocumentWrite::new(id, None, Some(json("{}")), op)
    };
    match ctx.engine.write_document(write).await {
        Ok(_) => {}
        // The line may be in another partition than the document. Nothing is written.
        Err(EngineError::BadRequest(reason)) if reason.contains("partitioned") => {
            for task in tasks {
                assert!(ctx.engine.get(task).await.unwrap_err().is_not_found());
            }
            return;
        }
        Err(error) => panic!("{error}"),
    }
    assert_eq!(
        waits_behind(ctx, tasks[1]).await,
        Some((tasks[0], 1, false))
    );
    let task = ctx.get(tasks[1]).await;
    assert_eq!(task.ordering_on_failure, OnFailure::Stop);
    for task in tasks {
        run(ctx, task).await;
    }
}
