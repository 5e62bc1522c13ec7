//! Many workers of several processes claim at once. Each task is claimed once.

use std::collections::BTreeSet;

use qo::{ClaimRequest, Status, TaskFilter};

use qo_fixtures::at_once;

use crate::test_queue::{TestQueue, claim_request};

const CLAIMERS: usize = 16;

async fn scenario(test_queue: TestQueue) {
    let tasks = if test_queue.is_remote() { 64 } else { 400 };
    let client = test_queue.connect().await;
    one_task_for_all(&test_queue).await;

    let requests = (0..tasks)
        .map(|n| client.task("crowd", &n).unwrap().build().unwrap())
        .collect();
    let mut expected = BTreeSet::new();
    for result in client.submit_many(requests).await {
        expected.insert(result.unwrap().task.id);
    }
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(test_queue.connect().await);
    }
    let done: Vec<_> = at_once(CLAIMERS, |n| {
        let queue = processes[n % 4].clone();
        async move {
            let claim_request = ClaimRequest {
                max: 4,
                wait_ms: 2_000,
                ..claim_request(&format!("worker-{n}"), "crowd")
            };
            let mut done = Vec::new();
            loop {
                let claimed = queue.claim(&claim_request).await.unwrap();
                if claimed.is_empty() {
                    return done;
                }
                for task in claimed {
                    let lease = task.lease_id.unwrap();
                    queue.complete(task.id, lease, None).await.unwrap();
                    done.push(task.id);
                }
            }
        }
    })
    .await
    .concat();
    assert_eq!(done.len(), tasks, "each was handed out once");
    assert_eq!(done.into_iter().collect::<BTreeSet<_>>(), expected);
    let filter = TaskFilter {
        task_type: Some("crowd".parse().unwrap()),
        ..TaskFilter::default()
    };
    let page = client.list(&filter, None, 1_000).await.unwrap();
    assert_eq!(page.tasks.len(), tasks);
    for task in page.tasks {
        assert_eq!((task.status, task.attempt), (Status::Completed, 1));
    }
}

/// All race for one task, and one gets it.
async fn one_task_for_all(test_queue: &TestQueue) {
    let client = test_queue.connect().await;
    let task = client.task("race", &()).unwrap().submit().await.unwrap();
    let winners: Vec<_> = at_once(CLAIMERS, |n| {
        let connection = test_queue.connection().skip_probe();
        async move {
            let queue = connection.open().await.unwrap();
            let claim_request = ClaimRequest {
                wait_ms: 0,
                ..claim_request(&format!("worker-{n}"), "race")
            };
            queue.claim(&claim_request).await.unwrap()
        }
    })
    .await
    .concat();
    assert_eq!(winners.len(), 1, "{winners:?}");
    let stored = client.get(task.task.id).await.unwrap();
    assert_eq!(stored, winners[0], "the winner's claim is the stored one");
}

on_every_store!(scenario);
