//! State that the parts of a running worker share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use qo_core::{QueueName, Shard, Task, TaskType, WorkerId};
use qo_direct::MaintenanceConfig;
use qo_engine::api::ClaimRequest;
use qo_store::runtime::Runtime;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tracing::Instrument;

use super::attempt_supervisor::AttemptSupervisor;
use super::batch::Gatherer;
use super::context::SharedValues;
use super::home::queue_at;
use super::hooks::Hooks;
use super::idleness::Idleness;
use super::report::OutcomeCounters;
use super::runner::{RunIn, Runner};
use super::slots::{RunningAttempts, Slot, Slots};
use super::{AttemptOutcome, TaskHandler, WorkerRequests};
use crate::error::Error;
use crate::queue::Queue;

/// The configuration of a worker.
pub(super) struct Plan {
    pub(super) id: WorkerId,
    pub(super) queue: Queue,
    /// The queues to claim from; all, if empty.
    pub(super) queues: Vec<QueueName>,
    /// The shards to claim from; all, if empty.
    pub(super) shards: Vec<Shard>,
    /// By task type and alias.
    pub(super) handlers: BTreeMap<TaskType, Arc<dyn TaskHandler>>,
    pub(super) hooks: Hooks,
    pub(super) state: Arc<SharedValues>,
    pub(super) concurrency: usize,
    /// Duration of leases; `None` for the engine's default.
    pub(super) lease_ms: Option<u64>,
    pub(super) shutdown_deadline: Duration,
    pub(super) grace: Duration,
    /// How much of the log of an attempt is kept.
    pub(super) log_max_bytes: usize,
    pub(super) run_in: RunIn,
    /// The maintenance that runs in this worker, if any.
    pub(super) maintenance: Option<MaintenanceConfig>,
    pub(super) idleness: Idleness,
    pub(super) requests: WorkerRequests,
    pub(super) batches: Batches,
    /// Whether the worker fires the queue's schedules.
    pub(super) drives_schedules: bool,
}

/// The handlers of batches, by task type and alias.
pub(super) struct Batches(BTreeMap<TaskType, Arc<dyn Gatherer>>);

impl Batches {
    pub(super) fn new(handlers: &[Arc<dyn Gatherer>]) -> Result<Self, Error> {
        let mut by_type = BTreeMap::new();
        for handler in handlers {
            for name in handler.types() {
                by_type.insert(TaskType::new(&name)?, Arc::clone(handler));
            }
        }
        Ok(Self(by_type))
    }

    fn of(&self, task: &Task) -> Option<&Arc<dyn Gatherer>> {
        self.0.get(&task.task_type)
    }

    /// Tells the handlers whether batches should wait for more tasks.
    pub(super) fn set_hurried(&self, is_hurried: bool) {
        for handler in self.0.values() {
            handler.set_hurried(is_hurried);
        }
    }
}

impl Plan {
    pub(super) fn runtime(&self) -> &Arc<dyn Runtime> {
        self.queue.runtime()
    }

    /// A claim request for up to `max` tasks.
    pub(super) fn claim_request(&self, max: usize, wait: Duration) -> ClaimRequest {
        ClaimRequest {
            worker: self.id.clone(),
            queues: self.queues.clone(),
            types: self.handlers.keys().cloned().collect(),
            shards: self.shards.clone(),
            max,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            lease_ms: self.lease_ms,
            in_order: false,
        }
    }
}

/// The phase of a worker's shutdown, for its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShutdownPhase {
    /// Attempts run, whether new tasks are claimed or not.
    Running,
    /// Handlers are asked to stop, and dropped after this time.
    Stopping(Duration),
    /// Attempts end at once, and nothing more is stored.
    Abandoned,
}

/// A running worker.
pub(super) struct WorkerRun {
    pub(super) plan: Arc<Plan>,
    pub(super) runner: Runner,
    /// The queue that handlers use.
    pub(super) handler_queue: Queue,
    pub(super) slots: Slots,
    pub(super) running: RunningAttempts,
    pub(super) counters: OutcomeCounters,
    pub(super) phase: watch::Sender<ShutdownPhase>,
}

impl WorkerRun {
    pub(super) fn start(plan: &Arc<Plan>, run_in: RunIn) -> Result<Arc<Self>, Error> {
        let home = match run_in {
            RunIn::Threads => Handle::try_current().ok(),
            RunIn::Runtime => None,
        };
        Ok(Arc::new(Self {
            handler_queue: match home {
                Some(home) => queue_at(home, &plan.queue),
                None => plan.queue.clone(),
            },
            runner: Runner::start(run_in, plan.runtime(), plan.concurrency)?,
            slots: Slots::new(plan.concurrency),
            running: RunningAttempts::default(),
            counters: OutcomeCounters::default(),
            phase: watch::Sender::new(ShutdownPhase::Running),
            plan: Arc::clone(plan),
        }))
    }

    /// Starts the supervisor of a claimed task.
    pub(super) fn begin(self: &Arc<Self>, task: Task, slot: Slot) {
        let span = tracing::info_span!(
            "task",
            id = %task.id,
            task_type = %task.task_type,
            attempt = task.attempt,
            queue = %task.queue,
        );
        let since = task.started_at.unwrap_or(task.updated_at);
        let guard = self.running.register(task.id, task.attempt, since);
        let run = Arc::clone(self);
        self.plan.idleness.began();
        let (id, attempt) = (task.id, task.attempt);
        let batch = self.plan.batches.of(&task).cloned();
        if let Some(batch) = &batch {
            batch.expect(id, attempt);
        }
        let supervising = async move {
            let outcome = match AttemptSupervisor::new(&run, task, slot) {
                Some(supervisor) => supervisor.run().await,
                None => AttemptOutcome::Abandoned,
            };
            if let Some(batch) = batch {
                batch.ended(id, attempt);
            }
            run.counters.count(outcome);
            // Dropped after the count, so that the count includes every attempt that has ended.
            drop(guard);
            run.plan.idleness.ended();
        };
        self.plan
            .runtime()
            .spawn(Box::pin(supervising.instrument(span)));
    }
}

/// Abandons all attempts when dropped, so that nothing continues after a running worker was dropped.
pub(super) struct AbandonOnDrop(pub(super) Arc<WorkerRun>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.phase.send_replace(ShutdownPhase::Abandoned);
    }
}

/// Waits until the phase satisfies a condition.
pub(super) async fn wait_for_phase(
    phase: &mut watch::Receiver<ShutdownPhase>,
    condition: impl Fn(ShutdownPhase) -> bool,
) -> ShutdownPhase {
    match phase.wait_for(|phase| condition(*phase)).await {
        Ok(phase) => *phase,
        // The worker was dropped.
        Err(_) => ShutdownPhase::Abandoned,
    }
}
