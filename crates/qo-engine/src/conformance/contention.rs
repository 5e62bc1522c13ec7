//! Many workers and many tasks at the same time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use qo_core::{Status, TaskId};
use qo_store::runtime::BoxFuture;

use super::context::{TIMEOUT_MS, TestContext, name};
use crate::api::{ClaimRequest, SubmitRequest, WorkerInfo};

const CLAIMERS: usize = 8;
const TASKS: usize = 100;

pub(super) async fn claims_each_task_once(ctx: &TestContext<'_>) {
    let requests = (0..TASKS).map(|_| ctx.submit_request()).collect();
    let mut expected = BTreeSet::new();
    for result in ctx.engine.submit_many(requests).await {
        expected.insert(result.unwrap().task.id);
    }
    let engines = [ctx.new_engine().await, ctx.new_engine().await];
    // On a slow store, tasks that are reserved for others can keep a claim waiting.
    let total = Arc::new(AtomicUsize::new(0));
    let deadline = ctx.engine.now().plus_millis(3 * TIMEOUT_MS);
    let jobs = (0..CLAIMERS)
        .map(|n| -> BoxFuture<Vec<TaskId>> {
            let engine = Arc::clone(&engines[n % 2]);
            let total = Arc::clone(&total);
            let request = ClaimRequest {
                worker: name(&format!("{}-{n}", ctx.worker)),
                wait_ms: 2_000,
                ..ctx.claim_request(5)
            };
            // Half of the workers are registered, half are not.
            let registered = n % 4 < 2;
            let queue = ctx.queue.clone();
            Box::pin(async move {
                if registered {
                    let mut worker = WorkerInfo::new(request.worker.clone(), engine.now());
                    worker.queues = vec![queue];
                    engine.heartbeat(&worker).await.unwrap();
                }
                let mut done = Vec::new();
                loop {
                    let tasks = engine.claim(&request).await.unwrap();
                    let total = total.fetch_add(tasks.len(), Ordering::Relaxed) + tasks.len();
                    if tasks.is_empty() && (total >= TASKS || engine.now() > deadline) {
                        break;
                    }
                    for task in tasks {
                        assert_eq!(task.worker_id.as_ref(), Some(&request.worker));
                        let lease = task.lease_id.unwrap();
                        engine.complete(task.id, lease, None).await.unwrap();
                        done.push(task.id);
                    }
                }
                engine.deregister(&request.worker).await.unwrap();
                done
            })
        })
        .collect();
    let claimed: Vec<_> = ctx.run_concurrently(jobs).await.concat();
    assert_eq!(claimed.len(), TASKS, "each task is claimed once");
    let distinct: BTreeSet<_> = claimed.into_iter().collect();
    assert_eq!(distinct, expected);
    for id in expected {
        let task = ctx.get(id).await;
        assert_eq!((task.status, task.attempt), (Status::Completed, 1));
    }
}

pub(super) async fn is_not_starved_by_foreign_types(ctx: &TestContext<'_>) {
    let foreign = SubmitRequest {
        task_type: name(&format!("foreign-{}", ctx.task_type)),
        priority: 0,
        ..ctx.submit_request()
    };
    let requests = vec![foreign; ctx.harness.foreign_tasks()];
    for result in ctx.engine.submit_many(requests).await {
        result.unwrap();
    }
    let own = SubmitRequest {
        priority: 9,
        ..ctx.submit_request()
    };
    let task = ctx.submit(own).await;
    let other = ctx.new_engine().await;
    let runtime = ctx.harness.runtime();
    let started = runtime.monotonic();
    let request = ClaimRequest {
        wait_ms: 5_000,
        ..ctx.claim_request(1)
    };
    let claimed = other.claim(&request).await.unwrap();
    assert_eq!(
        claimed.len(),
        1,
        "the task is found behind tasks of another type"
    );
    assert_eq!(claimed[0].id, task.id);
    let took = runtime.monotonic().saturating_sub(started);
    assert!(took < Duration::from_secs(20), "the claim took {took:?}");
}
