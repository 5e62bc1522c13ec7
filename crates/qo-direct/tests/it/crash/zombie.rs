//! A worker that wakes up after its lease expired gets `LeaseLost` from every operation, and changes nothing.

use std::collections::BTreeMap;

use bytes::Bytes;
use qo_check::CallLog;
use qo_core::transition::FailureKind;
use qo_core::{Json, Status, Task};
use qo_engine::api::SubmitRequest;
use qo_engine::{Engine, EngineError};
use qo_store::runtime::RuntimeExt;

use super::bucket::Bucket;
use super::checker::{self, Tolerance, VICTIM};
use super::process::{Process, Setting};
use super::stage::{large, small};
use super::upkeep;

/// The state of the task when its first worker wakes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Since {
    /// It is pending.
    Waiting,
    /// Another worker runs it.
    Running,
    /// Another worker completed it.
    Completed,
    /// It failed, because it has no retries.
    Failed,
    /// Another worker completed it, and it was archived.
    Archived,
}

const ALL: [Since; 5] = [
    Since::Waiting,
    Since::Running,
    Since::Completed,
    Since::Failed,
    Since::Archived,
];

#[derive(Debug, Clone, Copy)]
enum Attempted {
    Renew,
    Progress,
    Complete,
    CompleteLarge,
    Retry,
    GiveUp,
    Release,
    Snooze,
}

const EVERYTHING: [Attempted; 8] = [
    Attempted::Renew,
    Attempted::Progress,
    Attempted::Complete,
    Attempted::CompleteLarge,
    Attempted::Retry,
    Attempted::GiveUp,
    Attempted::Release,
    Attempted::Snooze,
];

async fn attempt(zombie: &Process, what: Attempted, task: &Task) -> Result<Task, EngineError> {
    match what {
        Attempted::Renew => zombie.renew(task).await,
        Attempted::Progress => zombie.progress(task).await,
        Attempted::Complete => zombie.complete(task, small()).await,
        Attempted::CompleteLarge => zombie.complete(task, large("late")).await,
        Attempted::Retry => zombie.fail(task, FailureKind::Retryable).await,
        Attempted::GiveUp => zombie.fail(task, FailureKind::Permanent).await,
        Attempted::Release => zombie.release(task).await,
        Attempted::Snooze => zombie.snooze(task, 1_000).await,
    }
}

/// The keys that decide about tasks and that claims read. The sweeper may still have to delete an unreferenced output, and the
/// monitor the entry of a renewal that failed.
async fn decisive(bucket: &Bucket) -> BTreeMap<String, Bytes> {
    let mut found = BTreeMap::new();
    for key in bucket.keys().await {
        if ["tasks/", "ready/", "later/"]
            .iter()
            .any(|prefix| key.starts_with(prefix))
        {
            let body = bucket.body(&key).await.unwrap();
            found.insert(key, body);
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn a_zombie_changes_nothing() {
    for since in ALL {
        for what in EVERYTHING {
            wake_up(since, what).await;
        }
    }
}

async fn wake_up(since: Since, what: Attempted) {
    let bucket = Bucket::shared();
    let log = CallLog::new(bucket.ticks.clone());
    let zombie = Process::start(&bucket, &log, Setting::new(VICTIM, 1));
    let other = Process::start(&bucket, &log, Setting::new("other", 2));

    let mut request = SubmitRequest::new("job".parse().unwrap(), Json::null());
    request.id = Some(zombie.runtime.new_task_id());
    request.max_retries = Some(u32::from(since != Since::Failed));
    zombie.submit(request).await.unwrap();
    let task = zombie.claim(1, 0).await.unwrap().pop().unwrap();
    while other.engine.get(task.id).await.unwrap().status == Status::Running {
        other.sleep(10).await;
        upkeep::check_leases(&other).await.unwrap();
    }
    if !matches!(since, Since::Waiting | Since::Failed) {
        let again = loop {
            if let Some(task) = other.claim(1, 10_000).await.unwrap().pop() {
                break task;
            }
        };
        if since != Since::Running {
            other.complete(&again, small()).await.unwrap();
        }
        if since == Since::Archived {
            other.archive(task.id).await.unwrap();
        }
    }
    // Wait for all background work.
    other.engine.close().await;
    zombie.engine.close().await;

    let before = decisive(&bucket).await;
    // The first call uses the zombie's cached state, the second what it reads.
    for _ in 0..2 {
        let reply = attempt(&zombie, what, &task).await;
        assert!(
            reply.as_ref().is_err_and(EngineError::is_lease_lost),
            "{what:?} of a task that is {since:?} got the reply {reply:?}"
        );
        zombie.engine.close().await;
        zombie.sleep(2).await;
        assert!(
            decisive(&bucket).await == before,
            "{what:?} of a task that is {since:?} left a trace"
        );
    }
    if since == Since::Running {
        let running = bucket.body(before.keys().next_back().unwrap()).await;
        let running = qo_core::task::decode(&running.unwrap()).unwrap();
        other.complete(&running, small()).await.unwrap();
    }
    upkeep::drain(&bucket, &log).await.unwrap();
    let breaches = checker::check(&bucket, &log, &other.engine, Tolerance::None).await;
    assert!(breaches.is_empty(), "{what:?}, {since:?}:\n{breaches}");
}
