//! Asks for work, as much as there is room for.
//!
//! A claim costs requests of its own beside those of its tasks, so that one is not sent for every slot that becomes free: a claim
//! is sent when a quarter of the slots is free, or when the first has been free for 20 ms. A claim takes a few requests, one after
//! the other; slots that become free meanwhile do not wait for its end, and are filled by another one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use qo_core::Task;
use qo_core::limits::CLAIM_MAX_TASKS;
use qo_engine::EngineError;
use qo_store::runtime::RuntimeExt;
use tokio_util::sync::CancellationToken;

use super::Outcome;
use super::attempt_supervisor::{PAUSE_MAX, PAUSE_MIN};
use super::run::Run;
use super::slots::Slot;
use crate::error::Error;

/// A claim is sent when this part of the slots is free,
const FREE_PART: usize = 4;
/// or when one has been free for so long.
const GATHER: Duration = Duration::from_millis(20);
/// How many claims are on their way at once.
const CLAIMS_AT_ONCE: usize = 4;
/// How long a claim waits for the first task. Direct mode sends no request more for a claim that is repeated, and a claim on its
/// way is waited for when the worker stops.
const WAIT_DIRECT: Duration = Duration::from_secs(1);
const WAIT_ELSEWHERE: Duration = Duration::from_secs(2);
/// How many tasks that came too late are given back at once.
const RELEASES_AT_ONCE: usize = 32;

/// Claims tasks and starts them, until it is told to stop. A claim on its way is never dropped: its tasks would be nobody's until
/// their leases run out. What it brings after the stop is given back.
pub(super) async fn claim_until(run: &Arc<Run>, stopping: &CancellationToken) {
    let mut claiming = FuturesUnordered::new();
    let mut pace = Pace {
        rest: Duration::ZERO,
        pause: PAUSE_MIN,
        told_paused: false,
    };
    loop {
        let has_room = claiming.len() < CLAIMS_AT_ONCE;
        tokio::select! {
            biased;
            () = stopping.cancelled() => break,
            Some((slots, claimed)) = claiming.next() => {
                let tasks = pace.see(run, claimed);
                for (task, slot) in tasks.into_iter().zip(slots) {
                    run.begin(task, slot);
                }
            }
            () = wait_for_room(run, pace.rest), if has_room => claiming.push(claim(run)),
        }
    }
    while let Some((_, claimed)) = claiming.next().await {
        match claimed {
            Ok(tasks) => give_back(run, tasks).await,
            Err(error) => tracing::debug!(%error, "the last claim brought nothing"),
        }
    }
}

/// Claims tasks for all slots that are free. They are taken at once, so that the next claim is for others.
fn claim(run: &Run) -> impl Future<Output = (Vec<Slot>, Result<Vec<Task>, Error>)> {
    let max = run.slots.free().min(CLAIM_MAX_TASKS);
    let slots: Vec<Slot> = (0..max).map(|_| run.slots.take()).collect();
    let wait = if run.plan.queue.objects_engine().is_some() {
        WAIT_DIRECT
    } else {
        WAIT_ELSEWHERE
    };
    async move {
        let claimed = run.plan.queue.claim(&run.plan.wish(max, wait)).await;
        (slots, claimed)
    }
}

/// How fast claims follow each other.
struct Pace {
    /// How long to wait before the next one.
    rest: Duration,
    /// How long to wait after the next failure.
    pause: Duration,
    told_paused: bool,
}

impl Pace {
    /// The tasks that a claim has brought. After a failure the next one waits.
    fn see(&mut self, run: &Run, claimed: Result<Vec<Task>, Error>) -> Vec<Task> {
        match claimed {
            Ok(tasks) => {
                self.rest = Duration::ZERO;
                self.pause = PAUSE_MIN;
                self.told_paused = false;
                tasks
            }
            // The claim has waited already.
            Err(error @ Error::Engine(EngineError::QueuePaused { .. })) => {
                if !self.told_paused {
                    tracing::info!(%error, "waiting until a queue is resumed");
                }
                self.told_paused = true;
                self.rest = PAUSE_MIN;
                Vec::new()
            }
            Err(error) => {
                let part = 0.5 + 0.5 * run.plan.runtime().random_unit();
                self.rest = self.pause.mul_f64(part);
                self.pause = (self.pause * 2).min(PAUSE_MAX);
                tracing::warn!(%error, "could not claim; trying again in {:?}", self.rest);
                Vec::new()
            }
        }
    }
}

/// Waits until a claim is worth its requests, and for the rest that it needs.
async fn wait_for_room(run: &Run, rest: Duration) {
    if !rest.is_zero() {
        run.plan.runtime().sleep(rest).await;
    }
    run.slots.wait_for(1).await;
    let enough = run.slots.total().div_ceil(FREE_PART);
    tokio::select! {
        biased;
        () = run.slots.wait_for(enough) => {}
        () = run.plan.runtime().sleep(GATHER) => {}
    }
}

/// Gives tasks back that were claimed while the worker stopped.
async fn give_back(run: &Run, tasks: Vec<Task>) {
    futures_util::stream::iter(tasks)
        .for_each_concurrent(RELEASES_AT_ONCE, |task| async move {
            let Some(lease) = task.lease_id else { return };
            let outcome = match run.plan.queue.release(task.id, lease).await {
                Ok(_) => Outcome::Released,
                Err(error) => {
                    tracing::warn!(id = %task.id, %error, "could not give a task back; its lease runs out by itself");
                    Outcome::Abandoned
                }
            };
            run.counters.count(outcome);
        })
        .await;
}
