//! The calls of a run, and what its processes did on purpose.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_check::{Call, CallClock, CallLog, CallerId};

use crate::sched::{ProcessId, Scheduler, lock};

impl CallClock for Scheduler {
    fn tick(&self) -> u64 {
        Self::tick(self)
    }

    fn trace(&self, caller: CallerId, line: &dyn Fn() -> String) {
        self.note(caller, line);
    }
}

/// The journal of a run, shared by all of its processes.
#[derive(Debug)]
pub struct Journal {
    scheduler: Scheduler,
    log: CallLog,
    excuses: Mutex<Vec<(ProcessId, Duration, Duration)>>,
}

impl Journal {
    /// An empty journal.
    pub fn new(scheduler: &Scheduler) -> Self {
        Self {
            scheduler: scheduler.clone(),
            log: CallLog::new(Arc::new(scheduler.clone())),
            excuses: Mutex::default(),
        }
    }

    /// The log of the calls.
    pub fn log(&self) -> CallLog {
        self.log.clone()
    }

    /// All calls, in the order in which they were made.
    pub fn calls(&self) -> Vec<Call> {
        self.log.calls()
    }

    /// Records that a process is about to lose an attempt on purpose.
    pub fn excuse(&self, process: ProcessId, lasts: Duration) {
        let now = self.scheduler.elapsed();
        lock(&self.excuses).push((process, now, now + lasts));
    }

    /// The processes that lost attempts on purpose, each with the start and the end.
    pub fn excuses(&self) -> Vec<(ProcessId, Duration, Duration)> {
        lock(&self.excuses).clone()
    }
}
