//! Keeps the worker's record up to date. It is for display and for sharing work; correctness does not depend on it.

use std::time::Duration;

use qo_core::{Shard, Timestamp};
use qo_engine::api::WorkerInfo;
use qo_store::runtime::RuntimeExt;

use super::run::WorkerRun;

/// Interval, with 10 % jitter so that workers that started together spread out. It is long because each heartbeat is a write, and
/// a version in a versioned bucket.
const INTERVAL: Duration = Duration::from_secs(15);
/// Maximum number of running tasks in the record.
const TASKS_MAX: usize = 1_000;

/// Writes the worker's record.
pub(super) struct Heartbeat {
    started_at: Timestamp,
    host: Option<String>,
}

impl Heartbeat {
    pub(super) fn new(run: &WorkerRun, host: Option<String>) -> Self {
        Self {
            started_at: run.plan.queue.now(),
            host,
        }
    }

    /// Writes the record once, and follows what an operator asks for.
    pub(super) async fn beat(&self, run: &WorkerRun) {
        match run.plan.queue.heartbeat(&self.record(run)).await {
            Ok(request) => run.plan.requests.set(request),
            Err(error) => {
                tracing::warn!(%error, "could not write the heartbeat; trying again at the next one");
            }
        }
    }

    /// Writes the record at each interval.
    pub(super) async fn run(&self, run: &WorkerRun) {
        loop {
            let factor = 0.9 + 0.2 * run.plan.runtime().random_unit();
            run.plan.runtime().sleep(INTERVAL.mul_f64(factor)).await;
            self.beat(run).await;
        }
    }

    fn record(&self, run: &WorkerRun) -> WorkerInfo {
        let plan = &run.plan;
        let report = run.counters.report();
        let mut tasks = run.running.tasks();
        tasks.truncate(TASKS_MAX);
        WorkerInfo {
            last_heartbeat: plan.queue.now(),
            shards: if plan.shards.is_empty() {
                Shard::all().collect()
            } else {
                plan.shards.clone()
            },
            queues: plan.queues.clone(),
            types: plan.handlers.keys().cloned().collect(),
            slots: u32::try_from(plan.concurrency).unwrap_or(u32::MAX),
            host: self.host.clone(),
            current_task: tasks.first().copied(),
            current_tasks: tasks,
            tasks_completed: report.completed,
            tasks_failed: report.failures(),
            ..WorkerInfo::new(plan.id.clone(), self.started_at)
        }
    }
}
