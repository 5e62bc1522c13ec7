//! Many workers, and many tasks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use qo_core::{Status, TaskId};
use qo_store::runtime::BoxFuture;

use super::room::{Room, name};
use crate::api::{ClaimRequest, SubmitRequest, WorkerInfo};

const CLAIMERS: usize = 8;
const TASKS: usize = 100;

pub(super) async fn hands_out_each_task_once(room: &Room<'_>) {
    let requests = (0..TASKS).map(|_| room.request()).collect();
    let mut expected = BTreeSet::new();
    for result in room.engine.submit_many(requests).await {
        expected.insert(result.unwrap().task.id);
    }
    let engines = [room.another().await, room.another().await];
    let jobs = (0..CLAIMERS)
        .map(|n| -> BoxFuture<Vec<TaskId>> {
            let engine = Arc::clone(&engines[n % 2]);
            let wish = ClaimRequest {
                worker: name(&format!("{}-{n}", room.worker)),
                wait_ms: 2_000,
                ..room.wish(5)
            };
            // Half of the workers are known to the others, half are not.
            let registered = n % 4 < 2;
            let queue = room.queue.clone();
            Box::pin(async move {
                if registered {
                    let mut worker = WorkerInfo::new(wish.worker.clone(), engine.now());
                    worker.queues = vec![queue];
                    engine.heartbeat(&worker).await.unwrap();
                }
                let mut done = Vec::new();
                loop {
                    let tasks = engine.claim(&wish).await.unwrap();
                    if tasks.is_empty() {
                        break;
                    }
                    for task in tasks {
                        assert_eq!(task.worker_id.as_ref(), Some(&wish.worker));
                        let lease = task.lease_id.unwrap();
                        engine.complete(task.id, lease, None).await.unwrap();
                        done.push(task.id);
                    }
                }
                engine.deregister(&wish.worker).await.unwrap();
                done
            })
        })
        .collect();
    let claimed: Vec<_> = room.at_once(jobs).await.concat();
    assert_eq!(claimed.len(), TASKS, "each was handed out once");
    let distinct: BTreeSet<_> = claimed.into_iter().collect();
    assert_eq!(distinct, expected);
    for id in expected {
        let task = room.get(id).await;
        assert_eq!((task.status, task.attempt), (Status::Completed, 1));
    }
}

pub(super) async fn is_not_starved_by_foreign_tasks(room: &Room<'_>) {
    let foreign = SubmitRequest {
        task_type: name(&format!("foreign-{}", room.task_type)),
        priority: 0,
        ..room.request()
    };
    let requests = vec![foreign; room.harness.foreign_tasks()];
    for result in room.engine.submit_many(requests).await {
        result.unwrap();
    }
    let own = SubmitRequest {
        priority: 9,
        ..room.request()
    };
    let task = room.submit(own).await;
    let other = room.another().await;
    let runtime = room.harness.runtime();
    let started = runtime.monotonic();
    let wish = ClaimRequest {
        wait_ms: 5_000,
        ..room.wish(1)
    };
    let claimed = other.claim(&wish).await.unwrap();
    assert_eq!(claimed.len(), 1, "it is not hidden");
    assert_eq!(claimed[0].id, task.id);
    let took = runtime.monotonic().saturating_sub(started);
    assert!(took < Duration::from_secs(20), "it took {took:?}");
}
