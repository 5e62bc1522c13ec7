//! A task that keeps failing is retried with growing delays, and then fails permanently.

use std::time::Duration;

use qo::{Failure, FailureKind, RetryPolicy, Status, TaskFilter};

use crate::test_queue::{TestQueue, claim_one};

const RETRIES: u32 = 2;

async fn scenario(test_queue: TestQueue) {
    let queue = test_queue.connect().await;
    let policy = RetryPolicy {
        initial_interval_ms: 300,
        max_interval_ms: 60_000,
        multiplier: 3.0,
        jitter_percent: 0.0,
        ..RetryPolicy::default()
    };
    let submitted = queue
        .task("flaky", &"input")
        .unwrap()
        .retries(RETRIES)
        .retry_policy(policy)
        .submit()
        .await
        .unwrap();
    let id = submitted.task.id;

    let mut not_before = None;
    for attempt in 1..=RETRIES + 1 {
        let (task, lease) = claim_one(&queue, "worker-1", "flaky").await;
        assert_eq!((task.id, task.attempt), (id, attempt));
        assert!(task.started_at >= not_before, "handed out before its time");
        let failure = Failure {
            kind: FailureKind::Retryable,
            error: format!("error {attempt}").into(),
        };
        let failed = queue.fail(id, lease, failure).await.unwrap();
        if attempt <= RETRIES {
            assert_eq!(failed.status, Status::Pending);
            assert_eq!(failed.retry_count, attempt);
            let wait_ms = 300 * 3_u64.pow(attempt - 1);
            let waits_ms = failed.available_at.since(failed.updated_at).as_millis();
            assert!(waits_ms.abs_diff(wait_ms.into()) < 100, "{waits_ms} ms");
            not_before = Some(failed.available_at);
        } else {
            assert_eq!(failed.status, Status::Failed);
            assert_eq!(failed.retry_count, RETRIES);
        }
    }
    let dead = queue.wait(id, Duration::ZERO).await.unwrap();
    assert_eq!(dead.last_error.as_deref(), Some("error 3"));
    let filter = TaskFilter {
        statuses: vec![Status::Failed],
        ..TaskFilter::default()
    };
    assert_eq!(queue.count(&filter).await.unwrap(), 1);

    let report = queue.replay_all(TaskFilter::default(), |_| {}).await;
    assert_eq!((report.matched, report.done), (1, 1));
    let (task, lease) = claim_one(&queue, "worker-1", "flaky").await;
    assert_eq!((task.attempt, task.retry_count), (4, 0));
    let done = queue.complete(id, lease, None).await.unwrap();
    assert_eq!(done.status, Status::Completed);
}

on_every_store!(scenario);
