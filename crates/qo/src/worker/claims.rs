//! Claims tasks for the free slots.
//!
//! Each claim costs requests in addition to those of its tasks. It is therefore sent when a quarter of the slots is free, or when one slot
//! has been free for 20 ms, and not for every slot. A claim takes several requests in sequence; slots that become free meanwhile are
//! filled by another claim.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use qo_core::Task;
use qo_core::limits::CLAIM_MAX_TASKS;
use qo_engine::EngineError;
use qo_store::runtime::RuntimeExt;
use tokio_util::sync::CancellationToken;

use super::AttemptOutcome;
use super::attempt_supervisor::{PAUSE_MAX, PAUSE_MIN};
use super::run::WorkerRun;
use super::slots::Slot;
use crate::error::Error;

/// A claim is sent when one slot in this number is free,
const FREE_PART: usize = 4;
/// or when a slot has been free for this time.
const GATHER_TIME: Duration = Duration::from_millis(20);
/// Maximum number of concurrent claims.
const CLAIMS_MAX: usize = 4;
/// How long a claim waits for its first task. A stop waits for claims under way, so it is short where repeating a claim costs no
/// more requests, as in direct mode.
const WAIT_DIRECT: Duration = Duration::from_secs(1);
const WAIT_OTHER: Duration = Duration::from_secs(2);
/// Maximum number of concurrent releases of tasks that were claimed during a stop.
const RELEASES_MAX: usize = 32;

/// Claims and starts tasks until `stopping` is cancelled, and pauses while an operator asks the worker to be quiet. A claim under way
/// is never dropped, because its tasks would be blocked until their leases expire. Tasks that arrive after the stop, or while it is
/// quiet, are released.
pub(super) async fn claim_until(run: &Arc<WorkerRun>, stopping: &CancellationToken) {
    let mut claiming = FuturesUnordered::new();
    let mut pacing = ClaimPacing {
        delay: Duration::ZERO,
        backoff: PAUSE_MIN,
        has_logged_pause: false,
    };
    let mut requests = run.plan.requests.changes();
    loop {
        let can_claim = claiming.len() < CLAIMS_MAX && !run.plan.requests.is_quiet();
        tokio::select! {
            biased;
            () = stopping.cancelled() => break,
            // A batch does not wait for tasks that nobody claims.
            Ok(()) = requests.changed() => run.plan.batches.set_hurried(run.plan.requests.is_quiet()),
            Some(EndedClaim { result, unwanted }) = claiming.next() => {
                pacing.accept(run, result);
                release_all(run, unwanted).await;
            }
            () = wait_for_slots(run, pacing.delay), if can_claim => claiming.push(claim(run, stopping)),
        }
    }
    // The tasks of claims under way are released, so no batch gets more.
    run.plan.batches.set_hurried(true);
    while let Some(EndedClaim { result, unwanted }) = claiming.next().await {
        if let Err(error) = result {
            tracing::debug!(%error, "the last claim failed");
        }
        release_all(run, unwanted).await;
    }
}

/// A claim that has ended.
struct EndedClaim {
    /// The number of claimed tasks.
    result: Result<usize, Error>,
    /// Tasks that arrived after the stop or while the worker is quiet, or that the engine returned beyond the requested number.
    unwanted: Vec<Task>,
}

/// Claims tasks for all free slots, and starts each as soon as it is claimed. The slots are taken before the claim is sent, so that
/// the next claim uses others.
fn claim(run: &Arc<WorkerRun>, stopping: &CancellationToken) -> impl Future<Output = EndedClaim> {
    let max = run.slots.free().min(CLAIM_MAX_TASKS);
    let mut slots: Vec<Slot> = (0..max).map(|_| run.slots.take()).collect();
    let wait = if run.plan.queue.direct_engine().is_some() {
        WAIT_DIRECT
    } else {
        WAIT_OTHER
    };
    async move {
        let mut count = 0;
        let mut unwanted = Vec::new();
        let begin = |task| {
            count += 1;
            match slots.pop() {
                Some(slot) if !stopping.is_cancelled() && !run.plan.requests.is_quiet() => {
                    run.begin(task, slot);
                }
                _ => unwanted.push(task),
            }
        };
        let request = run.plan.claim_request(max, wait);
        let result = run.plan.queue.claim_each(&request, begin).await;
        EndedClaim {
            result: result.map(|()| count),
            unwanted,
        }
    }
}

/// The delay between claims.
struct ClaimPacing {
    /// Delay before the next claim.
    delay: Duration,
    /// Delay after the next failure.
    backoff: Duration,
    has_logged_pause: bool,
}

impl ClaimPacing {
    /// Records the result of a claim. A failure delays the next one.
    fn accept(&mut self, run: &WorkerRun, claimed: Result<usize, Error>) {
        let is_empty = match &claimed {
            Ok(count) => *count == 0,
            Err(error) => matches!(error, Error::Engine(EngineError::QueuePaused { .. })),
        };
        run.plan.idleness.claimed(is_empty);
        match claimed {
            Ok(_) => {
                self.delay = Duration::ZERO;
                self.backoff = PAUSE_MIN;
                self.has_logged_pause = false;
            }
            // The claim itself has waited.
            Err(error @ Error::Engine(EngineError::QueuePaused { .. })) => {
                if !self.has_logged_pause {
                    tracing::info!(%error, "waiting for a queue to be resumed");
                }
                self.has_logged_pause = true;
                self.delay = PAUSE_MIN;
            }
            Err(error) => {
                let factor = 0.5 + 0.5 * run.plan.runtime().random_unit();
                self.delay = self.backoff.mul_f64(factor);
                self.backoff = (self.backoff * 2).min(PAUSE_MAX);
                tracing::warn!(%error, "could not claim; trying again in {:?}", self.delay);
            }
        }
    }
}

/// Waits for the delay, and until a claim is worth its requests.
async fn wait_for_slots(run: &WorkerRun, delay: Duration) {
    if !delay.is_zero() {
        run.plan.runtime().sleep(delay).await;
    }
    run.slots.wait_for(1).await;
    let enough = run.slots.total().div_ceil(FREE_PART);
    tokio::select! {
        biased;
        () = run.slots.wait_for(enough) => {}
        () = run.plan.runtime().sleep(GATHER_TIME) => {}
    }
}

/// Releases tasks that were claimed while the worker stopped.
async fn release_all(run: &WorkerRun, tasks: Vec<Task>) {
    futures_util::stream::iter(tasks)
        .for_each_concurrent(RELEASES_MAX, |task| async move {
            let Some(lease) = task.lease_id else { return };
            let outcome = match run.plan.queue.release(task.id, lease).await {
                Ok(_) => AttemptOutcome::Released,
                Err(error) => {
                    tracing::warn!(id = %task.id, %error, "could not release a task; it is retried when its lease expires");
                    AttemptOutcome::Abandoned
                }
            };
            run.counters.count(outcome);
        })
        .await;
}
