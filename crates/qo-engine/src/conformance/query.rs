//! Looking at tasks and workers without changing them.

use std::collections::BTreeSet;

use qo_core::transition::FailureKind;
use qo_core::{Shard, Status, Task, TaskId};

use super::room::{Room, failure, name};
use crate::api::{SubmitRequest, TaskFilter};
use crate::error::EngineError;

fn in_room(room: &Room<'_>) -> TaskFilter {
    TaskFilter {
        queue: Some(room.queue.clone()),
        ..TaskFilter::default()
    }
}

/// Everything that matches, page by page.
async fn list(room: &Room<'_>, filter: &TaskFilter, limit: usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..1_000 {
        let page = room
            .engine
            .list(filter, cursor.as_deref(), limit)
            .await
            .unwrap();
        assert!(page.tasks.len() <= limit, "the limit holds");
        assert!(page.tasks.iter().all(|task| filter.matches(task)));
        tasks.extend(page.tasks);
        match page.next {
            Some(next) => cursor = Some(next),
            None => return tasks,
        }
    }
    panic!("the list does not end");
}

async fn found(room: &Room<'_>, filter: &TaskFilter) -> BTreeSet<TaskId> {
    let tasks = list(room, filter, 100).await;
    let ids: BTreeSet<_> = tasks.iter().map(|task| task.id).collect();
    assert_eq!(ids.len(), tasks.len(), "each once");
    ids
}

pub(super) async fn lists_by_every_filter(room: &Room<'_>) {
    let completed = room.completed().await;
    let archived = room.completed().await;
    room.engine.archive(archived.id).await.unwrap();
    let (running, _) = room.running().await;
    let other_type = name(&format!("{}-b", room.task_type));
    let tagged = room
        .submit(SubmitRequest {
            task_type: other_type,
            tags: vec![name("red"), name("round")],
            ..room.request()
        })
        .await;
    let foreign = room
        .submit(SubmitRequest {
            queue: name(&format!("{}-b", room.queue)),
            ..room.request()
        })
        .await;

    let all = found(room, &in_room(room)).await;
    assert_eq!(
        all,
        [completed.id, running.id, tagged.id].into(),
        "without a status: all but archived ones"
    );
    assert!(!all.contains(&foreign.id));

    let by_status = |statuses: &[Status]| TaskFilter {
        statuses: statuses.to_vec(),
        ..in_room(room)
    };
    for (statuses, expected) in [
        (vec![Status::Pending], vec![tagged.id]),
        (vec![Status::Running], vec![running.id]),
        (vec![Status::Archived], vec![archived.id]),
        (
            vec![Status::Completed, Status::Archived],
            vec![completed.id, archived.id],
        ),
        (vec![Status::Failed], vec![]),
    ] {
        let ids = found(room, &by_status(&statuses)).await;
        assert_eq!(ids, expected.into_iter().collect(), "{statuses:?}");
    }

    let by_type = TaskFilter {
        task_type: Some(tagged.task_type.clone()),
        ..in_room(room)
    };
    assert_eq!(found(room, &by_type).await, [tagged.id].into());
    for (tag, expected) in [("round", vec![tagged.id]), ("green", vec![])] {
        let by_tag = TaskFilter {
            tag: Some(name(tag)),
            ..in_room(room)
        };
        let ids = found(room, &by_tag).await;
        assert_eq!(ids, expected.into_iter().collect(), "{tag}");
    }
    let mut by_shards = BTreeSet::new();
    for shard in Shard::all() {
        let by_shard = TaskFilter {
            shard: Some(shard),
            ..in_room(room)
        };
        let ids = found(room, &by_shard).await;
        assert!(ids.iter().all(|id| id.shard() == shard));
        by_shards.extend(ids);
    }
    assert_eq!(by_shards, all, "the shards hold everything");
    let since = |time| TaskFilter {
        since: Some(time),
        ..in_room(room)
    };
    let newest = found(room, &since(tagged.created_at)).await;
    assert!(newest.contains(&tagged.id));
    let future = room.engine.now().plus_millis(60_000);
    assert!(found(room, &since(future)).await.is_empty());
}

pub(super) async fn lists_page_by_page(room: &Room<'_>) {
    let requests = (0..25).map(|_| room.request()).collect();
    let submitted: BTreeSet<_> = room
        .engine
        .submit_many(requests)
        .await
        .into_iter()
        .map(|result| result.unwrap().task.id)
        .collect();
    for limit in [1, 7, 25, 1_000] {
        let tasks = list(room, &in_room(room), limit).await;
        assert_eq!(tasks.len(), 25, "each once, in pages of {limit}");
        let ids: BTreeSet<_> = tasks.iter().map(|task| task.id).collect();
        assert_eq!(ids, submitted);
    }
    let page = room.engine.list(&in_room(room), None, 7).await.unwrap();
    assert_eq!(page.tasks.len(), 7, "the limit counts what was found");
}

pub(super) async fn refuses_a_cursor_that_it_did_not_give(room: &Room<'_>) {
    for cursor in ["", "x", "../..", "tasks/", "\0"] {
        let refused = room.engine.list(&in_room(room), Some(cursor), 10).await;
        match refused {
            Err(EngineError::BadRequest(message)) => assert!(message.contains("cursor")),
            other => panic!("{cursor:?}: {other:?}"),
        }
    }
}

