//! Reading tasks and workers: lists, counts, history, versions.

use std::collections::BTreeSet;
use std::time::Duration;

use qo_core::transition::FailureKind;
use qo_core::{Shard, Status, Task, TaskId};

use super::context::{TestContext, failure, json, name};
use crate::api::{SubmitRequest, TaskFilter, TaskOrder, TaskQuery};
use crate::error::EngineError;
use crate::search::Search;

fn in_queue(ctx: &TestContext<'_>) -> TaskFilter {
    TaskFilter {
        queue: Some(ctx.queue.clone()),
        ..TaskFilter::default()
    }
}

/// Lists all matching tasks, page by page.
async fn list(ctx: &TestContext<'_>, filter: &TaskFilter, limit: usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..1_000 {
        let page = ctx
            .engine
            .list(TaskQuery::first(filter, limit).at(cursor.as_deref()))
            .await
            .unwrap();
        assert!(
            page.tasks.len() <= limit,
            "a page has at most `limit` tasks"
        );
        assert!(page.tasks.iter().all(|task| filter.matches(task)));
        // Which of them were read to find these is up to the engine.
        let examined = page.examined.expect("the engine says what the page cost");
        assert!(examined >= page.tasks.len() as u64, "{examined}");
        tasks.extend(page.tasks);
        match page.next {
            Some(next) => cursor = Some(next),
            None => return tasks,
        }
    }
    panic!("the list has more than 1,000 pages");
}

async fn list_ids(ctx: &TestContext<'_>, filter: &TaskFilter) -> BTreeSet<TaskId> {
    let tasks = list(ctx, filter, 100).await;
    let ids: BTreeSet<_> = tasks.iter().map(|task| task.id).collect();
    assert_eq!(ids.len(), tasks.len(), "each task is listed once");
    ids
}

pub(super) async fn lists_by_every_filter(ctx: &TestContext<'_>) {
    let completed = ctx.completed().await;
    let archived = ctx.completed().await;
    ctx.engine.archive(archived.id).await.unwrap();
    let (running, _) = ctx.running().await;
    let other_type = name(&format!("{}-b", ctx.task_type));
    let tagged = ctx
        .submit(SubmitRequest {
            task_type: other_type,
            tags: vec![name("red"), name("round")],
            ..ctx.submit_request()
        })
        .await;
    let foreign = ctx
        .submit(SubmitRequest {
            queue: name(&format!("{}-b", ctx.queue)),
            ..ctx.submit_request()
        })
        .await;

    let all = list_ids(ctx, &in_queue(ctx)).await;
    assert_eq!(
        all,
        [completed.id, running.id, tagged.id].into(),
        "without a status filter: all but archived tasks"
    );
    assert!(!all.contains(&foreign.id));

    let by_status = |statuses: &[Status]| TaskFilter {
        statuses: statuses.to_vec(),
        ..in_queue(ctx)
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
        let ids = list_ids(ctx, &by_status(&statuses)).await;
        assert_eq!(ids, expected.into_iter().collect(), "{statuses:?}");
    }

    let by_type = TaskFilter {
        task_type: Some(tagged.task_type.clone()),
        ..in_queue(ctx)
    };
    assert_eq!(list_ids(ctx, &by_type).await, [tagged.id].into());
    for (tag, expected) in [("round", vec![tagged.id]), ("green", vec![])] {
        let by_tag = TaskFilter {
            tag: Some(name(tag)),
            ..in_queue(ctx)
        };
        let ids = list_ids(ctx, &by_tag).await;
        assert_eq!(ids, expected.into_iter().collect(), "{tag}");
    }
    by_search(ctx, [&completed, &archived, &running, &tagged], &foreign).await;
    let mut by_shards = BTreeSet::new();
    for shard in Shard::all() {
        let by_shard = TaskFilter {
            shard: Some(shard),
            ..in_queue(ctx)
        };
        let ids = list_ids(ctx, &by_shard).await;
        assert!(ids.iter().all(|id| id.shard() == shard));
        by_shards.extend(ids);
    }
    assert_eq!(by_shards, all, "the shards together contain all tasks");
    let since = |time| TaskFilter {
        since: Some(time),
        ..in_queue(ctx)
    };
    let newest = list_ids(ctx, &since(tagged.created_at)).await;
    assert!(newest.contains(&tagged.id));
    let future = ctx.engine.now().plus_millis(60_000);
    assert!(list_ids(ctx, &since(future)).await.is_empty());
    let until = |time| TaskFilter {
        until: Some(time),
        ..in_queue(ctx)
    };
    assert!(list_ids(ctx, &until(future)).await.contains(&tagged.id));
    let earlier = list_ids(ctx, &until(tagged.created_at)).await;
    assert!(!earlier.contains(&tagged.id), "the end is not included");
}

