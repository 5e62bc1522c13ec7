//! Asks for work, as much as there is room for.
//!
//! A claim costs requests of its own beside those of its tasks, so that one is not sent for every slot that becomes free: a claim
//! is sent when a quarter of the slots is free, or when the first has been free for 20 ms.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use qo_core::Task;
use qo_core::limits::CLAIM_MAX_TASKS;
use qo_engine::EngineError;
use qo_store::world::WorldExt;
use tokio_util::sync::CancellationToken;

use super::Outcome;
use super::keeper::{PAUSE_MAX, PAUSE_MIN};
use super::run::Run;
use crate::error::Error;

/// A claim is sent when this part of the slots is free,
const FREE_PART: usize = 4;
/// or when one has been free for so long.
const GATHER: Duration = Duration::from_millis(20);
/// How long a claim waits for the first task. Direct mode sends no request more for a claim that is repeated, and a claim on its
/// way is waited for when the worker stops.
const WAIT_DIRECT: Duration = Duration::from_secs(1);
const WAIT_ELSEWHERE: Duration = Duration::from_secs(5);
/// How many tasks that came too late are given back at once.
const RELEASES_AT_ONCE: usize = 32;

/// Claims tasks and starts them, until it is told to stop. A claim on its way is never dropped: its tasks would be nobody's until
/// their leases run out. What it brings after the stop is given back.
pub(super) async fn claim_until(run: &Arc<Run>, stopping: &CancellationToken) {
    let mut pause = PAUSE_MIN;
    let mut told_paused = false;
    let wait = if run.plan.queue.objects_engine().is_some() {
        WAIT_DIRECT
    } else {
        WAIT_ELSEWHERE
    };
    loop {
        tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            () = wait_for_room(run) => {}
        }
        let max = run.slots.free().min(CLAIM_MAX_TASKS);
        let rest = match run.plan.queue.claim(&run.plan.wish(max, wait)).await {
            Ok(tasks) if stopping.is_cancelled() => {
                give_back(run, tasks).await;
                return;
            }
            Ok(tasks) => {
                pause = PAUSE_MIN;
                told_paused = false;
                for task in tasks {
                    run.begin(task);
                }
                continue;
            }
            // The claim has waited already, but an engine that knows at once does not.
            Err(error @ Error::Engine(EngineError::QueuePaused { .. })) => {
                if !told_paused {
                    tracing::info!(%error, "waiting until a queue is resumed");
                }
                told_paused = true;
                PAUSE_MIN
            }
            Err(error) => {
                let part = 0.5 + 0.5 * run.plan.world().random_unit();
                let rest = pause.mul_f64(part);
                pause = (pause * 2).min(PAUSE_MAX);
                tracing::warn!(%error, "could not claim; trying again in {rest:?}");
                rest
            }
        };
        tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            () = run.plan.world().sleep(rest) => {}
        }
    }
}

/// Waits until a claim is worth its requests.
async fn wait_for_room(run: &Run) {
    run.slots.wait_for(1).await;
    let enough = run.slots.total().div_ceil(FREE_PART);
    tokio::select! {
        biased;
        () = run.slots.wait_for(enough) => {}
        () = run.plan.world().sleep(GATHER) => {}
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
