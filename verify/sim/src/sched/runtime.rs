//! The runtime of one process, through which the simulator drives the production code.

use std::sync::Arc;
use std::time::Duration;

use qo_core::Timestamp;
use qo_store::runtime::{BoxFuture, Runtime};

use super::{ProcessId, Scheduler, true_time};

/// Time, sleeping, spawning and randomness of one process.
#[derive(Debug)]
pub struct SimRuntime {
    scheduler: Scheduler,
    process: ProcessId,
}

impl SimRuntime {
    /// The runtime of a process.
    pub fn of(scheduler: &Scheduler, process: ProcessId) -> Arc<Self> {
        Arc::new(Self {
            scheduler: scheduler.clone(),
            process,
        })
    }
}

impl Runtime for SimRuntime {
    fn now(&self) -> Timestamp {
        let state = self.scheduler.state();
        let ahead_ms = state
            .processes
            .get(&self.process)
            .map_or(0, |process| process.clock_ahead_ms);
        Timestamp::from_millis(true_time(state.now).as_millis() + ahead_ms)
    }

    fn monotonic(&self) -> Duration {
        self.scheduler.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        Box::pin(self.scheduler.sleep(duration))
    }

    fn spawn(&self, future: BoxFuture<()>) {
        self.scheduler.spawn(self.process, future);
    }

    fn random(&self) -> u64 {
        let mut state = self.scheduler.state();
        let process = state.processes.get_mut(&self.process);
        process.map_or(0, |process| process.random.bits())
    }
}
