//! Submitting tasks.

use qo_core::task::{IdempotencyScope, PRIORITY_DEFAULT, RETRIES_DEFAULT, TIMEOUT_DEFAULT_SECONDS};
use qo_core::{RetryPolicy, Status};

use super::context::{CLOCK_SLACK_MS, TestContext, assert_out_of_bounds, json, name};
use crate::api::{IdempotencyRequest, SubmitRequest, When};

pub(super) async fn stores_every_option(ctx: &TestContext<'_>) {
    let due = ctx.engine.now().plus_millis(3_600_000);
    let request = ctx.with_id(SubmitRequest {
        priority: 2,
        available: When::At(due),
        expires: Some(When::At(due.plus_millis(60_000))),
        timeout_seconds: Some(77),
        max_retries: Some(9),
        retry_policy: RetryPolicy {
            initial_interval_ms: 10,
            max_interval_ms: 20,
            multiplier: 1.5,
            jitter_percent: 0.125,
            ..RetryPolicy::default()
        },
        idempotency: Some(IdempotencyRequest {
            key: name("order 17"),
            scope: IdempotencyScope::Type,
            window_ms: Some(60_000),
        }),
        tags: vec![name("customer: Ünal"), name("urgent")],
        ..ctx.submit_request()
    });
    let id = request.id.unwrap();
    let submitted = ctx.submit(request.clone()).await;
    let read = ctx.new_engine().await.get(id).await.unwrap();
    assert_eq!(read, submitted, "another engine reads the submitted task");
    assert_eq!((read.id, read.shard), (id, id.shard()));
    assert_eq!(read.status, Status::Pending);
    assert_eq!(read.task_type, ctx.task_type);
    assert_eq!(read.queue, ctx.queue);
    assert_eq!(read.priority, 2);
    assert_eq!(read.available_at, due);
    assert_eq!(read.expires_at, Some(due.plus_millis(60_000)));
    assert_eq!((read.timeout_seconds, read.max_retries), (77, 9));
    assert_eq!(*read.retry_policy, request.retry_policy);
    assert_eq!(read.idempotency_key, Some(name("order 17")));
    assert_eq!(read.idempotency_scope, IdempotencyScope::Type);
    assert_eq!(
        read.idempotency_until,
        Some(read.created_at.plus_millis(60_000))
    );
    assert_eq!(read.tags, request.tags);
    assert_eq!(ctx.engine.input(&read).await.unwrap(), request.input);
}

pub(super) async fn applies_the_defaults(ctx: &TestContext<'_>) {
    let before = ctx.engine.now().minus_millis(CLOCK_SLACK_MS);
    let task = ctx.submit_one().await;
    let after = ctx.engine.now().plus_millis(CLOCK_SLACK_MS);
    assert_eq!(task.status, Status::Pending);
    assert_eq!(task.priority, PRIORITY_DEFAULT);
    assert_eq!(task.timeout_seconds, TIMEOUT_DEFAULT_SECONDS);
    assert_eq!(task.max_retries, RETRIES_DEFAULT);
    assert_eq!(*task.retry_policy, RetryPolicy::default());
    assert_eq!((task.attempt, task.retry_count), (0, 0));
    assert_eq!(task.available_at, task.created_at);
    assert!(
        (before..=after).contains(&task.created_at),
        "{before} {task:?} {after}"
    );
    assert_eq!((task.expires_at, task.completed_at), (None, None));
    assert_eq!((task.worker_id, task.lease_id), (None, None));
    assert_eq!((task.idempotency_key, task.tags), (None, vec![]));
}

pub(super) async fn returns_the_first_task_for_a_repeated_id(ctx: &TestContext<'_>) {
    let request = SubmitRequest {
        id: Some(ctx.new_id()),
        ..ctx.submit_request()
    };
    let first = ctx.submit(request.clone()).await;
    let again = SubmitRequest {
        input: json("\"another input\""),
        priority: 0,
        ..request.clone()
    };
    let second = ctx.new_engine().await.submit(again).await.unwrap();
    assert!(
        second.duplicate,
        "the second submit is reported as a duplicate"
    );
    assert_eq!(second.task, first, "the first task is unchanged");

    let (task, lease) = ctx.claim_one().await;
    ctx.engine.complete(task.id, lease, None).await.unwrap();
    let third = ctx.engine.submit(request).await.unwrap();
    assert!(third.duplicate);
    assert_eq!(
        third.task.status,
        Status::Completed,
        "a repeated submit does not reopen a finished task"
    );
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn stores_payloads_byte_for_byte(ctx: &TestContext<'_>) {
    let texts = [
        "null",
        "\"\\u0000 \\ud83d\\ude00 ü\"",
        r#"{"z": 1,  "a":123456789012345678901234567890.10}"#,
        "[]",
    ];
    for text in texts {
        let request = SubmitRequest {
            input: json(text),
            ..ctx.submit_request()
        };
        let task = ctx.submit(request).await;
        let (claimed, lease) = ctx.claim_one().await;
        let input = ctx.engine.input(&claimed).await.unwrap();
        assert_eq!(input.as_str(), text);
        ctx.engine
            .complete(task.id, lease, Some(input))
            .await
            .unwrap();
        let read = ctx.new_engine().await.get(task.id).await.unwrap();
        let output = ctx.engine.output(&read).await.unwrap();
        assert_eq!(output.unwrap().as_str(), text);
    }
    let (task, lease) = ctx.running().await;
    let ended = ctx.engine.complete(task.id, lease, None).await.unwrap();
    assert_eq!(ctx.engine.output(&ended).await.unwrap(), None);
}

pub(super) async fn stores_large_payloads(ctx: &TestContext<'_>) {
    let input = json(&format!("\"{}\"", "i".repeat(100 * 1024)));
    let output = json(&format!("\"{}\"", "o".repeat(100 * 1024)));
    let request = SubmitRequest {
        input: input.clone(),
        ..ctx.submit_request()
    };
    let task = ctx.submit(request).await;
    let (claimed, lease) = ctx.claim_one().await;
    assert_eq!(ctx.engine.input(&claimed).await.unwrap(), input);
    ctx.engine
        .complete(task.id, lease, Some(output.clone()))
        .await
        .unwrap();
    let other = ctx.new_engine().await;
    let read = other.get(task.id).await.unwrap();
    assert_eq!(other.input(&read).await.unwrap(), input);
    assert_eq!(other.output(&read).await.unwrap(), Some(output));
}

pub(super) async fn returns_one_result_per_submit(ctx: &TestContext<'_>) {
    let requests: Vec<_> = (0..20)
        .map(|n| SubmitRequest {
            input: json(&n.to_string()),
            priority: if n == 7 { 10 } else { 5 },
            ..ctx.submit_request()
        })
        .collect();
    let results = ctx.engine.submit_many(requests).await;
    assert_eq!(results.len(), 20);
    for (n, result) in results.into_iter().enumerate() {
        if n == 7 {
            assert_out_of_bounds(result, "priority");
            continue;
        }
        let task = result.unwrap().task;
        let input = ctx.engine.input(&task).await.unwrap();
        assert_eq!(
            input.as_str(),
            n.to_string(),
            "results are in the order of the requests"
        );
        assert_eq!(ctx.get(task.id).await, task);
    }
    assert!(ctx.engine.submit_many(Vec::new()).await.is_empty());
}
