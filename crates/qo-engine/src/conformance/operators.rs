//! Operations of operators: cancel, run now, replay, redrive, archive, purge.

use qo_core::task::{Event, EventAction, IdempotencyScope};
use qo_core::transition::FailureKind;
use qo_core::{Actor, QueueName, Rejection, Status, TaskId, WorkerId};

use super::context::{
    TIMEOUT_MS, TestContext, assert_not_found, assert_wrong_status, failure, json, name, rejection,
};
use crate::api::{
    ClaimRequest, IdempotencyRequest, QueueStats, SubmitRequest, TaskFilter, TaskQuery, When,
    WorkerAction, WorkerRequest,
};
use crate::error::EngineError;
use crate::operation::Operation;

pub(super) async fn cancels_a_pending_task(ctx: &TestContext<'_>) {
    let due = ctx.submit_one().await;
    let request = SubmitRequest {
        available: When::InMillis(3_600_000),
        ..ctx.submit_request()
    };
    let later = ctx.submit(request).await;
    for task in [due, later] {
        let reason = Some("no longer wanted".to_owned());
        let cancelled = ctx
            .new_engine()
            .await
            .cancel(task.id, reason)
            .await
            .unwrap();
        assert_eq!(cancelled.status, Status::Cancelled);
        assert_eq!(cancelled.last_error.as_deref(), Some("no longer wanted"));
        assert!(cancelled.completed_at.is_some());
        assert_wrong_status(ctx.engine.cancel(task.id, None).await, Status::Cancelled);
    }
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn requests_cancellation_of_a_running_task(ctx: &TestContext<'_>) {
    let (task, lease) = ctx.running().await;
    let cancelling = ctx.new_engine().await.cancel(task.id, None).await.unwrap();
    assert_eq!(
        cancelling.status,
        Status::Running,
        "only the worker can stop the attempt"
    );
    assert!(cancelling.cancel_requested);
    assert_eq!(
        rejection(ctx.engine.cancel(task.id, None).await),
        Rejection::CancelAlreadyRequested
    );
    let renewed = ctx.engine.renew(task.id, lease, None).await.unwrap();
    assert!(
        renewed.cancel_requested,
        "the renewal shows the cancel request"
    );
    let stopped = failure(FailureKind::Cancelled, "stopped on request");
    let ended = ctx.engine.fail(task.id, lease, stopped).await.unwrap();
    assert_eq!(ended.status, Status::Cancelled);
    assert!(!ended.cancel_requested);
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn cancels_when_the_attempt_ends(ctx: &TestContext<'_>) {
    let (task, lease) = ctx.running().await;
    ctx.engine.cancel(task.id, None).await.unwrap();
    let ended = ctx.engine.release(task.id, lease).await.unwrap();
    assert_eq!(
        ended.status,
        Status::Cancelled,
        "a released task with a cancel request is cancelled"
    );

    let (task, lease) = ctx.running().await;
    ctx.engine.cancel(task.id, None).await.unwrap();
    let error = failure(FailureKind::Retryable, "interrupted");
    let ended = ctx.engine.fail(task.id, lease, error).await.unwrap();
    assert_eq!(
        ended.status,
        Status::Cancelled,
        "a failed task with a cancel request is not retried"
    );

    let (task, lease) = ctx.running().await;
    ctx.engine.cancel(task.id, None).await.unwrap();
    let ended = ctx.engine.complete(task.id, lease, None).await.unwrap();
    assert_eq!(
        ended.status,
        Status::Completed,
        "a completion wins over a cancel request"
    );
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn runs_a_delayed_task_now(ctx: &TestContext<'_>) {
    let request = SubmitRequest {
        available: When::InMillis(3_600_000),
        ..ctx.submit_request()
    };
    let waiting = ctx.submit(request).await;
    ctx.assert_nothing_to_claim().await;
    let other = ctx.new_engine().await;
    let due = other.run_now(waiting.id).await.unwrap();
    assert_eq!(due.status, Status::Pending);
    assert!(due.available_at < waiting.available_at);
    // Use the same engine: the clock of another may be a little behind, and the task would not be due there yet.
    match rejection(other.run_now(waiting.id).await) {
        Rejection::AlreadyDue { available_at } => assert_eq!(available_at, due.available_at),
        other => panic!("expected AlreadyDue, got {other:?}"),
    }
    let (task, lease) = ctx.claim_one().await;
    assert_eq!((task.id, task.attempt), (waiting.id, 1));
    assert_wrong_status(ctx.engine.run_now(task.id).await, Status::Running);

    // A task that waits for its retry is delayed like any other.
    let error = failure(FailureKind::Retryable, "try again later");
    let back = ctx.engine.fail(task.id, lease, error).await.unwrap();
    assert_eq!(back.status, Status::Pending);
    match ctx.engine.run_now(task.id).await {
        // It may have become due in the meantime.
        Ok(_) | Err(EngineError::Rejected(Rejection::AlreadyDue { .. })) => {}
        other => panic!("expected success or AlreadyDue, got {other:?}"),
    }
    let (again, lease) = ctx.claim_one().await;
    assert_eq!((again.id, again.attempt), (task.id, 2));
    ctx.engine.complete(task.id, lease, None).await.unwrap();
    assert_wrong_status(ctx.engine.run_now(task.id).await, Status::Completed);
}

fn count_of(counts: &QueueStats, status: Status) -> u64 {
    counts.statuses.get(&status).copied().unwrap_or(0)
}

pub(super) async fn redrives_a_waiting_task(ctx: &TestContext<'_>) {
    let to: QueueName = name(&format!("{}.to", ctx.queue));
    let keyed = SubmitRequest {
        idempotency: Some(IdempotencyRequest {
            key: name("order-7"),
            scope: IdempotencyScope::Queue,
            window_ms: None,
        }),
        ..ctx.submit_request()
    };
    let task = ctx.submit(keyed.clone()).await;
    let delayed = SubmitRequest {
        available: When::InMillis(3_600_000),
        ..ctx.submit_request()
    };
    let delayed = ctx.submit(delayed).await;
    let other = ctx.new_engine().await;
    let moved = other.redrive(task.id, to.clone()).await.unwrap();
    assert_eq!((moved.status, &moved.queue), (Status::Pending, &to));
    let moved = other.redrive(delayed.id, to.clone()).await.unwrap();
    assert_eq!(moved.available_at, delayed.available_at.plus_millis(1));
    // A repeated request finds the task there.
    let there = Rejection::AlreadyInQueue { queue: to.clone() };
    assert_eq!(rejection(other.redrive(task.id, to.clone()).await), there);

    ctx.assert_nothing_to_claim().await;
    let counts = ctx.engine.stats().await.unwrap();
    let pending = |queue: &QueueName| {
        let counts = counts.queues.get(queue);
        counts.map_or(0, |counts| count_of(counts, Status::Pending))
    };
    assert_eq!((pending(&ctx.queue), pending(&to)), (0, 2));

    // The key stays in the queue of the submit.
    let again = ctx.engine.submit(keyed.clone()).await.unwrap();
    assert_eq!((again.duplicate, again.task.id), (true, task.id));
    let elsewhere = SubmitRequest {
        queue: to.clone(),
        ..keyed
    };
    let second = ctx.submit(elsewhere).await;
    assert_ne!(second.id, task.id);

    let request = ClaimRequest {
        queues: vec![to.clone()],
        wait_ms: TIMEOUT_MS,
        ..ctx.claim_request(2)
    };
    let claimed = ctx.engine.claim(&request).await.unwrap();
    let mut ids: Vec<TaskId> = claimed.iter().map(|task| task.id).collect();
    while ids.len() < 2 {
        // Direct mode may claim them one after the other.
        let more = ctx.engine.claim(&request).await.unwrap();
        assert!(!more.is_empty(), "a moved task can be claimed");
        ids.extend(more.iter().map(|task| task.id));
    }
    ids.sort_unstable();
    let mut expected = [task.id, second.id];
    expected.sort_unstable();
    assert_eq!(ids, expected);
    let back = ctx.queue.clone();
    assert_wrong_status(ctx.engine.redrive(task.id, back).await, Status::Running);
    // It can be moved back, and is then claimed there.
    other.redrive(delayed.id, ctx.queue.clone()).await.unwrap();
    other.run_now(delayed.id).await.unwrap();
    assert_eq!(ctx.claim_one().await.0.id, delayed.id);
}

pub(super) async fn redrives_a_failed_task(ctx: &TestContext<'_>) {
    let to: QueueName = name(&format!("{}.to", ctx.queue));
    let (task, lease) = ctx.running().await;
    let error = failure(FailureKind::Permanent, "broken");
    ctx.engine.fail(task.id, lease, error).await.unwrap();
    let operation =
        Operation::Redrive { to: to.clone() }.by(Some(&Actor::new("ada@laptop").unwrap()));
    let other = ctx.new_engine().await;
    let moved = other.act(task.id, operation).await.unwrap();
    assert_eq!((moved.status, &moved.queue), (Status::Pending, &to));
    assert_eq!((moved.retry_count, moved.completed_at), (0, None));
    let event = moved.events.last().unwrap();
    assert_eq!(event.action, Some(EventAction::Redriven));
    assert_eq!(event.by.as_ref().map(|by| by.as_str()), Some("ada@laptop"));
    ctx.assert_nothing_to_claim().await;
    let counts = ctx.engine.stats().await.unwrap();
    let failed = counts.queues.get(&ctx.queue);
    assert_eq!(
        failed.map_or(0, |counts| count_of(counts, Status::Failed)),
        0
    );

    let request = ClaimRequest {
        queues: vec![to.clone()],
        wait_ms: TIMEOUT_MS,
        ..ctx.claim_request(1)
    };
    let claimed = ctx.engine.claim(&request).await.unwrap().pop().unwrap();
    assert_eq!((claimed.id, claimed.attempt), (task.id, 2));
    let lease = claimed.lease_id.unwrap();
    ctx.engine.complete(task.id, lease, None).await.unwrap();
    let queue = ctx.queue.clone();
    assert_wrong_status(ctx.engine.redrive(task.id, queue).await, Status::Completed);

    let filter = TaskFilter {
        queue: Some(to),
        ..TaskFilter::default()
    };
    let page = ctx
        .engine
        .list(TaskQuery::first(&filter, 10))
        .await
        .unwrap();
    let ids: Vec<TaskId> = page.tasks.iter().map(|task| task.id).collect();
    assert_eq!(ids, [task.id]);
}

pub(super) async fn replays(ctx: &TestContext<'_>) {
    let pending = ctx.submit_one().await;
    assert_wrong_status(ctx.engine.replay(pending.id).await, Status::Pending);
    let (task, lease) = ctx.claim_one().await;
    assert_wrong_status(ctx.engine.replay(task.id).await, Status::Running);
    let error = failure(FailureKind::Permanent, "a bug");
    ctx.engine.fail(task.id, lease, error).await.unwrap();

    let replayed = ctx.new_engine().await.replay(task.id).await.unwrap();
    assert_eq!(replayed.status, Status::Pending);
    assert_eq!((replayed.retry_count, replayed.attempt), (0, 1));
    assert_eq!(replayed.completed_at, None);
    let (again, lease) = ctx.claim_one().await;
    assert_eq!((again.id, again.attempt), (task.id, 2));
    let output = Some(json("1"));
    ctx.engine.complete(task.id, lease, output).await.unwrap();

    let replayed = ctx.engine.replay(task.id).await.unwrap();
    assert_eq!(ctx.engine.output(&replayed).await.unwrap(), None);
    ctx.engine.cancel(task.id, None).await.unwrap();
    let replayed = ctx.engine.replay(task.id).await.unwrap();
    assert_eq!(replayed.status, Status::Pending);
    assert_eq!(ctx.claim_one().await.0.attempt, 3);
}

pub(super) async fn archives_and_unarchives(ctx: &TestContext<'_>) {
    let task = ctx.submit_one().await;
    assert_wrong_status(ctx.engine.archive(task.id).await, Status::Pending);
    let (_, lease) = ctx.claim_one().await;
    assert_wrong_status(ctx.engine.archive(task.id).await, Status::Running);
    assert_wrong_status(ctx.engine.unarchive(task.id).await, Status::Running);
    let output = Some(json("\"kept\""));
    ctx.engine
        .complete(task.id, lease, output.clone())
        .await
        .unwrap();

    let archived = ctx.new_engine().await.archive(task.id).await.unwrap();
    assert_eq!(archived.status, Status::Archived);
    assert_wrong_status(ctx.engine.archive(task.id).await, Status::Archived);
    assert_wrong_status(ctx.engine.replay(task.id).await, Status::Archived);
    assert_wrong_status(ctx.engine.cancel(task.id, None).await, Status::Archived);
    let unarchived = ctx.engine.unarchive(task.id).await.unwrap();
    assert_eq!(
        unarchived.status,
        Status::Completed,
        "the previous status is restored"
    );
    assert_eq!(ctx.engine.output(&unarchived).await.unwrap(), output);
    assert_wrong_status(ctx.engine.unarchive(task.id).await, Status::Completed);
    ctx.assert_nothing_to_claim().await;
}

pub(super) async fn records_who_acted(ctx: &TestContext<'_>) {
    let actor = Actor::new("ada@laptop").unwrap();
    let task = ctx.submit_one().await;
    let named = |operation: Operation| operation.by(Some(&actor));
    let cancel = named(Operation::Cancel { reason: None });
    ctx.engine.act(task.id, cancel).await.unwrap();
    ctx.engine
        .act(task.id, named(Operation::Replay))
        .await
        .unwrap();
    ctx.engine.cancel(task.id, None).await.unwrap();
    ctx.engine
        .act(task.id, named(Operation::Archive))
        .await
        .unwrap();
    let history = ctx.new_engine().await.history(task.id).await.unwrap();
    // A server names the caller even if the caller does not.
    let names = |event: &Event| {
        let by = event.by.as_deref();
        by.is_some_and(|by| by.as_str().contains(actor.as_str()))
    };
    let named: Vec<_> = history
        .iter()
        .filter(|event| names(event))
        .filter_map(|event| event.action)
        .collect();
    assert_eq!(
        named,
        [
            EventAction::Cancelled,
            EventAction::Replayed,
            EventAction::Archived
        ],
        "{history:?}"
    );
}

pub(super) async fn purges_everything(ctx: &TestContext<'_>) {
    let request = ctx.with_id(SubmitRequest {
        input: json(&format!("\"{}\"", "i".repeat(100 * 1024))),
        idempotency: Some(IdempotencyRequest {
            key: name("only once"),
            scope: qo_core::task::IdempotencyScope::Queue,
            window_ms: None,
        }),
        ..ctx.submit_request()
    });
    let task = ctx.submit(request.clone()).await;
    assert_wrong_status(ctx.engine.purge(task.id).await, Status::Pending);
    let (_, lease) = ctx.claim_one().await;
    assert_wrong_status(ctx.engine.purge(task.id).await, Status::Running);
    let output = Some(json(&format!("\"{}\"", "o".repeat(100 * 1024))));
    let ended = ctx.engine.complete(task.id, lease, output).await.unwrap();

    ctx.new_engine().await.purge(task.id).await.unwrap();
    assert_not_found(ctx.engine.get(task.id).await, task.id);
    assert_not_found(ctx.engine.purge(task.id).await, task.id);
    assert_not_found(ctx.engine.history(task.id).await, task.id);
    assert_not_found(ctx.engine.versions(task.id, 100).await, task.id);
    assert!(
        ctx.engine.input(&ended).await.is_err(),
        "the payload is deleted"
    );
    assert!(
        ctx.engine.output(&ended).await.is_err(),
        "the payload is deleted"
    );
    ctx.assert_queue_is_empty().await;

    // The id and the key are free again, and the new task contains nothing of the old one.
    let again = ctx.submit(request).await;
    assert_eq!((again.id, again.attempt), (task.id, 0));
    match ctx.engine.versions(again.id, 100).await {
        Ok(versions) => assert_eq!(
            versions.iter().filter(|one| one.task.is_some()).count(),
            1,
            "the old versions are deleted: {versions:?}"
        ),
        Err(error) => assert_eq!(error, EngineError::NotVersioned),
    }
}

pub(super) async fn asks_a_worker(ctx: &TestContext<'_>) {
    let ask = |action| {
        let by = Actor::new("ada@laptop").unwrap();
        Some(WorkerRequest::new(action, ctx.engine.now(), Some(by)))
    };
    let action_of = |request: &Option<WorkerRequest>| request.as_ref().map(|one| one.action);
    let nobody: WorkerId = name("nobody");
    match ctx
        .engine
        .ask_worker(&nobody, ask(WorkerAction::Quiet))
        .await
    {
        Err(EngineError::WorkerNotFound { worker }) => assert_eq!(worker, nobody),
        other => panic!("expected WorkerNotFound, got {other:?}"),
    }
    let mut info = ctx.register(ctx.engine.as_ref()).await;
    assert_eq!(ctx.engine.heartbeat(&info).await.unwrap(), None);
    let other = ctx.new_engine().await;
    let quiet = other
        .ask_worker(&ctx.worker, ask(WorkerAction::Quiet))
        .await;
    let quiet = quiet.unwrap().request;
    assert_eq!(action_of(&quiet), Some(WorkerAction::Quiet));
    // A repeated request changes nothing, and heartbeats of either process keep it.
    let again = other
        .ask_worker(&ctx.worker, ask(WorkerAction::Quiet))
        .await;
    assert_eq!(again.unwrap().request, quiet);
    for engine in [&ctx.engine, &ctx.engine, &other, &ctx.engine] {
        info.tasks_completed += 1;
        assert_eq!(engine.heartbeat(&info).await.unwrap(), quiet);
    }
    let workers = ctx.engine.workers().await.unwrap();
    let listed = workers.iter().find(|worker| worker.worker_id == ctx.worker);
    let listed = listed.expect("the worker is listed");
    assert_eq!((&listed.request, listed.tasks_completed), (&quiet, 4));

    ctx.engine.ask_worker(&ctx.worker, None).await.unwrap();
    assert_eq!(ctx.engine.heartbeat(&info).await.unwrap(), None);
    let stop = ask(WorkerAction::Stop);
    other.ask_worker(&ctx.worker, stop).await.unwrap();
    let stop = ctx.engine.heartbeat(&info).await.unwrap();
    assert_eq!(action_of(&stop), Some(WorkerAction::Stop));
    // The request ends with the worker: neither one that starts under its name, nor one that registers again is asked.
    info.started_at = info.started_at.plus_millis(1);
    for engine in [&other, &ctx.engine] {
        assert_eq!(engine.heartbeat(&info).await.unwrap(), None);
    }
    other
        .ask_worker(&ctx.worker, ask(WorkerAction::Stop))
        .await
        .unwrap();
    ctx.engine.deregister(&ctx.worker).await.unwrap();
    assert_eq!(ctx.engine.heartbeat(&info).await.unwrap(), None);
    ctx.engine.deregister(&ctx.worker).await.unwrap();
}
