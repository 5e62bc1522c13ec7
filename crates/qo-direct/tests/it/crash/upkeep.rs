//! Recovery after faults: a process claims, completes, monitors and sweeps until nothing is left to do.

use std::sync::Arc;
use std::time::Duration;

use qo_check::{CallKind, CallLog};
use qo_core::task::decode;
use qo_core::{QueueName, Task, TaskId};
use qo_direct::SweepNext;
use qo_engine::{Engine, EngineError};

use super::bucket::Bucket;
use super::process::{Process, Setting};
use super::stage::small;

/// How long recovery may take.
const BOUND: Duration = Duration::from_mins(30);
/// After this time, a pass of the sweeper checks everything, and removes payloads that no task refers to.
const TIDY_AFTER_SECONDS: u64 = 25 * 60 * 60;

/// Checks all leases once.
pub(super) async fn check_leases(process: &Process) -> Result<(), EngineError> {
    process.engine.check_leases().await.map(drop)
}

/// Sweeps until the pass is complete, or belongs to another process.
pub(super) async fn sweep_pass(process: &Process) -> Result<(), EngineError> {
    loop {
        match process.engine.sweep_step().await?.next {
            SweepNext::Continue => {}
            SweepNext::Rest | SweepNext::NotBefore(_) => return Ok(()),
        }
    }
}

/// Finishes every task and cleans up, in a new process.
pub(super) async fn drain(bucket: &Arc<Bucket>, log: &CallLog) -> Result<(), String> {
    let process = Process::start(bucket, log, Setting::new("drain", 99));
    drain_with(&process, bucket).await
}

/// Finishes every task and cleans up.
pub(super) async fn drain_with(process: &Process, bucket: &Bucket) -> Result<(), String> {
    let failed = |error: EngineError| format!("recovery failed without faults: {error}");
    // Only the operator's next request ends a pause.
    process
        .engine
        .resume(&QueueName::default())
        .await
        .map_err(failed)?;
    let started = bucket.elapsed();
    loop {
        for task in process.claim(100, 0).await.map_err(failed)? {
            process.complete(&task, small()).await.map_err(failed)?;
        }
        check_leases(process).await.map_err(failed)?;
        sweep_pass(process).await.map_err(failed)?;
        // Only an operator lets the others run.
        for id in stopping(bucket) {
            process.cancel(id).await.map_err(failed)?;
        }
        let elapsed = bucket.elapsed().saturating_sub(started);
        let unfinished = unfinished(bucket);
        if unfinished.is_empty() {
            break;
        }
        if elapsed > BOUND {
            return Err(format!("not at their end after {BOUND:?}: {unfinished:?}"));
        }
        process.sleep(10).await;
    }
    // Much later: all requests in flight have arrived, and unneeded objects are old enough to be deleted. The first round may repair
    // something that arrived late. Its own writes are cleaned up by the second.
    for _ in 0..2 {
        process.sleep(TIDY_AFTER_SECONDS).await;
        check_leases(process).await.map_err(failed)?;
        sweep_pass(process).await.map_err(failed)?;
        // The sweeper may have submitted the delivery of a webhook.
        for task in process.claim(100, 0).await.map_err(failed)? {
            process.complete(&task, small()).await.map_err(failed)?;
        }
    }
    process.engine.close().await;
    Ok(())
}

/// Repeats every purge in a new process, and checks that it leaves no version behind.
pub(super) async fn repeat_purges(bucket: &Arc<Bucket>, log: &CallLog) -> Result<(), String> {
    let process = Process::start(bucket, log, Setting::new("again", 98));
    let calls = log.calls();
    let purges = calls.iter().filter(|call| call.kind == CallKind::Purge);
    for id in purges.filter_map(|call| call.task) {
        match process.purge(id).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(format!("a repeated purge was refused: {error}")),
        }
    }
    let left = bucket.versions_left().await;
    if left.is_empty() {
        Ok(())
    } else {
        Err(format!("a purge left versions of {left:?}"))
    }
}

/// The unfinished tasks.
fn unfinished(bucket: &Bucket) -> Vec<String> {
    let tasks = newest(bucket).into_iter();
    tasks
        .filter(|task| !task.status.is_terminal())
        .map(|task| format!("{} is {}", task.id, task.status))
        .collect()
}

/// The failed tasks that stop their ordering keys.
fn stopping(bucket: &Bucket) -> Vec<TaskId> {
    let tasks = newest(bucket).into_iter();
    tasks.filter(Task::stops_line).map(|task| task.id).collect()
}

/// The newest version of each task.
fn newest(bucket: &Bucket) -> Vec<Task> {
    let versions = bucket.versions().into_iter();
    versions
        .filter_map(|(_, versions)| {
            let last = versions.last()?.body.as_ref()?;
            decode(last).ok()
        })
        .collect()
}
