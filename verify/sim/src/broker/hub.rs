//! The running brokers. There can be two: one that has taken over, and one that does not know it yet.

use std::sync::Mutex;

use qo_broker::BrokerEngine;

use crate::sched::{ProcessId, lock};

/// A broker that serves, or believes so.
#[derive(Debug, Clone)]
pub struct Serving {
    /// Its process.
    pub process: ProcessId,
    /// Its engine.
    pub engine: BrokerEngine,
}

/// The brokers of a run.
#[derive(Debug, Default)]
pub struct Hub {
    brokers: Mutex<Vec<Serving>>,
}

impl Hub {
    /// Adds a broker as the newest.
    pub fn join(&self, broker: Serving) {
        lock(&self.brokers).push(broker);
    }

    /// Removes a broker.
    pub fn leave(&self, process: ProcessId) {
        lock(&self.brokers).retain(|broker| broker.process != process);
    }

    /// The broker that took over last.
    pub fn newest(&self) -> Option<Serving> {
        lock(&self.brokers).last().cloned()
    }

    /// A broker by its process, if it runs.
    pub fn find(&self, process: ProcessId) -> Option<Serving> {
        let brokers = lock(&self.brokers);
        let mut brokers = brokers.iter();
        brokers.find(|broker| broker.process == process).cloned()
    }
}
