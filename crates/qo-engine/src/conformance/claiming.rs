//! Handing out work.

use std::sync::Arc;
use std::time::Duration;

use qo_core::{Status, Task, TaskType};
use qo_store::runtime::BoxFuture;

use super::room::{PATIENCE_MS, Room, name};
use crate::api::{ClaimRequest, SubmitRequest, When, WorkerInfo};
use crate::engine::Engine;

pub(super) async fn hands_out_nothing_where_nothing_is(room: &Room<'_>) {
    room.nothing_to_claim().await;
    let task = room.submit_one().await;
    assert_eq!(
        room.engine.claim(&room.wish(0)).await.unwrap(),
        [],
        "nothing was asked for"
    );
    let (claimed, lease) = room.claim_one().await;
    assert_eq!((claimed.id, claimed.attempt), (task.id, 1));
    assert_eq!(claimed.worker_id, Some(room.worker.clone()));
    assert!(claimed.lease_expires_at > claimed.started_at);
    room.nothing_to_claim().await;
    room.engine.complete(task.id, lease, None).await.unwrap();
    room.nothing_to_claim().await;
}

pub(super) async fn serves_by_priority_and_then_by_due_time(room: &Room<'_>) {
    // Order is promised to one worker that is known to be alone, not to a crowd.
    let engine = room.another().await;
    let worker = room.register(&*engine).await;
    let mut expected: Vec<Task> = Vec::new();
    for priority in [5, 0, 9, 5, 0] {
        let request = SubmitRequest {
            priority,
            ..room.request()
        };
        expected.push(room.submit(request).await);
        // The next one is due later.
        room.pass(Duration::from_millis(3)).await;
    }
    let last = expected.iter().map(|task| task.available_at).max();
    room.due_everywhere(&*engine, last.unwrap()).await;
    expected.sort_by_key(|task| (task.priority, task.available_at));
    for task in expected {
        let wish = ClaimRequest {
            wait_ms: PATIENCE_MS,
            ..room.wish(1)
        };
        let claimed = engine.claim(&wish).await.unwrap();
        assert_eq!(claimed.len(), 1);
        assert_eq!(claimed[0].id, task.id);
    }
    engine.deregister(&worker.worker_id).await.unwrap();
}

pub(super) async fn serves_the_asked_queues_and_types(room: &Room<'_>) {
    let other_type: TaskType = name(&format!("{}-b", room.task_type));
    let other_queue = name(&format!("{}-b", room.queue));
    let foreign_type = room
        .submit(SubmitRequest {
            task_type: other_type.clone(),
            ..room.request()
        })
        .await;
    let foreign_queue = room
        .submit(SubmitRequest {
            queue: other_queue,
            ..room.request()
        })
        .await;
    room.nothing_to_claim().await;
    let own = room.submit_one().await;
    let claimed = room.claim(10).await;
    assert_eq!(ids(&claimed), [own.id], "only what was asked for");

    let every_type = ClaimRequest {
        types: Vec::new(),
        ..room.wish(10)
    };
    let claimed = room.engine.claim(&every_type).await.unwrap();
    assert_eq!(ids(&claimed), [foreign_type.id], "all types of one queue");

    let every_queue = ClaimRequest {
        queues: Vec::new(),
        ..room.wish(10)
    };
    let claimed = room.engine.claim(&every_queue).await.unwrap();
    assert_eq!(ids(&claimed), [foreign_queue.id], "one type of all queues");
}

pub(super) async fn hands_out_no_more_than_asked(room: &Room<'_>) {
    let types = [
        name(&format!("{}-b", room.task_type)),
        room.task_type.clone(),
    ];
    let mut last = room.engine.now();
    for n in 0..10 {
        let request = SubmitRequest {
            task_type: types[n % 2].clone(),
            // The second type is the more urgent one.
            priority: if n % 2 == 0 { 5 } else { 4 },
            ..room.request()
        };
        last = room.submit(request).await.available_at;
    }
    room.due_everywhere(&*room.engine, last).await;
    let mut all = Vec::new();
    for max in [1, 3, 2, 100] {
        let wish = ClaimRequest {
            types: types.to_vec(),
            wait_ms: PATIENCE_MS,
            ..room.wish(max)
        };
        let claimed = room.engine.claim(&wish).await.unwrap();
        assert!((1..=max).contains(&claimed.len()), "{max}: {claimed:?}");
        all.extend(claimed);
    }
    // A claim may hand out less than there is, but what is left must come with the next ones.
    while all.len() < 10 {
        let wish = ClaimRequest {
            types: types.to_vec(),
            wait_ms: PATIENCE_MS,
            ..room.wish(100)
        };
        let claimed = room.engine.claim(&wish).await.unwrap();
        assert!(!claimed.is_empty(), "only {} of 10 came", all.len());
        all.extend(claimed);
    }
    let mut distinct = ids(&all);
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 10, "each once");
    let priorities: Vec<_> = all.iter().map(|task| task.priority).collect();
    assert!(
        priorities.is_sorted(),
        "the more urgent type comes first: {priorities:?}"
    );
}

