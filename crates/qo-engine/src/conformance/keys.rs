//! Idempotency keys: one task for all submits that present the same key.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use qo_core::task::IdempotencyScope;
use qo_store::runtime::BoxFuture;

use super::room::{CLOCK_SLACK_MS, Room, json, name};
use crate::api::{IdempotencyRequest, SubmitRequest, Submitted};

/// How long a key holds that is to be forgotten.
const WINDOW_MS: u64 = CLOCK_SLACK_MS + 500;

fn keyed(room: &Room<'_>, scope: IdempotencyScope, window_ms: Option<u64>) -> SubmitRequest {
    SubmitRequest {
        idempotency: Some(IdempotencyRequest {
            // The room is part of the key, because one scope reaches beyond it.
            key: name(&format!("key of {}", room.queue)),
            scope,
            window_ms,
        }),
        ..room.request()
    }
}

pub(super) async fn one_task_for_one_key(room: &Room<'_>) {
    let request = keyed(room, IdempotencyScope::Queue, None);
    let first = room.submit(request.clone()).await;
    let again = SubmitRequest {
        input: json("\"another input\""),
        ..request
    };
    let second = room.another().await.submit(again).await.unwrap();
    assert!(second.duplicate);
    assert_eq!(second.task, first);
    assert_eq!(
        room.claim(10).await.len(),
        1,
        "one task came of two submits"
    );
    room.nothing_to_claim().await;
}

pub(super) async fn keeps_scopes_apart(room: &Room<'_>) {
    use IdempotencyScope::{Global, Queue, Type};
    let submit = async |scope, queue: &str, task_type: &str| -> Submitted {
        let request = SubmitRequest {
            queue: name(&format!("{}{queue}", room.queue)),
            task_type: name(&format!("{}{task_type}", room.task_type)),
            ..keyed(room, scope, None)
        };
        room.engine.submit(request).await.unwrap()
    };
    let first = submit(Queue, "", "").await;
    assert!(!first.duplicate);
    let same = submit(Queue, "", "-b").await;
    assert_eq!(
        (same.duplicate, same.task.id),
        (true, first.task.id),
        "a queue's key holds for all of its types"
    );
    assert!(!submit(Queue, "-b", "").await.duplicate, "another queue");

    assert!(!submit(Type, "", "").await.duplicate, "another scope");
    assert!(submit(Type, "", "").await.duplicate);
    assert!(!submit(Type, "", "-b").await.duplicate, "another type");
    assert!(!submit(Type, "-b", "").await.duplicate, "another queue");

    let global = submit(Global, "", "").await;
    assert!(!global.duplicate, "another scope");
    let same = submit(Global, "-b", "-b").await;
    assert_eq!(
        (same.duplicate, same.task.id),
        (true, global.task.id),
        "a global key holds everywhere"
    );
}

pub(super) async fn forgets_a_key_after_its_window(room: &Room<'_>) {
    let request = keyed(room, IdempotencyScope::Queue, Some(WINDOW_MS));
    let first = room.submit(request.clone()).await;
    let second = room.engine.submit(request.clone()).await.unwrap();
    if room.engine.now() < first.created_at.plus_millis(WINDOW_MS - CLOCK_SLACK_MS) {
        assert!(second.duplicate, "the window is open");
    }
    room.pass(Duration::from_millis(WINDOW_MS)).await;
    let third = room
        .until("the window is over", async || {
            let third = room.engine.submit(request.clone()).await.unwrap();
            (!third.duplicate).then_some(third.task)
        })
        .await;
    assert_ne!(third.id, first.id, "a new task, the first is still there");
    assert!(
        third.created_at >= first.created_at.plus_millis(WINDOW_MS - CLOCK_SLACK_MS),
        "not before the window was over"
    );
    assert_eq!(room.get(first.id).await, first);
}

pub(super) async fn one_task_for_one_key_at_once(room: &Room<'_>) {
    let engines = [room.another().await, Arc::clone(&room.engine)];
    let jobs = (0..8)
        .map(|n| -> BoxFuture<Submitted> {
            let engine = Arc::clone(&engines[n % 2]);
            let request = keyed(room, IdempotencyScope::Queue, None);
            Box::pin(async move { engine.submit(request).await.unwrap() })
        })
        .collect();
    let submitted = room.at_once(jobs).await;
    let ids: BTreeSet<_> = submitted.iter().map(|one| one.task.id).collect();
    assert_eq!(ids.len(), 1, "all got the same task: {submitted:?}");
    let new = submitted.iter().filter(|one| !one.duplicate).count();
    assert_eq!(new, 1, "one of them made it");
    assert_eq!(room.claim(10).await.len(), 1);
    room.nothing_to_claim().await;
}
