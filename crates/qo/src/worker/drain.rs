//! Does everything that is due, in the caller's own time and place: for tests, and for programs that work off what there is.

use std::time::Duration;

use qo_core::limits::CLAIM_MAX_TASKS;
use qo_engine::EngineError;

use super::run::{Leash, Run};
use super::runner::RunIn;
use super::{DrainReport, Worker};
use crate::error::Error;

/// More attempts than this are taken for handlers that submit one another without an end.
const ATTEMPTS_MAX: u64 = 100_000;

impl Worker {
    /// Runs every task that is due, and those that their handlers submit meanwhile, until nothing is due; a retry or a snooze that
    /// is due later is left for later. Says how many attempts came to which end.
    ///
    /// Handlers run where the caller's runtime runs everything, and the worker does not say of itself that it is there. Other workers
    /// may run beside it.
    pub async fn drain(&self) -> Result<DrainReport, Error> {
        let run = Run::start(&self.plan, RunIn::Runtime)?;
        let _leash = Leash(std::sync::Arc::clone(&run));
        let mut begun: u64 = 0;
        loop {
            run.slots.wait_for(1).await;
            // Seen before the claim: an attempt that ends after it may have submitted something that the claim did not see.
            let running = run.running.count();
            let max = run.slots.free().min(CLAIM_MAX_TASKS);
            let tasks = match self
                .plan
                .queue
                .claim(&self.plan.wish(max, Duration::ZERO))
                .await
            {
                Ok(tasks) => tasks,
                Err(Error::Engine(EngineError::QueuePaused { .. })) => Vec::new(),
                Err(error) => return Err(error),
            };
            if tasks.is_empty() {
                match running.checked_sub(1) {
                    None => return Ok(run.counters.report()),
                    Some(fewer) => run.running.wait_for(fewer).await,
                }
            }
            begun += tasks.len() as u64;
            for task in tasks {
                run.begin(task, run.slots.take());
            }
            if begun > ATTEMPTS_MAX {
                return Err(Error::EndlessDrain { attempts: begun });
            }
        }
    }
}