/// Searches with alternatives, exclusions and beginnings of names, in both orders.
async fn by_search(ctx: &TestContext<'_>, tasks: [&Task; 4], foreign: &Task) {
    let [completed, archived, running, tagged] = tasks.map(|task| task.id);
    let now = ctx.engine.now();
    let (queue, other) = (&ctx.queue, &foreign.queue);
    for (text, expected) in [
        (format!("queue:{queue} -tag:red"), vec![completed, running]),
        (format!("queue:{queue} tag:gre*,ro*"), vec![tagged]),
        (format!("queue:{other},{queue}* tag:round"), vec![tagged]),
        (
            format!("queue:{other} or queue:{queue} tag:red"),
            vec![foreign.id, tagged],
        ),
        (
            format!("queue:{queue} status:due,archived"),
            vec![tagged, archived],
        ),
        (
            format!("queue:{queue} -status:due,completed"),
            vec![running],
        ),
        (format!("queue:{queue} status:scheduled"), vec![]),
        (format!("id:{running} queue:{queue}"), vec![running]),
        (
            format!("queue:{queue} since:1d"),
            vec![completed, running, tagged],
        ),
        (format!("queue:{queue} until:1d"), vec![]),
    ] {
        for order in [TaskOrder::Id, TaskOrder::Newest] {
            let filter = TaskFilter {
                order,
                ..TaskFilter::default()
            };
            let search: Search = text.parse().unwrap();
            let filter = filter.with_search(search.at(now.plus_millis(60_000)));
            let ids = list_ids(ctx, &filter).await;
            assert_eq!(ids, expected.iter().copied().collect(), "{text}");
        }
    }
}

pub(super) async fn lists_page_by_page(ctx: &TestContext<'_>) {
    let requests = (0..25).map(|_| ctx.submit_request()).collect();
    let submitted: BTreeSet<_> = ctx
        .engine
        .submit_many(requests)
        .await
        .into_iter()
        .map(|result| result.unwrap().task.id)
        .collect();
    for limit in [1, 7, 25, 1_000] {
        let tasks = list(ctx, &in_queue(ctx), limit).await;
        assert_eq!(
            tasks.len(),
            25,
            "each task is listed once, in pages of {limit}"
        );
        let ids: BTreeSet<_> = tasks.iter().map(|task| task.id).collect();
        assert_eq!(ids, submitted);
    }
    let page = ctx
        .engine
        .list(TaskQuery::first(&in_queue(ctx), 7))
        .await
        .unwrap();
    assert_eq!(page.tasks.len(), 7, "the limit counts matching tasks");
}

