//! Says that the worker is there. Nothing correct rests on it: it is there to be looked at, and to spread work.

use std::time::Duration;

use qo_core::{Shard, Timestamp};
use qo_engine::api::WorkerInfo;
use qo_store::runtime::RuntimeExt;

use super::run::Run;

/// How often, give or take a tenth, so that workers that started together do not stay together. Not more often, because each is a
/// write, and in a versioned bucket a version.
const INTERVAL: Duration = Duration::from_secs(15);
/// How many running tasks are named.
const TASKS_MAX: usize = 1_000;

/// The worker's record, and what it says.
pub(super) struct Heart {
    started_at: Timestamp,
    host: Option<String>,
}

impl Heart {
    pub(super) fn new(run: &Run, host: Option<String>) -> Self {
        Self {
            started_at: run.plan.queue.now(),
            host,
        }
    }

    /// Says that the worker is there.
    pub(super) async fn beat(&self, run: &Run) {
        if let Err(error) = run.plan.queue.heartbeat(&self.record(run)).await {
            tracing::warn!(%error, "could not say that this worker is there; trying again with the next heartbeat");
        }
    }

    /// Says it again and again.
    pub(super) async fn keep_beating(&self, run: &Run) {
        loop {
            let part = 0.9 + 0.2 * run.plan.runtime().random_unit();
            run.plan.runtime().sleep(INTERVAL.mul_f64(part)).await;
            self.beat(run).await;
        }
    }

    fn record(&self, run: &Run) -> WorkerInfo {
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
