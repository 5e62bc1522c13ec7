//! Limits: how many tasks run at once, and start within a time window.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use qo_core::transition::FailureKind;
use qo_core::{DocumentId, DocumentKind, Limit, LimitKey, LimitUsage, Status, Task, TaskId};
use qo_store::runtime::{BoxFuture, RuntimeExt};

use super::context::{TestContext, failure, json, name};
use crate::api::{ClaimRequest, DocumentQuery, DocumentWrite, SubmitRequest};
use crate::engine::Engine;
use crate::error::EngineError;

fn limit_id(ctx: &TestContext<'_>, number: usize) -> DocumentId {
    DocumentId {
        kind: DocumentKind::Limits,
        name: name(&format!("{}.{number}", ctx.worker)),
    }
}

/// Writes a new limit. Returns false if the engine has no limits, because it divides the queue over others.
async fn set_limit(ctx: &TestContext<'_>, number: usize, body: &str) -> bool {
    let op = ctx.harness.runtime().new_op_id();
    let write = DocumentWrite::new(limit_id(ctx, number), None, Some(json(body)), op);
    match ctx.engine.write_document(write).await {
        Ok(_) => true,
        Err(EngineError::BadRequest(reason)) if reason.contains("partitioned") => false,
        Err(error) => panic!("{error}"),
    }
}

/// Changes the first limit, or removes it.
async fn change_limit(ctx: &TestContext<'_>, body: Option<&str>) {
    let id = limit_id(ctx, 1);
    let known = ctx
        .engine
        .documents(&DocumentQuery::one(&id))
        .await
        .unwrap();
    let op = ctx.harness.runtime().new_op_id();
    let write = DocumentWrite::new(id, Some(known[0].version), body.map(json), op);
    ctx.engine.write_document(write).await.unwrap();
}

/// A limit of the check's queue.
fn of_queue(ctx: &TestContext<'_>, bounds: &str) -> String {
    format!(r#"{{"queue":"{}",{bounds}}}"#, ctx.queue)
}

fn key_of(ctx: &TestContext<'_>) -> LimitKey {
    name(ctx.worker.as_str())
}

async fn submit_many(ctx: &TestContext<'_>, request: SubmitRequest, count: usize) -> Vec<TaskId> {
    let results = ctx.engine.submit_many(vec![request; count]).await;
    let ids = results.into_iter().map(|one| one.unwrap().task.id);
    ids.collect()
}

/// Claims until this many tasks are running.
async fn claim_exactly(ctx: &TestContext<'_>, count: usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    while tasks.len() < count {
        let claimed = ctx.claim(10).await;
        assert!(!claimed.is_empty(), "{} of {count} tasks", tasks.len());
        tasks.extend(claimed);
    }
    assert_eq!(tasks.len(), count, "a limit was exceeded");
    ctx.assert_nothing_to_claim().await;
    tasks
}

async fn complete(ctx: &TestContext<'_>, task: &Task) {
    let lease = task.lease_id.unwrap();
    ctx.engine.complete(task.id, lease, None).await.unwrap();
}

async fn why(ctx: &TestContext<'_>, engine: &dyn Engine, id: TaskId) -> Option<String> {
    let reason = engine.waits_for(&ctx.get(id).await).await.unwrap()?;
    Some(reason.to_string())
}

/// What is used of a limit, as an engine says.
async fn used(ctx: &TestContext<'_>, engine: &dyn Engine, body: &str) -> LimitUsage {
    let name = limit_id(ctx, 1).name;
    let limits = [(name.clone(), Limit::parse(&json(body)).unwrap())];
    let usage = engine.limit_usage(&limits).await.unwrap();
    *usage.get(&name).expect("the limit is known")
}