pub(super) async fn counts_tasks(room: &Room<'_>) {
    room.completed().await;
    let (_running, _) = room.running().await;
    let oldest = room.submit_one().await;
    room.submit(SubmitRequest {
        task_type: name(&format!("{}-b", room.task_type)),
        ..room.request()
    })
    .await;
    let other = room.another().await;
    let stats = room
        .until(
            "all are due by the clock of the other process",
            async || {
                let stats = other.stats().await.unwrap();
                let is_due = stats.queues[&room.queue].oldest_due.is_some();
                (is_due && other.now() > oldest.available_at.plus_millis(1)).then_some(stats)
            },
        )
        .await;
    assert!(!stats.partial);
    let queue = &stats.queues[&room.queue];
    let counts: Vec<_> = queue.statuses.iter().map(|(s, n)| (*s, *n)).collect();
    assert_eq!(
        counts,
        [
            (Status::Pending, 2),
            (Status::Running, 1),
            (Status::Completed, 1)
        ]
    );
    assert_eq!(queue.types[&room.task_type], 3);
    assert_eq!(queue.types.values().sum::<u64>(), 4);
    for (task_type, of_type) in &queue.types_by_status {
        assert_eq!(of_type.values().sum::<u64>(), queue.types[task_type]);
    }
    for (status, count) in &queue.statuses {
        let of_types = queue.types_by_status.values();
        let sum: u64 = of_types.filter_map(|of_type| of_type.get(status)).sum();
        assert_eq!(sum, *count, "{status}");
    }
    assert_eq!(queue.types_by_status.len(), queue.types.len());
    assert_eq!(queue.oldest_due, Some(oldest.available_at));
    assert!(!queue.paused);
}

pub(super) async fn tells_what_happened(room: &Room<'_>) {
    use Status::{Archived, Completed, Failed, Pending, Running};
    let (task, lease) = room.running().await;
    room.engine.renew(task.id, lease, None).await.unwrap();
    let error = failure(FailureKind::Permanent, "a bug");
    room.engine.fail(task.id, lease, error).await.unwrap();
    room.engine.replay(task.id).await.unwrap();
    let (_, lease) = room.claim_one().await;
    room.engine.complete(task.id, lease, None).await.unwrap();
    room.engine.archive(task.id).await.unwrap();

    let events = room.another().await.history(task.id).await.unwrap();
    let steps: Vec<_> = events
        .iter()
        .map(|event| (event.from, event.to, event.attempt))
        .collect();
    assert_eq!(
        steps,
        [
            (None, Pending, 0),
            (Some(Pending), Running, 1),
            (Some(Running), Failed, 1),
            (Some(Failed), Pending, 1),
            (Some(Pending), Running, 2),
            (Some(Running), Completed, 2),
            (Some(Completed), Archived, 2),
        ]
    );
    assert!(events.is_sorted_by_key(|event| event.at));
    assert_eq!(events[1].worker, Some(room.worker.clone()));
    assert_eq!(events[2].error.as_deref(), Some("a bug"));
    let operations: BTreeSet<_> = events.iter().map(|event| event.op_id.unwrap()).collect();
    assert_eq!(operations.len(), events.len());
}

pub(super) async fn shows_versions_where_they_are_kept(room: &Room<'_>) {
    let task = room.completed().await;
    let versions = room.engine.versions(task.id, 100).await;
    if !room.harness.keeps_versions() {
        assert_eq!(versions, Err(EngineError::NotVersioned));
        return;
    }
    let versions = versions.unwrap();
    let statuses: Vec<_> = versions
        .iter()
        .map(|version| version.task.as_ref().unwrap().status)
        .collect();
    assert_eq!(
        statuses,
        [Status::Pending, Status::Running, Status::Completed],
        "oldest first"
    );
    assert!(versions.is_sorted_by_key(|version| version.stored_at));
    assert_eq!(versions[2].task.as_ref(), Some(&task));
    let newest = room.engine.versions(task.id, 2).await.unwrap();
    assert_eq!(newest, versions[1..], "the newest of them, oldest first");
}

pub(super) async fn knows_its_workers(room: &Room<'_>) {
    let other = room.another().await;
    let find = async || {
        let workers = other.workers().await.unwrap();
        workers
            .into_iter()
            .find(|worker| worker.worker_id == room.worker)
    };
    assert_eq!(find().await, None);
    let mut worker = room.register(&*room.engine).await;
    assert_eq!(find().await, Some(worker.clone()));

    let (task, lease) = room.running().await;
    worker.last_heartbeat = worker.last_heartbeat.plus_millis(1_000);
    worker.current_task = Some(task.id);
    worker.current_tasks = vec![task.id];
    worker.tasks_completed = 41;
    worker.tasks_failed = 1;
    worker.host = Some("host.example".to_owned());
    room.engine.heartbeat(&worker).await.unwrap();
    let seen = find().await.unwrap();
    assert_eq!(seen, worker);
    assert!(seen.is_healthy(worker.last_heartbeat.plus_millis(10_000), 10_000));
    assert!(!seen.is_healthy(worker.last_heartbeat.plus_millis(10_001), 10_000));
    room.engine.complete(task.id, lease, None).await.unwrap();

    room.engine.deregister(&room.worker).await.unwrap();
    assert_eq!(find().await, None);
    room.engine.deregister(&room.worker).await.unwrap();
}
