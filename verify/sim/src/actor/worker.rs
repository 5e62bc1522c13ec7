//! A worker: claims, works, renews, reports progress, and sometimes stalls, fails or gives up.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use qo_core::Task;
use qo_core::transition::FailureKind;
use qo_core::webhook::delivery::is_delivery;
use qo_engine::api::WorkerInfo;

use super::{Caller, DELIVERY_TRIES, large, small};
use crate::faults::Trouble;

/// The longest run of a handler without faults.
const WORK_MAX_MS: u64 = 2_000;

/// Runs until it is killed.
pub(crate) async fn worker(caller: Arc<Caller>, trouble: Arc<Trouble>) {
    let heartbeats = async {
        let mut info = WorkerInfo::new(caller.worker.clone(), caller.engine.now());
        loop {
            info.last_heartbeat = caller.engine.now();
            // Correctness does not depend on it.
            let _ = caller.engine.heartbeat(&info).await;
            caller.sleep(Duration::from_secs(15)).await;
        }
    };
    let work = async {
        loop {
            work(&caller, &trouble).await;
        }
    };
    join(heartbeats, work).await;
}

/// Claims a few tasks and works on each.
async fn work(caller: &Caller, trouble: &Trouble) {
    let calm = trouble.is_over();
    let impatient = !calm && caller.below(20) == 0;
    let patience = if impatient {
        caller.millis(5, 500)
    } else {
        Duration::from_mins(10)
    };
    let max = usize::try_from(1 + caller.below(8)).unwrap_or(1);
    let claim = caller.claim(max, 5_000);
    let tasks = tokio::select! {
        biased;
        tasks = claim => tasks.unwrap_or_default(),
        () = caller.sleep(patience) => {
            // Tasks that it may have claimed stay claimed until their leases expire.
            caller.journal.excuse(caller.process, Duration::ZERO);
            Vec::new()
        }
    };
    if tasks.is_empty() {
        caller.sleep(Duration::from_millis(500)).await;
    }
    join_all(tasks.iter().map(|task| handle(caller, trouble, task))).await;
}

async fn handle(caller: &Caller, trouble: &Trouble, task: &Task) {
    caller.sleep(caller.millis(0, WORK_MAX_MS)).await;
    if caller.engine.input(task).await.is_err() && !trouble.is_over() && caller.below(2) == 0 {
        let _ = caller.fail(task, FailureKind::Retryable).await;
        return;
    }
    // The delays of a delivery grow to hours, so it must not fail too often.
    let is_late = is_delivery(&task.task_type) && task.attempt > DELIVERY_TRIES;
    if trouble.is_over() || is_late {
        end_well(caller, task).await;
        return;
    }
    match caller.below(14) {
        0 | 1 => drop(caller.fail(task, FailureKind::Retryable).await),
        2 => drop(caller.fail(task, FailureKind::Permanent).await),
        3 => drop(caller.release(task).await),
        4 => drop(caller.snooze(task, caller.below(9_000)).await),
        5 | 6 => drop(caller.complete(task, large(caller.below(u64::MAX))).await),
        7 => {
            for _ in 0..=caller.below(4) {
                caller.sleep(Duration::from_secs(10)).await;
                match caller.renew(task).await {
                    Ok(renewed) if renewed.cancel_requested => {
                        let _ = caller.fail(task, FailureKind::Cancelled).await;
                        return;
                    }
                    Err(error) if error.is_lease_lost() => return,
                    _ => {}
                }
            }
            end_well(caller, task).await;
        }
        8 => {
            // It stalls for longer than its lease, and continues as a zombie.
            let stall = caller.millis(32_000, 80_000);
            caller.journal.excuse(caller.process, stall);
            caller.sleep(stall).await;
            match caller.below(4) {
                0 => drop(caller.renew(task).await),
                1 => drop(caller.fail(task, FailureKind::Retryable).await),
                2 => drop(caller.complete(task, large(caller.below(u64::MAX))).await),
                _ => drop(caller.complete(task, small(caller.below(9))).await),
            }
        }
        9 => {
            let _ = caller.progress(task).await;
            end_well(caller, task).await;
        }
        _ => end_well(caller, task).await,
    }
}

/// Completes, and retries while the reply is unknown.
async fn end_well(caller: &Caller, task: &Task) {
    let output = small(caller.below(1_000));
    for _ in 0..4 {
        match caller.complete(task, output.clone()).await {
            Err(error) if !error.is_lease_lost() => {
                caller.sleep(Duration::from_millis(200)).await;
            }
            _ => return,
        }
    }
}