pub(super) async fn lists_the_newest_first(ctx: &TestContext<'_>) {
    // Ids that qo generates: in direct mode they have the order.
    let mut submitted = Vec::new();
    for _ in 0..9 {
        submitted.insert(0, ctx.submit_one().await);
        // Clocks of several processes may differ a little.
        ctx.sleep(Duration::from_millis(40)).await;
    }
    let mut expected: Vec<_> = submitted.iter().map(|task| task.id).collect();
    let mut completed = Vec::new();
    for task in ctx.claim(2).await {
        let lease = task.lease_id.unwrap();
        ctx.engine.complete(task.id, lease, None).await.unwrap();
        completed.push(task.id);
    }
    let filter = TaskFilter {
        order: TaskOrder::Newest,
        ..in_queue(ctx)
    };
    // A process that has just begun to learn the store's time may stand still or step back by less than a second. Then the times decide, and
    // tasks of the same time have any order, which is always the same.
    let listed = list(ctx, &filter, 100).await;
    let ids: Vec<_> = listed.iter().map(|task| task.id).collect();
    let is_sorted = listed.is_sorted_by_key(|task| std::cmp::Reverse(task.created_at));
    if is_sorted && ids.iter().all(|id| expected.contains(id)) && ids.len() == expected.len() {
        expected = ids;
    }
    for limit in [1, 2, 4, 100] {
        let listed = list(ctx, &filter, limit).await;
        let ids: Vec<_> = listed.iter().map(|task| task.id).collect();
        assert_eq!(ids, expected, "in pages of {limit}");
    }
    let of_status = TaskFilter {
        statuses: vec![Status::Completed],
        ..filter.clone()
    };
    let listed = list(ctx, &of_status, 1).await;
    let ids: Vec<_> = listed.iter().map(|task| task.id).collect();
    let newest_completed = expected.iter().filter(|id| completed.contains(id));
    assert_eq!(ids, newest_completed.copied().collect::<Vec<_>>());

    // Tasks that are submitted and changed meanwhile do not move the others.
    let first = ctx.engine.list(TaskQuery::first(&filter, 4)).await.unwrap();
    let later = ctx.submit_one().await;
    let archived = completed[0];
    ctx.engine.archive(archived).await.unwrap();
    let chosen = ctx.submit(ctx.with_id(ctx.submit_request())).await;
    // It may have been on the first page.
    let mut ids: Vec<_> = first.tasks.iter().map(|task| task.id).collect();
    ids.retain(|id| *id != archived);
    let mut cursor = first.next;
    while let Some(next) = cursor {
        let page = ctx
            .engine
            .list(TaskQuery::first(&filter, 4).at(Some(&next)))
            .await
            .unwrap();
        ids.extend(page.tasks.iter().map(|task| task.id));
        cursor = page.next;
    }
    ids.retain(|id| *id != later.id && *id != chosen.id);
    expected.retain(|id| *id != archived);
    assert_eq!(ids, expected);

    let all = list(ctx, &filter, 3).await;
    let set: BTreeSet<_> = all.iter().map(|task| task.id).collect();
    assert_eq!(set.len(), all.len(), "each task is listed once");
    expected.extend([later.id, chosen.id]);
    assert_eq!(set, expected.into_iter().collect());
    let wrong = ctx
        .engine
        .list(TaskQuery::first(&filter, 10).at(Some("x")))
        .await;
    assert!(
        matches!(wrong, Err(EngineError::BadRequest(_))),
        "{wrong:?}"
    );
}

pub(super) async fn finds_texts_in_inputs_and_errors(ctx: &TestContext<'_>) {
    let with_input = ctx
        .submit(SubmitRequest {
            input: json("{\"to\":\"Ada@Example.org\"}"),
            ..ctx.submit_request()
        })
        .await;
    let other = ctx.submit_one().await;
    let reason = Some("mail to ADA@example.ORG is not wanted".to_owned());
    ctx.engine.cancel(other.id, reason).await.unwrap();
    let finds = async |text: &str| {
        let filter = TaskFilter {
            text: Some(text.parse().unwrap()),
            ..in_queue(ctx)
        };
        list_ids(ctx, &filter).await
    };
    assert_eq!(
        finds("ada@example").await,
        BTreeSet::from([with_input.id, other.id])
    );
    assert_eq!(finds("not wanted").await, BTreeSet::from([other.id]));
    assert_eq!(finds("bob").await, BTreeSet::new());
}

pub(super) async fn rejects_an_invalid_cursor(ctx: &TestContext<'_>) {
    for cursor in ["", "x", "../..", "tasks/", "\0"] {
        let result = ctx
            .engine
            .list(TaskQuery::first(&in_queue(ctx), 10).at(Some(cursor)))
            .await;
        match result {
            Err(EngineError::BadRequest(message)) => assert!(message.contains("cursor")),
            other => panic!("{cursor:?}: {other:?}"),
        }
    }
}

