//! Adding tasks.

use qo_core::task::{IdempotencyScope, PRIORITY_DEFAULT, RETRIES_DEFAULT, TIMEOUT_DEFAULT_SECONDS};
use qo_core::{RetryPolicy, Status};

use super::room::{CLOCK_SLACK_MS, Room, json, name, out_of_bounds};
use crate::api::{IdempotencyRequest, SubmitRequest, When};

pub(super) async fn keeps_every_option(room: &Room<'_>) {
    let id = room.new_id();
    let due = room.engine.now().plus_millis(3_600_000);
    let request = SubmitRequest {
        id: Some(id),
        priority: 2,
        available: When::At(due),
        expires: Some(When::At(due.plus_millis(60_000))),
        timeout_seconds: 77,
        max_retries: 9,
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
        ..room.request()
    };
    let submitted = room.submit(request.clone()).await;
    let read = room.another().await.get(id).await.unwrap();
    assert_eq!(read, submitted, "every process reads what was submitted");
    assert_eq!((read.id, read.shard), (id, id.shard()));
    assert_eq!(read.status, Status::Pending);
    assert_eq!(read.task_type, room.task_type);
    assert_eq!(read.queue, room.queue);
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
    assert_eq!(room.engine.input(&read).await.unwrap(), request.input);
}

pub(super) async fn fills_in_the_defaults(room: &Room<'_>) {
    let before = room.engine.now().minus_millis(CLOCK_SLACK_MS);
    let task = room.submit_one().await;
    let after = room.engine.now().plus_millis(CLOCK_SLACK_MS);
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

pub(super) async fn returns_the_first_task_of_an_id(room: &Room<'_>) {
    let request = SubmitRequest {
        id: Some(room.new_id()),
        ..room.request()
    };
    let first = room.submit(request.clone()).await;
    let again = SubmitRequest {
        input: json("\"another input\""),
        priority: 0,
        ..request.clone()
    };
    let second = room.another().await.submit(again).await.unwrap();
    assert!(second.duplicate, "the second submit says so");
    assert_eq!(second.task, first, "nothing of the first has changed");

    let (task, lease) = room.claim_one().await;
    room.engine.complete(task.id, lease, None).await.unwrap();
    let third = room.engine.submit(request).await.unwrap();
    assert!(third.duplicate);
    assert_eq!(
        third.task.status,
        Status::Completed,
        "an end is not undone by a submit"
    );
    room.nothing_to_claim().await;
}

pub(super) async fn keeps_payloads_to_the_byte(room: &Room<'_>) {
    let texts = [
        "null",
        "\"\\u0000 \\ud83d\\ude00 ü\"",
        r#"{"z": 1,  "a":123456789012345678901234567890.10}"#,
        "[]",
    ];
    for text in texts {
        let request = SubmitRequest {
            input: json(text),
            ..room.request()
        };
        let task = room.submit(request).await;
        let (claimed, lease) = room.claim_one().await;
        let input = room.engine.input(&claimed).await.unwrap();
        assert_eq!(input.as_str(), text);
        room.engine
            .complete(task.id, lease, Some(input))
            .await
            .unwrap();
        let read = room.another().await.get(task.id).await.unwrap();
        let output = room.engine.output(&read).await.unwrap();
        assert_eq!(output.unwrap().as_str(), text);
    }
    let (task, lease) = room.running().await;
    let ended = room.engine.complete(task.id, lease, None).await.unwrap();
    assert_eq!(room.engine.output(&ended).await.unwrap(), None);
}

pub(super) async fn keeps_large_payloads(room: &Room<'_>) {
    let input = json(&format!("\"{}\"", "i".repeat(100 * 1024)));
    let output = json(&format!("\"{}\"", "o".repeat(100 * 1024)));
    let request = SubmitRequest {
        input: input.clone(),
        ..room.request()
    };
    let task = room.submit(request).await;
    let (claimed, lease) = room.claim_one().await;
    assert_eq!(room.engine.input(&claimed).await.unwrap(), input);
    room.engine
        .complete(task.id, lease, Some(output.clone()))
        .await
        .unwrap();
    let other = room.another().await;
    let read = other.get(task.id).await.unwrap();
    assert_eq!(other.input(&read).await.unwrap(), input);
    assert_eq!(other.output(&read).await.unwrap(), Some(output));
}

pub(super) async fn reports_each_of_many(room: &Room<'_>) {
    let requests: Vec<_> = (0..20)
        .map(|n| SubmitRequest {
            input: json(&n.to_string()),
            priority: if n == 7 { 10 } else { 5 },
            ..room.request()
        })
        .collect();
    let results = room.engine.submit_many(requests).await;
    assert_eq!(results.len(), 20);
    for (n, result) in results.into_iter().enumerate() {
        if n == 7 {
            out_of_bounds(result, "priority");
            continue;
        }
        let task = result.unwrap().task;
        let input = room.engine.input(&task).await.unwrap();
        assert_eq!(input.as_str(), n.to_string(), "answers come in order");
        assert_eq!(room.get(task.id).await, task);
    }
    assert!(room.engine.submit_many(Vec::new()).await.is_empty());
}
