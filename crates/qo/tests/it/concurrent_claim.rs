//! Workers of several processes claim concurrently; each task is claimed once.

use std::collections::BTreeSet;

use qo::{ClaimRequest, Status, TaskFilter};

use crate::test_store::{TestStore, at_once, claim_request};

const CLAIMERS: usize = 16;

async fn scenario(store: TestStore) {
    let tasks = if store.is_remote { 64 } else { 400 };
    let client = store.connect().await;
    race_for_one_task(&store).await;

    let requests = (0..tasks)
        .map(|n| client.task("crowd", &n).unwrap().build().unwrap())
        .collect();
    let mut expected = BTreeSet::new();
    for result in client.submit_many(requests).await {
        expected.insert(result.unwrap().task.id);
    }
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push(store.connect().await);
    }
    let done: Vec<_> = at_once(CLAIMERS, |n| {
        let queue = processes[n % 4].clone();
        async move {
            let request = ClaimRequest {
                max: 4,
                wait_ms: 2_000,
                ..claim_request(&format!("worker-{n}"), "crowd")
            };
            let mut done = Vec::new();
            loop {
                let claimed = queue.claim(&request).await.unwrap();
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
    assert_eq!(done.len(), tasks, "each was claimed once");
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

/// All workers race for one task, and one gets it.
async fn race_for_one_task(store: &TestStore) {
    let client = store.connect().await;
    let task = client.task("race", &()).unwrap().submit().await.unwrap();
    let winners: Vec<_> = at_once(CLAIMERS, |n| {
        let connection = store.connection().skip_probe();
        async move {
            let queue = connection.open().await.unwrap();
            let request = ClaimRequest {
                wait_ms: 0,
                ..claim_request(&format!("worker-{n}"), "race")
            };
            queue.claim(&request).await.unwrap()
        }
    })
    .await
    .concat();
    assert_eq!(winners.len(), 1, "{winners:?}");
    let stored = client.get(task.task.id).await.unwrap();
    assert_eq!(stored, winners[0], "the winner's claim is the stored one");
}

on_every_store!(scenario);
