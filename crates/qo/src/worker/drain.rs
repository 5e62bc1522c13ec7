//! Runs everything that is due and returns: for tests and batch programs.

use std::time::Duration;

use qo_core::limits::CLAIM_MAX_TASKS;
use qo_engine::EngineError;

use super::run::{AbandonOnDrop, WorkerRun};
use super::runner::RunIn;
use super::{DrainReport, Worker};
use crate::error::Error;

/// With more attempts than this, handlers probably submit tasks endlessly.
const ATTEMPTS_MAX: u64 = 100_000;

impl Worker {
    /// Runs all due tasks, including those that handlers submit meanwhile, until none is due. Leaves retries and snoozed tasks that
    /// are due later. Returns the number of attempts by outcome.
    ///
    /// Handlers run on the caller's runtime, and the worker does not register itself. Other workers may run at the same time.
    pub async fn drain(&self) -> Result<DrainReport, Error> {
        let run = WorkerRun::start(&self.plan, RunIn::Runtime)?;
        let _guard = AbandonOnDrop(std::sync::Arc::clone(&run));
        let mut started: u64 = 0;
        loop {
            if run.slots.free() == 0 {
                // Nothing is claimed before an attempt ends, so no batch gets more.
                self.plan.batches.set_hurried(true);
            }
            run.slots.wait_for(1).await;
            // Read before the claim: an attempt that ends later may submit a task that the claim does not see.
            let running = run.running.count();
            let max = run.slots.free().min(CLAIM_MAX_TASKS);
            let tasks = match self
                .plan
                .queue
                .claim(&self.plan.claim_request(max, Duration::ZERO))
                .await
            {
                Ok(tasks) => tasks,
                Err(Error::Engine(EngineError::QueuePaused { .. })) => Vec::new(),
                Err(error) => return Err(error),
            };
            self.plan.batches.set_hurried(tasks.is_empty());
            if tasks.is_empty() {
                match running.checked_sub(1) {
                    None => return Ok(run.counters.report()),
                    Some(fewer) => run.running.wait_for(fewer).await,
                }
            }
            started += tasks.len() as u64;
            for task in tasks {
                run.begin(task, run.slots.take());
            }
            if started > ATTEMPTS_MAX {
                return Err(Error::EndlessDrain { attempts: started });
            }
        }
    }
}
