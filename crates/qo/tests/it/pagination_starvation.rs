//! Tasks of other types never hide a worker's own, and a backlog of many pages is worked off completely.

use std::time::Duration;

use qo::{ClaimRequest, DirectConfig, TaskFilter};

use crate::test_queue::{TestQueue, claim_request};

const PAGE: usize = 10;

async fn scenario(mut test_queue: TestQueue) {
    let foreign: u64 = if test_queue.is_remote() { 300 } else { 5_000 };
    // A page is much smaller than the number of foreign tasks.
    let mut config = if test_queue.is_remote() {
        DirectConfig::default()
    } else {
        DirectConfig::local()
    };
    config.ready_page_size = PAGE;
    test_queue.config = Some(config);
    let client = test_queue.connect().await;
    let requests = (0..foreign)
        .map(|n| {
            let task = client.task("foreign", &n).unwrap().priority(0);
            let task = if n % 2 == 0 {
                task
            } else {
                task.queue("other")
            };
            task.build().unwrap()
        })
        .collect();
    for result in client.submit_many(requests).await {
        result.unwrap();
    }
    let wanted = client.task("wanted", &()).unwrap().priority(9);
    let wanted = wanted.submit().await.unwrap().task;

    let worker = test_queue.connect().await;
    let started = worker.runtime().monotonic();
    let claimed = worker
        .claim(&claim_request("worker-1", "wanted"))
        .await
        .unwrap();
    let took = worker.runtime().monotonic().saturating_sub(started);
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].id, wanted.id);
    assert!(took < Duration::from_secs(20), "it took {took:?}");

    // Five pages of the same type, claimed in batches that do not divide a page.
    let requests = (0..5 * PAGE)
        .map(|n| client.task("deep", &n).unwrap().build().unwrap())
        .collect();
    for result in client.submit_many(requests).await {
        result.unwrap();
    }
    let mut done = 0;
    while done < 5 * PAGE {
        let claim_request = ClaimRequest {
            max: 7,
            ..claim_request("worker-1", "deep")
        };
        let claimed = worker.claim(&claim_request).await.unwrap();
        assert!(!claimed.is_empty(), "stopped after {done}");
        for task in claimed {
            worker
                .complete(task.id, task.lease_id.unwrap(), None)
                .await
                .unwrap();
            done += 1;
        }
    }

    let filter = TaskFilter {
        task_type: Some("foreign".parse().unwrap()),
        ..TaskFilter::default()
    };
    assert_eq!(client.count(&filter).await.unwrap(), foreign);
}

on_every_store!(scenario);
