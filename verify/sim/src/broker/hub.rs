//! The running brokers, what the record in the store says about them, and who has acknowledged what.

use std::sync::{Arc, Mutex};

use qo_broker::election::{BrokerRecord, LeaderGate};
use qo_core::keys::BROKER_KEY;

use crate::sched::{ProcessId, lock};
use crate::store::Bucket;

/// A process that serves the queue, or stands by.
#[derive(Debug, Clone)]
pub struct BrokerSeat {
    /// The process.
    pub process: ProcessId,
    /// Where others reach it. The next life of a broker has the same address.
    pub address: String,
    /// The id of this life.
    pub id: String,
    /// Its engine, while it leads.
    pub gate: Arc<LeaderGate>,
}

/// The brokers of a run.
#[derive(Debug)]
pub struct Hub {
    bucket: Arc<Bucket>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    brokers: Vec<BrokerSeat>,
    /// The newest epoch in which a broker that was sure to lead responded.
    newest_epoch: u64,
    /// The epoch of the first late response, and the newest epoch at that time.
    outdated: Option<(u64, u64)>,
}

impl Hub {
    /// No brokers so far.
    pub fn new(bucket: &Arc<Bucket>) -> Self {
        Self {
            bucket: Arc::clone(bucket),
            state: Mutex::default(),
        }
    }

    /// Adds a broker.
    pub fn join(&self, broker: BrokerSeat) {
        lock(&self.state).brokers.push(broker);
    }

    /// Removes a broker that has died.
    pub fn leave(&self, process: ProcessId) {
        let mut state = lock(&self.state);
        state.brokers.retain(|broker| broker.process != process);
    }

    /// The running brokers.
    pub fn brokers(&self) -> Vec<BrokerSeat> {
        lock(&self.state).brokers.clone()
    }

    /// A broker by its process, if it runs.
    pub fn find(&self, process: ProcessId) -> Option<BrokerSeat> {
        let state = lock(&self.state);
        let mut brokers = state.brokers.iter();
        brokers.find(|broker| broker.process == process).cloned()
    }

    /// The broker at an address, if one runs there.
    pub fn at(&self, address: &str) -> Option<BrokerSeat> {
        let state = lock(&self.state);
        let mut brokers = state.brokers.iter();
        brokers.find(|broker| broker.address == address).cloned()
    }

    /// The record in the store.
    pub fn record(&self) -> Option<BrokerRecord> {
        let body = self.bucket.body(BROKER_KEY)?;
        serde_json::from_slice(&body).ok()
    }

    /// The leader that the record in the store names, if it runs.
    pub fn leader(&self) -> Option<BrokerSeat> {
        let holder = self.record()?.holder?;
        let state = lock(&self.state);
        let mut brokers = state.brokers.iter();
        brokers.find(|broker| broker.id == holder.id).cloned()
    }

    /// Records a response of a broker that was sure to lead in this epoch. Only one broker at a time may be sure.
    pub fn responded(&self, epoch: u64) {
        let mut state = lock(&self.state);
        let newest = state.newest_epoch;
        if epoch < newest {
            state.outdated.get_or_insert((epoch, newest));
        }
        state.newest_epoch = newest.max(epoch);
    }

    /// The first response of a leader after its successor had responded: its epoch and that of the successor.
    pub fn outdated_response(&self) -> Option<(u64, u64)> {
        lock(&self.state).outdated
    }
}
