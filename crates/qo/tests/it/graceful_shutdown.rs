//! A stopping worker finishes what it can and releases the rest. Nothing is lost.

use std::collections::BTreeSet;

use qo::{ClaimRequest, Status, TaskFilter, WorkerInfo};

use crate::test_queue::{TestQueue, claim_request};

const TASKS: usize = 12;

async fn scenario(test_queue: TestQueue) {
    let client = test_queue.connect().await;
    let requests = (0..TASKS)
        .map(|n| client.task("job", &n).unwrap().build().unwrap())
        .collect();
    let mut submitted = BTreeSet::new();
    for result in client.submit_many(requests).await {
        submitted.insert(result.unwrap().task.id);
    }

    // The first worker claims most of them, finishes two, and stops.
    let first = test_queue.connect().await;
    let info = WorkerInfo::new("first".parse().unwrap(), first.now());
    first.heartbeat(&info).await.unwrap();
    let greedy = ClaimRequest {
        max: 8,
        ..claim_request("first", "job")
    };
    let mut held = first.claim(&greedy).await.unwrap();
    assert!(held.len() > 2, "{held:?}");
    for task in held.drain(..2) {
        let lease = task.lease_id.unwrap();
        first.complete(task.id, lease, None).await.unwrap();
    }
    let given_back: BTreeSet<_> = held.iter().map(|task| task.id).collect();
    for task in held {
        let released = first
            .release(task.id, task.lease_id.unwrap())
            .await
            .unwrap();
        assert_eq!(
            (released.status, released.retry_count),
            (Status::Pending, 0)
        );
    }
    first.deregister(&info.worker_id).await.unwrap();
    first.close().await;
    assert_eq!(client.workers().await.unwrap(), []);
    drop(first);

    // The second worker does the rest without waiting for a lease to expire.
    let second = test_queue.connect().await;
    let mut done = BTreeSet::new();
    while done.len() < TASKS - 2 {
        let claim_request = ClaimRequest {
            max: 8,
            ..claim_request("second", "job")
        };
        let claimed = second.claim(&claim_request).await.unwrap();
        assert!(!claimed.is_empty(), "lost some: {done:?}");
        for task in claimed {
            let attempt = if given_back.contains(&task.id) { 2 } else { 1 };
            assert_eq!(task.attempt, attempt);
            let lease = task.lease_id.unwrap();
            second.complete(task.id, lease, None).await.unwrap();
            assert!(done.insert(task.id), "done twice");
        }
    }
    let filter = TaskFilter {
        statuses: vec![Status::Completed],
        ..TaskFilter::default()
    };
    let page = client.list(&filter, None, 100).await.unwrap();
    let completed: BTreeSet<_> = page.tasks.iter().map(|task| task.id).collect();
    assert_eq!(completed, submitted);
    assert!(page.tasks.iter().all(|task| task.retry_count == 0));
}

on_every_store!(scenario);