/// Waits in `claimer` for what `submitter` submits a little later.
async fn waits_for_a_submit(room: &Room<'_>, claimer: Arc<dyn Engine>, submitter: &dyn Engine) {
    let wish = ClaimRequest {
        wait_ms: PATIENCE_MS,
        ..room.wish(1)
    };
    let runtime = room.harness.runtime();
    let timer = Arc::clone(&runtime);
    let claim: BoxFuture<(Vec<Task>, Duration)> = Box::pin(async move {
        let tasks = claimer.claim(&wish).await.unwrap();
        (tasks, timer.monotonic())
    });
    let submit = async {
        // Long enough for the claim to have looked, and to be waiting.
        room.pass(Duration::from_millis(300)).await;
        let task = submitter.submit(room.request()).await.unwrap().task;
        (task, runtime.monotonic())
    };
    let (claimed, (task, submitted_at)) =
        futures_util::future::join(room.at_once(vec![claim]), submit).await;
    let (tasks, claimed_at) = &claimed[0];
    assert_eq!(ids(tasks), [task.id]);
    let late = claimed_at.saturating_sub(submitted_at);
    assert!(
        late < Duration::from_secs(20),
        "handed out {late:?} after the submit"
    );
}

pub(super) async fn wakes_a_waiting_claim(room: &Room<'_>) {
    for _ in 0..3 {
        waits_for_a_submit(room, Arc::clone(&room.engine), &*room.engine).await;
    }
}

pub(super) async fn wakes_a_waiting_claim_of_another_process(room: &Room<'_>) {
    let claimer = room.another().await;
    for _ in 0..2 {
        waits_for_a_submit(room, Arc::clone(&claimer), &*room.engine).await;
    }
}

pub(super) async fn sees_what_another_process_submitted(room: &Room<'_>) {
    let other = room.another().await;
    assert_eq!(other.claim(&room.wish(1)).await.unwrap(), []);
    let started = room.harness.runtime().monotonic();
    let task = room.submit_one().await;
    let claimed = room
        .until("a claim that does not wait finds the task", async || {
            other.claim(&room.wish(1)).await.unwrap().pop()
        })
        .await;
    assert_eq!(claimed.id, task.id);
    let late = room.harness.runtime().monotonic().saturating_sub(started);
    assert!(late < Duration::from_secs(20), "found after {late:?}");
}

pub(super) async fn hands_out_a_delayed_task_in_its_time(room: &Room<'_>) {
    let request = SubmitRequest {
        available: When::InMillis(1_500),
        ..room.request()
    };
    let task = room.submit(request).await;
    assert_eq!(task.available_at, task.created_at.plus_millis(1_500));
    if room.engine.now().plus_millis(500) < task.available_at {
        room.nothing_to_claim().await;
    }
    let (claimed, _) = room.claim_one().await;
    let started = claimed.started_at.unwrap();
    assert_eq!(claimed.id, task.id);
    assert!(started >= task.available_at, "not before its time");
    let late = started.since(task.available_at);
    assert!(late < Duration::from_secs(20), "{late:?} late");
}

pub(super) async fn leaves_nothing_to_an_idle_worker(room: &Room<'_>) {
    let engine = room.another().await;
    let worker = room.register(&*engine).await;
    let mut idle = WorkerInfo::new(name(&format!("idle.{}", room.worker)), engine.now());
    idle.queues = vec![room.queue.clone()];
    engine.heartbeat(&idle).await.unwrap();
    let requests = (0..16).map(|_| room.request()).collect();
    for result in engine.submit_many(requests).await {
        result.unwrap();
    }
    let wish = ClaimRequest {
        wait_ms: 1_000,
        ..room.wish(100)
    };
    let mut claimed = 0;
    room.until("one worker has taken everything", async || {
        claimed += engine.claim(&wish).await.unwrap().len();
        (claimed == 16).then_some(())
    })
    .await;
    for worker in [worker, idle] {
        engine.deregister(&worker.worker_id).await.unwrap();
    }
}

pub(super) async fn does_not_hand_out_what_has_expired(room: &Room<'_>) {
    let request = SubmitRequest {
        expires: Some(When::InMillis(300)),
        ..room.request()
    };
    let task = room.submit(request).await;
    room.until("its time is over", async || {
        (room.engine.now() > task.expires_at.unwrap()).then_some(())
    })
    .await;
    room.nothing_to_claim().await;
    let ended = room
        .until("it is cancelled", async || {
            room.harness.maintain().await;
            let task = room.get(task.id).await;
            (task.status != Status::Pending).then_some(task)
        })
        .await;
    assert_eq!(ended.status, Status::Cancelled);
    assert_eq!(ended.attempt, 0, "it was never started");
    assert!(ended.last_error.unwrap().contains("expired"));
}

fn ids(tasks: &[Task]) -> Vec<qo_core::TaskId> {
    tasks.iter().map(|task| task.id).collect()
}
