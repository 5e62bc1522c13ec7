//! Claiming tasks.

use std::sync::Arc;
use std::time::Duration;

use qo_core::{Status, Task, TaskType};
use qo_store::runtime::BoxFuture;

use super::context::{TIMEOUT_MS, TestContext, name};
use crate::api::{ClaimRequest, SubmitRequest, When, WorkerInfo};
use crate::engine::Engine;

pub(super) async fn claims_nothing_when_nothing_is_ready(ctx: &TestContext<'_>) {
    ctx.assert_nothing_to_claim().await;
    let task = ctx.submit_one().await;
    assert_eq!(
        ctx.engine.claim(&ctx.claim_request(0)).await.unwrap(),
        [],
        "zero tasks were requested"
    );
    let (claimed, lease) = ctx.claim_one().await;
    assert_eq!((claimed.id, claimed.attempt), (task.id, 1));
    assert_eq!(claimed.worker_id, Some(ctx.worker.clone()));
    assert!(claimed.lease_expires_at > claimed.started_at);
    ctx.assert_nothing_to_claim().await;
    ctx.engine.complete(task.id, lease, None).await.unwrap();
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn claims_by_priority_then_due_time(ctx: &TestContext<'_>) {
    // The order is guaranteed only for a single registered worker, not for concurrent ones.
    let engine = ctx.new_engine().await;
    let worker = ctx.register(&*engine).await;
    let mut expected: Vec<Task> = Vec::new();
    for priority in [5, 0, 9, 5, 0] {
        let request = SubmitRequest {
            priority,
            ..ctx.submit_request()
        };
        expected.push(ctx.submit(request).await);
        // The next task is due later.
        ctx.sleep(Duration::from_millis(3)).await;
    }
    let last = expected.iter().map(|task| task.available_at).max();
    ctx.wait_until_due_everywhere(&*engine, last.unwrap()).await;
    expected.sort_by_key(|task| (task.priority, task.available_at));
    for task in expected {
        let request = ClaimRequest {
            wait_ms: TIMEOUT_MS,
            ..ctx.claim_request(1)
        };
        let claimed = engine.claim(&request).await.unwrap();
        assert_eq!(claimed.len(), 1);
        assert_eq!(claimed[0].id, task.id);
    }
    engine.deregister(&worker.worker_id).await.unwrap();
}

pub(super) async fn claims_only_requested_queues_and_types(ctx: &TestContext<'_>) {
    let other_type: TaskType = name(&format!("{}-b", ctx.task_type));
    let other_queue = name(&format!("{}-b", ctx.queue));
    let foreign_type = ctx
        .submit(SubmitRequest {
            task_type: other_type.clone(),
            ..ctx.submit_request()
        })
        .await;
    let foreign_queue = ctx
        .submit(SubmitRequest {
            queue: other_queue,
            ..ctx.submit_request()
        })
        .await;
    ctx.assert_nothing_to_claim().await;
    let own = ctx.submit_one().await;
    let claimed = ctx.claim(10).await;
    assert_eq!(ids(&claimed), [own.id], "only the requested queue and type");

    let every_type = ClaimRequest {
        types: Vec::new(),
        ..ctx.claim_request(10)
    };
    let claimed = ctx.engine.claim(&every_type).await.unwrap();
    assert_eq!(ids(&claimed), [foreign_type.id], "all types of one queue");

    let every_queue = ClaimRequest {
        queues: Vec::new(),
        ..ctx.claim_request(10)
    };
    let claimed = ctx.engine.claim(&every_queue).await.unwrap();
    assert_eq!(ids(&claimed), [foreign_queue.id], "one type of all queues");
}

pub(super) async fn claims_at_most_the_requested_number(ctx: &TestContext<'_>) {
    let types = [name(&format!("{}-b", ctx.task_type)), ctx.task_type.clone()];
    let mut last = ctx.engine.now();
    for n in 0..10 {
        let request = SubmitRequest {
            task_type: types[n % 2].clone(),
            // The second type is the more urgent one.
            priority: if n % 2 == 0 { 5 } else { 4 },
            ..ctx.submit_request()
        };
        last = ctx.submit(request).await.available_at;
    }
    ctx.wait_until_due_everywhere(&*ctx.engine, last).await;
    let mut all = Vec::new();
    for max in [1, 3, 2, 100] {
        let request = ClaimRequest {
            types: types.to_vec(),
            wait_ms: TIMEOUT_MS,
            ..ctx.claim_request(max)
        };
        let claimed = ctx.engine.claim(&request).await.unwrap();
        assert!((1..=max).contains(&claimed.len()), "{max}: {claimed:?}");
        all.extend(claimed);
    }
    // A claim may return fewer tasks than are ready, but the next claims must return the rest.
    while all.len() < 10 {
        let request = ClaimRequest {
            types: types.to_vec(),
            wait_ms: TIMEOUT_MS,
            ..ctx.claim_request(100)
        };
        let claimed = ctx.engine.claim(&request).await.unwrap();
        assert!(
            !claimed.is_empty(),
            "only {} of 10 tasks were claimed",
            all.len()
        );
        all.extend(claimed);
    }
    let mut distinct = ids(&all);
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 10, "each task is claimed once");
    let priorities: Vec<_> = all.iter().map(|task| task.priority).collect();
    assert!(
        priorities.is_sorted(),
        "more urgent tasks come first: {priorities:?}"
    );
}

