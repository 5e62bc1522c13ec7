//! Holds requests back until somebody says which is next, so that every order can be tried.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use tokio::sync::oneshot;

use crate::sched::{ProcessId, lock};

/// Where requests wait.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<u64, Waiting>,
    arrived: u64,
    /// What each process has seen so far, in order. It decides everything that the process will do.
    seen: BTreeMap<ProcessId, u64>,
}

#[derive(Debug)]
struct Waiting {
    process: ProcessId,
    request: String,
    permit: oneshot::Sender<()>,
}

impl Gate {
    /// Waits until the request is let through.
    pub(super) async fn pass(&self, process: ProcessId, request: String) {
        let (permit, permitted) = oneshot::channel();
        {
            let mut state = lock(&self.state);
            let number = state.arrived;
            state.arrived += 1;
            state.waiting.insert(
                number,
                Waiting {
                    process,
                    request,
                    permit,
                },
            );
        }
        // The gate is dropped when the run is over, and with it everything that waits.
        let _ = permitted.await;
    }

    /// Notes what a process was answered.
    pub(super) fn answered(&self, process: ProcessId, request: &str, outcome: &str) {
        let mut state = lock(&self.state);
        let seen = state.seen.entry(process).or_default();
        let mut hasher = DefaultHasher::new();
        (*seen, request, outcome).hash(&mut hasher);
        *seen = hasher.finish();
    }

    /// The requests that wait: their numbers, whose they are, and what they are.
    pub fn waiting(&self) -> Vec<(u64, ProcessId, String)> {
        let state = lock(&self.state);
        let waiting = state.waiting.iter();
        waiting
            .map(|(number, waiting)| (*number, waiting.process, waiting.request.clone()))
            .collect()
    }

    /// Lets a request through.
    pub fn open(&self, number: u64) {
        let waiting = lock(&self.state).waiting.remove(&number);
        if let Some(waiting) = waiting {
            // Whoever sent it may be dead; the network goes on.
            let _ = waiting.permit.send(());
        }
    }

    /// Stands for all that the processes know and wait for.
    pub fn digest(&self) -> u64 {
        let state = lock(&self.state);
        let mut hasher = DefaultHasher::new();
        state.seen.hash(&mut hasher);
        let mut waiting: Vec<_> = state
            .waiting
            .values()
            .map(|waiting| (waiting.process, &waiting.request))
            .collect();
        waiting.sort();
        waiting.hash(&mut hasher);
        hasher.finish()
    }
}