pub(super) async fn runs_no_more_tasks_than_a_limit_allows(ctx: &TestContext<'_>) {
    if !set_limit(ctx, 1, &of_queue(ctx, r#""concurrent":2"#)).await {
        return;
    }
    let ids: BTreeSet<TaskId> = (submit_many(ctx, ctx.submit_request(), 5).await)
        .into_iter()
        .collect();
    let mut running = claim_exactly(ctx, 2).await;
    // Another process follows the same limit, and says why a task waits.
    let other = ctx.new_engine().await;
    assert_eq!(other.claim(&ctx.claim_request(10)).await.unwrap(), []);
    let started: BTreeSet<TaskId> = running.iter().map(|task| task.id).collect();
    let waiting = *ids.difference(&started).next().unwrap();
    let reason = format!("limit {}: 2 of 2 running", limit_id(ctx, 1).name);
    for engine in [&ctx.engine, &other] {
        // By the clock of a new process, the task may become due a second later.
        let said = ctx
            .poll_until("the task waits for its limit", async || {
                why(ctx, &**engine, waiting).await
            })
            .await;
        assert_eq!(said, reason);
        let two = LimitUsage {
            running: Some(2),
            started: None,
        };
        let body = of_queue(ctx, r#""concurrent":2"#);
        assert_eq!(used(ctx, &**engine, &body).await, two);
    }
    assert_eq!(why(ctx, &*ctx.engine, running[0].id).await, None);
    let mut done = 0;
    while let Some(task) = running.pop() {
        complete(ctx, &task).await;
        done += 1;
        let wanted = (ids.len() - done).min(2) - running.len();
        if wanted > 0 {
            running.extend(claim_exactly(ctx, wanted).await);
        }
    }
    assert_eq!(done, ids.len());
}

pub(super) async fn follows_a_changed_limit(ctx: &TestContext<'_>) {
    let concurrent = |max: u32| of_queue(ctx, &format!(r#""concurrent":{max}"#));
    if !set_limit(ctx, 1, &concurrent(2)).await {
        return;
    }
    submit_many(ctx, ctx.submit_request(), 6).await;
    let mut running = claim_exactly(ctx, 2).await;
    // A lower limit ends no attempt, and none starts in the place of one that ends.
    change_limit(ctx, Some(&concurrent(1))).await;
    complete(ctx, &running.remove(0)).await;
    ctx.assert_nothing_to_claim().await;
    change_limit(ctx, Some(&concurrent(3))).await;
    running.extend(claim_exactly(ctx, 2).await);
    change_limit(ctx, None).await;
    running.extend(claim_exactly(ctx, 2).await);
    for task in &running {
        complete(ctx, task).await;
    }
}

pub(super) async fn passes_over_tasks_that_wait_for_a_limit(ctx: &TestContext<'_>) {
    let key = key_of(ctx);
    if !set_limit(
        ctx,
        1,
        &format!(r#"{{"limit_key":"{key}","concurrent":1}}"#),
    )
    .await
    {
        return;
    }
    let keyed = SubmitRequest {
        limit_key: Some(key.clone()),
        ..ctx.submit_request()
    };
    let limited = submit_many(ctx, keyed, 8).await;
    let other = SubmitRequest {
        limit_key: Some(name("another")),
        ..ctx.submit_request()
    };
    let mut expected = submit_many(ctx, other, 1).await;
    expected.extend(submit_many(ctx, ctx.submit_request(), 2).await);
    let running = claim_exactly(ctx, 4).await;
    let (with, without): (Vec<_>, Vec<_>) = running
        .iter()
        .partition(|task| task.limit_key.as_ref() == Some(&key));
    assert_eq!(with.len(), 1);
    assert!(limited.contains(&with[0].id));
    let mut others: Vec<TaskId> = without.iter().map(|task| task.id).collect();
    others.sort();
    expected.sort();
    assert_eq!(others, expected, "the tasks behind the waiting ones");
    for task in &running {
        complete(ctx, task).await;
    }
    for _ in 0..7 {
        let next = claim_exactly(ctx, 1).await;
        complete(ctx, &next[0]).await;
    }
}

pub(super) async fn returns_a_slot_however_the_attempt_ends(ctx: &TestContext<'_>) {
    let task_type = &ctx.task_type;
    if !set_limit(
        ctx,
        1,
        &format!(r#"{{"task_type":"{task_type}","concurrent":1}}"#),
    )
    .await
    {
        return;
    }
    let mut request = ctx.submit_request();
    request.retry_policy.initial_interval_ms = 1;
    request.retry_policy.max_interval_ms = 1;
    submit_many(ctx, request, 6).await;
    let mut ended = 0;
    for end in 0..5 {
        let task = claim_exactly(ctx, 1).await.remove(0);
        let (id, lease) = (task.id, task.lease_id.unwrap());
        let engine = &ctx.engine;
        ended += usize::from(end > 2);
        match end {
            0 => engine.release(id, lease).await.unwrap(),
            1 => engine.snooze(id, lease, 1).await.unwrap(),
            2 => {
                let error = failure(FailureKind::Retryable, "broken");
                engine.fail(id, lease, error).await.unwrap()
            }
            3 => {
                let error = failure(FailureKind::Permanent, "broken");
                engine.fail(id, lease, error).await.unwrap()
            }
            _ => {
                engine.cancel(id, None).await.unwrap();
                ctx.assert_nothing_to_claim().await;
                let cancelled = engine.release(id, lease).await.unwrap();
                assert_eq!(cancelled.status, Status::Cancelled);
                cancelled
            }
        };
    }
    for _ in ended..6 {
        let task = claim_exactly(ctx, 1).await.remove(0);
        complete(ctx, &task).await;
    }
}

pub(super) async fn returns_the_slot_of_a_dead_worker(ctx: &TestContext<'_>) {
    if !set_limit(ctx, 1, &of_queue(ctx, r#""concurrent":1"#)).await {
        return;
    }
    let dead = ctx.submit_with_instant_retry(0).await;
    let (claimed, _) = ctx.claim_as_dying_worker().await;
    assert_eq!(claimed.id, dead.id);
    let waiting = ctx.submit_one().await;
    let ended = ctx.maintain_until_not_running(dead.id).await;
    assert_eq!(ended.status, Status::Failed);
    let (task, _) = ctx.claim_one().await;
    assert_eq!(task.id, waiting.id);
    complete(ctx, &task).await;
}

pub(super) async fn starts_no_more_tasks_than_a_window_allows(ctx: &TestContext<'_>) {
    let window = r#""starts":{"max":2,"window_ms":3000}"#;
    if !set_limit(ctx, 1, &of_queue(ctx, window)).await {
        return;
    }
    let ids = submit_many(ctx, ctx.submit_request(), 4).await;
    let runtime = ctx.harness.runtime();
    let began = runtime.monotonic();
    let mut claimed: Vec<TaskId> = Vec::new();
    while claimed.len() < ids.len() {
        let tasks = ctx.claim(10).await;
        assert!(!tasks.is_empty(), "a task waits forever");
        for task in tasks {
            claimed.push(task.id);
            complete(ctx, &task).await;
        }
        // The clock of a store may be corrected by a second meanwhile.
        let passed = runtime.monotonic().saturating_sub(began) + Duration::from_millis(1_500);
        let allowed = if passed < Duration::from_secs(3) {
            2
        } else {
            4
        };
        assert!(claimed.len() <= allowed, "{claimed:?} within {passed:?}");
    }
    let passed = runtime.monotonic().saturating_sub(began) + Duration::from_millis(1_500);
    assert!(passed >= Duration::from_secs(3), "{passed:?}");
}

pub(super) async fn needs_a_slot_of_each_limit(ctx: &TestContext<'_>) {
    let key = key_of(ctx);
    if !set_limit(ctx, 1, &of_queue(ctx, r#""concurrent":3"#)).await {
        return;
    }
    set_limit(
        ctx,
        2,
        &format!(r#"{{"limit_key":"{key}","concurrent":1}}"#),
    )
    .await;
    let keyed = SubmitRequest {
        limit_key: Some(key.clone()),
        ..ctx.submit_request()
    };
    submit_many(ctx, keyed, 3).await;
    submit_many(ctx, ctx.submit_request(), 3).await;
    let has_key = |task: &&Task| task.limit_key.is_some();
    let mut left = 6;
    let mut running = Vec::new();
    while left > 0 {
        let keyed_left = running.iter().filter(has_key).count();
        assert!(keyed_left <= 1 && running.len() <= 3);
        if running.is_empty() {
            running = ctx.claim(10).await;
            continue;
        }
        let task = running.remove(0);
        complete(ctx, &task).await;
        left -= 1;
        running.extend(ctx.engine.claim(&ctx.claim_request(10)).await.unwrap());
    }
}

pub(super) async fn keeps_a_limit_among_concurrent_workers(ctx: &TestContext<'_>) {
    const TASKS: usize = 24;
    const MAX: usize = 3;
    if !set_limit(ctx, 1, &of_queue(ctx, r#""concurrent":3"#)).await {
        return;
    }
    submit_many(ctx, ctx.submit_request(), TASKS).await;
    let engines = [ctx.new_engine().await, Arc::clone(&ctx.engine)];
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let jobs = (0..6)
        .map(|number: usize| -> BoxFuture<usize> {
            let (engine, runtime) = (Arc::clone(&engines[number % 2]), ctx.harness.runtime());
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            let request = ClaimRequest {
                wait_ms: 8_000,
                ..ctx.claim_request(2)
            };
            Box::pin(async move {
                let mut done = 0;
                loop {
                    let claimed = engine.claim(&request).await.unwrap();
                    if claimed.is_empty() {
                        return done;
                    }
                    let now = running.fetch_add(claimed.len(), Ordering::SeqCst) + claimed.len();
                    most.fetch_max(now, Ordering::SeqCst);
                    runtime.sleep(Duration::from_millis(20)).await;
                    for task in claimed {
                        // It may be over for others before this process learns of it.
                        running.fetch_sub(1, Ordering::SeqCst);
                        let lease = task.lease_id.unwrap();
                        engine.complete(task.id, lease, None).await.unwrap();
                        done += 1;
                    }
                }
            })
        })
        .collect();
    let done: usize = ctx.run_concurrently(jobs).await.into_iter().sum();
    assert_eq!(done, TASKS, "every task has run");
    assert!(most.load(Ordering::SeqCst) <= MAX, "{most:?} of {MAX} ran");
}

pub(super) async fn refuses_invalid_limits(ctx: &TestContext<'_>) {
    for body in [
        r#"{"queue":"q"}"#,
        r#"{"concurrent":1}"#,
        r#"{"queue":"q","concurrent":0}"#,
        r#"{"queue":"q","starts":{"max":0,"window_ms":1000}}"#,
        r#"{"queue":"q","concurrent":1,"colour":"red"}"#,
        r#"{"queue":"no/slash","concurrent":1}"#,
    ] {
        let op = ctx.harness.runtime().new_op_id();
        let write = DocumentWrite::new(limit_id(ctx, 1), None, Some(json(body)), op);
        let error = ctx.engine.write_document(write).await.unwrap_err();
        assert!(matches!(error, EngineError::BadRequest(_)), "{error}");
        let query = DocumentQuery::one(&limit_id(ctx, 1));
        assert_eq!(ctx.engine.documents(&query).await.unwrap(), []);
    }
}
