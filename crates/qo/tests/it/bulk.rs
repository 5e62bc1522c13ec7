//! Operations on all tasks that match a filter.

use std::time::Duration;

use qo::{ClaimRequest, Error, Queue, Status, TaskFilter};

use crate::test_queue::TestQueue;

async fn submit(queue: &Queue, count: usize, tag: &str) {
    let requests = (0..count)
        .map(|n| queue.task("job", &n).unwrap().tag(tag).build().unwrap())
        .collect();
    for result in queue.submit_many(requests).await {
        result.unwrap();
    }
}

fn tagged(tag: &str) -> TaskFilter {
    TaskFilter {
        tag: Some(tag.parse().unwrap()),
        ..TaskFilter::default()
    }
}

async fn scenario(test_queue: TestQueue) {
    let queue = test_queue.connect().await;
    submit(&queue, 40, "red").await;
    submit(&queue, 5, "blue").await;
    assert_eq!(queue.count(&tagged("red")).await.unwrap(), 40);

    let mut seen = Vec::new();
    let report = queue
        .cancel_all(tagged("red"), Some("red is out"), |so_far| {
            seen.push(so_far.matched);
        })
        .await
        .some()
        .unwrap();
    assert_eq!((report.matched, report.done), (40, 40));
    assert_eq!(seen, (1..=40).collect::<Vec<_>>(), "told of each");
    let again = queue.cancel_all(tagged("red"), None, |_| {}).await;
    assert_eq!(again.clone().matched, 0);
    assert_eq!(again.some(), Err(Error::NothingMatched));

    // Archived tasks are not replayed, and cancelled ones only if the filter names them.
    let report = queue.archive_all(tagged("red"), |_| {}).await;
    assert_eq!(report.done, 40);
    let everything = TaskFilter::default();
    let report = queue.replay_all(everything.clone(), |_| {}).await;
    assert_eq!(report.matched, 0);
    let report = queue.unarchive_all(tagged("red"), |_| {}).await;
    assert_eq!(report.done, 40);
    let cancelled = TaskFilter {
        statuses: vec![Status::Cancelled],
        ..tagged("red")
    };
    let report = queue.replay_all(cancelled, |_| {}).await;
    assert_eq!(report.done, 40);

    // Failures are reported for each task.
    let pending = TaskFilter {
        statuses: vec![Status::Pending],
        ..tagged("blue")
    };
    let report = queue.archive_all(pending, |_| {}).await;
    assert_eq!((report.matched, report.done), (5, 0));
    assert_eq!(report.failed.len(), 5);
    assert_eq!(report.stopped, None);

    // Retention: old finished tasks are purged, new ones and live tasks stay.
    let claim_request = ClaimRequest {
        max: 3,
        ..crate::test_queue::claim_request("worker-1", "job")
    };
    let claimed = queue.claim(&claim_request).await.unwrap();
    for task in &claimed {
        let lease = task.lease_id.unwrap();
        queue.complete(task.id, lease, None).await.unwrap();
    }
    let hour = Duration::from_hours(1);
    let report = queue.purge_older_than(hour, &[], |_| {}).await;
    assert_eq!(report.matched, 0, "nothing is that old");
    queue.runtime().sleep(Duration::from_millis(5)).await;
    let report = queue
        .purge_older_than(Duration::ZERO, &[Status::Failed], |_| {})
        .await;
    assert_eq!(report.matched, 0, "nothing has failed");
    let report = queue.purge_older_than(Duration::ZERO, &[], |_| {}).await;
    assert_eq!(report.done, claimed.len() as u64);
    let left = queue.count(&everything).await.unwrap();
    assert_eq!(left, 45 - claimed.len() as u64);
}

on_every_store!(scenario);