/// Claims with `claimer` and submits with `submitter` a little later, while the claim waits.
async fn claim_while_submitting(
    ctx: &TestContext<'_>,
    claimer: Arc<dyn Engine>,
    submitter: &dyn Engine,
) {
    let request = ClaimRequest {
        wait_ms: TIMEOUT_MS,
        ..ctx.claim_request(1)
    };
    let runtime = ctx.harness.runtime();
    let timer = Arc::clone(&runtime);
    let claim: BoxFuture<(Vec<Task>, Duration)> = Box::pin(async move {
        let tasks = claimer.claim(&request).await.unwrap();
        (tasks, timer.monotonic())
    });
    let submit = async {
        // Long enough for the claim to have found nothing and to be waiting.
        ctx.sleep(Duration::from_millis(300)).await;
        let task = submitter.submit(ctx.submit_request()).await.unwrap().task;
        (task, runtime.monotonic())
    };
    let (claimed, (task, submitted_at)) =
        futures_util::future::join(ctx.run_concurrently(vec![claim]), submit).await;
    let (tasks, claimed_at) = &claimed[0];
    assert_eq!(ids(tasks), [task.id]);
    let late = claimed_at.saturating_sub(submitted_at);
    assert!(
        late < Duration::from_secs(20),
        "claimed {late:?} after the submit"
    );
}

pub(super) async fn wakes_a_waiting_claim(ctx: &TestContext<'_>) {
    for _ in 0..3 {
        claim_while_submitting(ctx, Arc::clone(&ctx.engine), &*ctx.engine).await;
    }
}

pub(super) async fn wakes_a_waiting_claim_of_another_process(ctx: &TestContext<'_>) {
    let claimer = ctx.new_engine().await;
    for _ in 0..2 {
        claim_while_submitting(ctx, Arc::clone(&claimer), &*ctx.engine).await;
    }
}

pub(super) async fn claims_a_task_of_another_process(ctx: &TestContext<'_>) {
    let other = ctx.new_engine().await;
    assert_eq!(other.claim(&ctx.claim_request(1)).await.unwrap(), []);
    let started = ctx.harness.runtime().monotonic();
    let task = ctx.submit_one().await;
    let claimed = ctx
        .poll_until("a claim without waiting returns the task", async || {
            other.claim(&ctx.claim_request(1)).await.unwrap().pop()
        })
        .await;
    assert_eq!(claimed.id, task.id);
    let late = ctx.harness.runtime().monotonic().saturating_sub(started);
    assert!(late < Duration::from_secs(20), "found after {late:?}");
}

pub(super) async fn claims_a_delayed_task_when_due(ctx: &TestContext<'_>) {
    let request = SubmitRequest {
        available: When::InMillis(1_500),
        ..ctx.submit_request()
    };
    let task = ctx.submit(request).await;
    assert_eq!(task.available_at, task.created_at.plus_millis(1_500));
    if ctx.engine.now().plus_millis(500) < task.available_at {
        ctx.assert_nothing_to_claim().await;
    }
    let (claimed, _) = ctx.claim_one().await;
    let started = claimed.started_at.unwrap();
    assert_eq!(claimed.id, task.id);
    assert!(started >= task.available_at, "claimed before it was due");
    let late = started.since(task.available_at);
    assert!(late < Duration::from_secs(20), "{late:?} late");
}

pub(super) async fn takes_the_share_of_an_idle_worker(ctx: &TestContext<'_>) {
    let engine = ctx.new_engine().await;
    let worker = ctx.register(&*engine).await;
    let mut idle = WorkerInfo::new(name(&format!("idle.{}", ctx.worker)), engine.now());
    idle.queues = vec![ctx.queue.clone()];
    engine.heartbeat(&idle).await.unwrap();
    let requests = (0..16).map(|_| ctx.submit_request()).collect();
    for result in engine.submit_many(requests).await {
        result.unwrap();
    }
    let request = ClaimRequest {
        wait_ms: 1_000,
        ..ctx.claim_request(100)
    };
    let mut claimed = 0;
    ctx.poll_until("one worker has claimed all tasks", async || {
        claimed += engine.claim(&request).await.unwrap().len();
        (claimed == 16).then_some(())
    })
    .await;
    for worker in [worker, idle] {
        engine.deregister(&worker.worker_id).await.unwrap();
    }
}

pub(super) async fn does_not_claim_expired_tasks(ctx: &TestContext<'_>) {
    let request = SubmitRequest {
        expires: Some(When::InMillis(300)),
        ..ctx.submit_request()
    };
    let task = ctx.submit(request).await;
    ctx.poll_until("the task has expired", async || {
        (ctx.engine.now() > task.expires_at.unwrap()).then_some(())
    })
    .await;
    ctx.assert_nothing_to_claim().await;
    let ended = ctx
        .poll_until("the task is cancelled", async || {
            ctx.harness.maintain().await;
            let task = ctx.get(task.id).await;
            (task.status != Status::Pending).then_some(task)
        })
        .await;
    assert_eq!(ended.status, Status::Cancelled);
    assert_eq!(ended.attempt, 0, "no attempt was started");
    assert!(ended.last_error.unwrap().contains("expired"));
}

fn ids(tasks: &[Task]) -> Vec<qo_core::TaskId> {
    tasks.iter().map(|task| task.id).collect()
}
