//! What the library adds to an engine: the task builder, waiting, lists, and kinds of errors.

use std::time::Duration;

use futures_util::TryStreamExt;
use qo::{
    Error, ErrorKind, IdempotencyScope, Json, KeyHold, OnConflict, OnFailure, Queue, RetryPolicy,
    TaskFilter, TaskId, Timestamp, TraceParent, When,
};

async fn queue() -> Queue {
    qo::connect("memory:").await.unwrap()
}

#[tokio::test]
async fn every_setting_reaches_the_request() {
    let queue = queue().await;
    let id: TaskId = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
    let policy = RetryPolicy {
        multiplier: 7.0,
        ..RetryPolicy::default()
    };
    let at = Timestamp::from_millis(4_000_000_000_000);
    let request = queue
        .task("send_email", &[1, 2])
        .unwrap()
        .id(id)
        .queue("mail")
        .priority(3)
        .delay(Duration::from_millis(1_500))
        .timeout(Duration::from_millis(2_001))
        .retries(8)
        .retry_policy(policy.clone())
        .idempotency_key("a key")
        .idempotency_scope(IdempotencyScope::Global)
        .idempotency_window(Duration::from_mins(1))
        .expires_at(at)
        .tag("red")
        .tag("round")
        .build()
        .unwrap();
    assert_eq!(request.id, Some(id));
    assert_eq!(request.task_type.as_str(), "send_email");
    assert_eq!(request.input, Json::parse("[1,2]").unwrap());
    assert_eq!(request.queue.as_str(), "mail");
    assert_eq!(request.priority, 3);
    assert_eq!(request.available, When::InMillis(1_500));
    assert_eq!(request.expires, Some(When::At(at)));
    assert_eq!(request.timeout_seconds, Some(3), "rounded up");
    assert_eq!(request.max_retries, Some(8));
    assert_eq!(request.retry_policy, policy);
    let key = request.idempotency.clone().unwrap();
    assert_eq!(key.key.as_str(), "a key");
    assert_eq!(key.scope, IdempotencyScope::Global);
    assert_eq!(key.window_ms, Some(60_000));
    assert_eq!(request.tags.len(), 2);

    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let parent: TraceParent = parent.parse().unwrap();
    let request = queue
        .task("x", &())
        .unwrap()
        .at(at)
        .expires_in(Duration::from_secs(1))
        .idempotency_key("another key")
        .idempotency_hold(KeyHold::Waiting)
        .on_conflict(OnConflict::Postpone)
        .ordering_key("account 17")
        .on_failure(OnFailure::Stop)
        .limit_key("mail-api")
        .group("acme")
        .traceparent(parent.clone())
        .build()
        .unwrap();
    assert_eq!(request.available, When::At(at));
    assert_eq!(request.expires, Some(When::InMillis(1_000)));
    assert_eq!(request.uniqueness.hold, KeyHold::Waiting);
    assert_eq!(request.uniqueness.on_conflict, OnConflict::Postpone);
    let ordering = request.ordering.unwrap();
    assert_eq!(ordering.key.as_str(), "account 17");
    assert_eq!(ordering.on_failure, OnFailure::Stop);
    assert_eq!(request.limit_key.unwrap().as_str(), "mail-api");
    assert_eq!(request.fairness_group.unwrap().as_str(), "acme");
    assert_eq!(request.traceparent, Some(parent));
}

#[tokio::test]
async fn invalid_settings_are_rejected_and_nothing_is_written() {
    let queue = queue().await;
    let task = || queue.task("job", &1).unwrap();
    let results = [
        queue.task("a/b", &1).unwrap().submit().await,
        task().queue("").submit().await,
        task().tag("a\nb").submit().await,
        task().idempotency_key("").submit().await,
        task()
            .idempotency_window(Duration::from_secs(1))
            .submit()
            .await,
        task()
            .idempotency_scope(IdempotencyScope::Type)
            .submit()
            .await,
        task().priority(10).submit().await,
        task().timeout(Duration::ZERO).submit().await,
        task().expires_in(Duration::ZERO).submit().await,
        task().ordering_key("").submit().await,
        task().ordering_key("k".repeat(257)).submit().await,
        task().on_failure(OnFailure::Stop).submit().await,
        task().limit_key("").submit().await,
        task().limit_key("k".repeat(65)).submit().await,
        task().group("").submit().await,
        task().group("a b").submit().await,
    ];
    for result in results {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
    }
    let unserializable = std::collections::BTreeMap::from([((1, 2), 3)]);
    assert!(matches!(
        queue.task("job", &unserializable),
        Err(Error::Json(_))
    ));
    assert_eq!(queue.count(&TaskFilter::default()).await.unwrap(), 0);
}

#[tokio::test]
async fn waiting_ends_with_the_task_or_the_timeout() {
    let queue = queue().await;
    let task = queue.task("job", &1).unwrap().submit().await.unwrap().task;
    let error = queue.wait(task.id, Duration::from_millis(250)).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("still pending"), "{error}");

    let waiting = queue.wait(task.id, Duration::from_secs(20));
    let cancelling = async {
        queue.runtime().sleep(Duration::from_millis(150)).await;
        queue.cancel(task.id, Some("enough")).await.unwrap()
    };
    let (waited, cancelled) = futures_util::future::join(waiting, cancelling).await;
    assert_eq!(waited.unwrap(), cancelled);

    let unknown: TaskId = "550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
    let error = queue.wait(unknown, Duration::from_secs(20)).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn list_all_returns_each_task_once() {
    let queue = queue().await;
    // More than two pages.
    let requests = (0..1_234)
        .map(|n| queue.task("job", &n).unwrap().build().unwrap())
        .collect();
    let mut expected: Vec<_> = queue
        .submit_many(requests)
        .await
        .into_iter()
        .map(|result| result.unwrap().task.id)
        .collect();
    expected.sort();
    let tasks: Vec<_> = queue
        .list_all(TaskFilter::default())
        .try_collect()
        .await
        .unwrap();
    let mut found: Vec<_> = tasks.iter().map(|task| task.id).collect();
    found.sort();
    assert_eq!(found, expected);
}
