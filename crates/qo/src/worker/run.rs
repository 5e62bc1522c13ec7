//! What the parts of a running worker share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use qo_core::{QueueName, Shard, Task, TaskType, WorkerId};
use qo_direct::MaintenanceConfig;
use qo_engine::api::ClaimRequest;
use qo_store::runtime::Runtime;
use tokio::sync::watch;
use tracing::Instrument;

use super::attempt_supervisor::AttemptSupervisor;
use super::context::States;
use super::hooks::Hooks;
use super::report::Counters;
use super::runner::{RunIn, Runner};
use super::slots::{Running, Slot, Slots};
use super::{Outcome, TaskHandler};
use crate::error::Error;
use crate::queue::Queue;

/// A worker as it was built.
pub(super) struct Plan {
    pub(super) id: WorkerId,
    pub(super) queue: Queue,
    /// The queues to take from; all of them, if empty.
    pub(super) queues: Vec<QueueName>,
    /// The shards to take from; all of them, if empty.
    pub(super) shards: Vec<Shard>,
    /// By type and by alias.
    pub(super) handlers: BTreeMap<TaskType, Arc<dyn TaskHandler>>,
    pub(super) hooks: Hooks,
    pub(super) state: Arc<States>,
    pub(super) concurrency: usize,
    /// How long claims hold without a renewal; the engine's default, if there is no time.
    pub(super) lease_ms: Option<u64>,
    pub(super) shutdown_deadline: Duration,
    pub(super) grace: Duration,
    pub(super) run_in: RunIn,
    /// The maintenance that runs beside it, if any.
    pub(super) maintenance: Option<MaintenanceConfig>,
}

impl Plan {
    pub(super) fn runtime(&self) -> &Arc<dyn Runtime> {
        self.queue.runtime()
    }

    /// A wish for up to so many tasks.
    pub(super) fn wish(&self, max: usize, wait: Duration) -> ClaimRequest {
        ClaimRequest {
            worker: self.id.clone(),
            queues: self.queues.clone(),
            types: self.handlers.keys().cloned().collect(),
            shards: self.shards.clone(),
            max,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            lease_ms: self.lease_ms,
        }
    }
}

/// How far a worker's stop has come, as its attempts need to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// They run, whether new ones are claimed or not.
    Running,
    /// Handlers are told to stop, and dropped after this time.
    Stopping(Duration),
    /// Everything ends at once, and nothing more is written.
    Abandoned,
}

/// A worker that runs.
pub(super) struct Run {
    pub(super) plan: Arc<Plan>,
    pub(super) runner: Runner,
    pub(super) slots: Slots,
    pub(super) running: Running,
    pub(super) counters: Counters,
    pub(super) stage: watch::Sender<Stage>,
}

impl Run {
    pub(super) fn start(plan: &Arc<Plan>, run_in: RunIn) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            runner: Runner::start(run_in, plan.runtime(), plan.concurrency)?,
            slots: Slots::new(plan.concurrency),
            running: Running::default(),
            counters: Counters::default(),
            stage: watch::Sender::new(Stage::Running),
            plan: Arc::clone(plan),
        }))
    }

    /// Gives a task that was just claimed a supervisor of its own.
    pub(super) fn begin(self: &Arc<Self>, task: Task, slot: Slot) {
        let span = tracing::info_span!(
            "task",
            id = %task.id,
            task_type = %task.task_type,
            attempt = task.attempt,
            queue = %task.queue,
        );
        let since = task.started_at.unwrap_or(task.updated_at);
        let registered = self.running.register(task.id, task.attempt, since);
        let run = Arc::clone(self);
        let keeping = async move {
            let outcome = match AttemptSupervisor::new(&run, task, slot) {
                Some(supervisor) => supervisor.keep().await,
                None => Outcome::Abandoned,
            };
            run.counters.count(outcome);
            // Nobody who waits for this attempt's end sees it uncounted.
            drop(registered);
        };
        self.plan
            .runtime()
            .spawn(Box::pin(keeping.instrument(span)));
    }
}

/// Ends all attempts at once when it is dropped: whoever drops a worker that runs wants nothing to go on.
pub(super) struct Leash(pub(super) Arc<Run>);

impl Drop for Leash {
    fn drop(&mut self) {
        self.0.stage.send_replace(Stage::Abandoned);
    }
}

/// Waits until a stage satisfies a condition.
pub(super) async fn stage_is(
    stage: &mut watch::Receiver<Stage>,
    condition: impl Fn(Stage) -> bool,
) -> Stage {
    match stage.wait_for(|stage| condition(*stage)).await {
        Ok(stage) => *stage,
        // The worker is gone.
        Err(_) => Stage::Abandoned,
    }
}