pub(super) async fn counts_tasks(ctx: &TestContext<'_>) {
    ctx.completed().await;
    let (running, _) = ctx.running().await;
    let oldest = ctx.submit_one().await;
    ctx.submit(SubmitRequest {
        task_type: name(&format!("{}-b", ctx.task_type)),
        ..ctx.submit_request()
    })
    .await;
    let other = ctx.new_engine().await;
    let stats = ctx
        .poll_until(
            "all tasks are due by the clock of the other engine",
            async || {
                let stats = other.stats().await.unwrap();
                let is_due = stats.queues[&ctx.queue].oldest_due.is_some();
                (is_due && other.now() > oldest.available_at.plus_millis(1)).then_some(stats)
            },
        )
        .await;
    assert!(!stats.partial);
    let queue = &stats.queues[&ctx.queue];
    let counts: Vec<_> = queue.statuses.iter().map(|(s, n)| (*s, *n)).collect();
    assert_eq!(
        counts,
        [
            (Status::Pending, 2),
            (Status::Running, 1),
            (Status::Completed, 1)
        ]
    );
    assert_eq!(queue.types[&ctx.task_type], 3);
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
    assert!(running.started_at.is_some());
    assert_eq!(queue.oldest_claim, running.started_at);
    assert!(!queue.paused);
}

pub(super) async fn returns_the_history_of_a_task(ctx: &TestContext<'_>) {
    use Status::{Archived, Completed, Failed, Pending, Running};
    let (task, lease) = ctx.running().await;
    ctx.engine.renew(task.id, lease, None).await.unwrap();
    let error = failure(FailureKind::Permanent, "a bug");
    ctx.engine.fail(task.id, lease, error).await.unwrap();
    ctx.engine.replay(task.id).await.unwrap();
    let (_, lease) = ctx.claim_one().await;
    ctx.engine.complete(task.id, lease, None).await.unwrap();
    ctx.engine.archive(task.id).await.unwrap();

    let events = ctx.new_engine().await.history(task.id).await.unwrap();
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
    assert_eq!(events[1].worker, Some(ctx.worker.clone()));
    assert_eq!(events[2].error.as_deref(), Some("a bug"));
    let operations: BTreeSet<_> = events.iter().map(|event| event.op_id.unwrap()).collect();
    assert_eq!(operations.len(), events.len());
}

pub(super) async fn returns_stored_versions(ctx: &TestContext<'_>) {
    let task = ctx.completed().await;
    let versions = ctx.engine.versions(task.id, 100).await;
    if !ctx.harness.keeps_versions() {
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
    let newest = ctx.engine.versions(task.id, 2).await.unwrap();
    assert_eq!(newest, versions[1..], "the newest versions, oldest first");
}

pub(super) async fn lists_registered_workers(ctx: &TestContext<'_>) {
    let other = ctx.new_engine().await;
    let find = async || {
        let workers = other.workers().await.unwrap();
        workers
            .into_iter()
            .find(|worker| worker.worker_id == ctx.worker)
    };
    assert_eq!(find().await, None);
    let mut worker = ctx.register(&*ctx.engine).await;
    assert_eq!(find().await, Some(worker.clone()));

    let (task, lease) = ctx.running().await;
    worker.last_heartbeat = worker.last_heartbeat.plus_millis(1_000);
    worker.current_task = Some(task.id);
    worker.current_tasks = vec![task.id];
    worker.tasks_completed = 41;
    worker.tasks_failed = 1;
    worker.host = Some("host.example".to_owned());
    worker.cpu_percent = Some(150);
    worker.memory_bytes = Some(64 * 1_048_576);
    ctx.engine.heartbeat(&worker).await.unwrap();
    let listed = find().await.unwrap();
    assert_eq!(listed, worker);
    assert!(listed.is_healthy(worker.last_heartbeat.plus_millis(10_000), 10_000));
    assert!(!listed.is_healthy(worker.last_heartbeat.plus_millis(10_001), 10_000));
    ctx.engine.complete(task.id, lease, None).await.unwrap();

    ctx.engine.deregister(&ctx.worker).await.unwrap();
    assert_eq!(find().await, None);
    ctx.engine.deregister(&ctx.worker).await.unwrap();
}
