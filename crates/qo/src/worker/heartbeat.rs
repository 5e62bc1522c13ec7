//! Keeps the worker's record up to date. It is for display and for sharing work; correctness does not depend on it.

use std::sync::{Mutex, PoisonError};
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
    /// The time of the last heartbeat, and the CPU time of the process until then.
    last_cpu: Mutex<Option<(Duration, Duration)>>,
}

impl Heartbeat {
    pub(super) fn new(run: &WorkerRun, host: Option<String>) -> Self {
        Self {
            started_at: run.plan.queue.now(),
            host,
            last_cpu: Mutex::new(None),
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

    /// The CPU time since the last heartbeat in percent of one core; nothing at the first one.
    fn cpu_percent(&self, now: Duration, cpu: Duration) -> Option<u32> {
        let mut last = self.last_cpu.lock().unwrap_or_else(PoisonError::into_inner);
        let (last_at, last_cpu) = last.replace((now, cpu))?;
        let passed_ms = now.saturating_sub(last_at).as_millis();
        let used_ms = cpu.saturating_sub(last_cpu).as_millis();
        u32::try_from((used_ms * 100).checked_div(passed_ms)?).ok()
    }

    fn record(&self, run: &WorkerRun) -> WorkerInfo {
        let plan = &run.plan;
        let usage = plan.runtime().process_usage();
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
            cpu_percent: usage
                .and_then(|usage| self.cpu_percent(plan.runtime().monotonic(), usage.cpu)),
            memory_bytes: usage.map(|usage| usage.memory_bytes),
            current_task: tasks.first().copied(),
            current_tasks: tasks,
            tasks_completed: report.completed,
            tasks_failed: report.failures(),
            ..WorkerInfo::new(plan.id.clone(), self.started_at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_relative_to_the_last_heartbeat() {
        let heartbeat = Heartbeat {
            started_at: Timestamp::MIN,
            host: None,
            last_cpu: Mutex::new(None),
        };
        let at =
            |now, cpu| heartbeat.cpu_percent(Duration::from_secs(now), Duration::from_secs(cpu));
        assert_eq!(at(100, 3_000), None);
        assert_eq!(at(110, 3_005), Some(50));
        assert_eq!(at(120, 3_025), Some(200));
        assert_eq!(at(120, 3_025), None, "no time has passed");
        assert_eq!(at(130, 3_025), Some(0));
    }
}
