//! Holds requests back until one is chosen, so that every order can be tried.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use tokio::sync::oneshot;

use crate::sched::{ProcessId, lock};

/// The waiting requests.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<u64, Waiting>,
    arrived: u64,
    /// The replies that each process has received, in order. They decide everything that the process does.
    seen: BTreeMap<ProcessId, u64>,
}

#[derive(Debug)]
struct Waiting {
    process: ProcessId,
    request: String,
    permit: oneshot::Sender<()>,
}

impl Gate {
    /// Waits until the request is chosen.
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
        // The gate is dropped with all waiting requests when the run is over.
        let _ = permitted.await;
    }

    /// Records the reply to a process.
    pub(super) fn answered(&self, process: ProcessId, request: &str, outcome: &str) {
        let mut state = lock(&self.state);
        let seen = state.seen.entry(process).or_default();
        let mut hasher = DefaultHasher::new();
        (*seen, request, outcome).hash(&mut hasher);
        *seen = hasher.finish();
    }

    /// The waiting requests: number, process and description.
    pub fn waiting(&self) -> Vec<(u64, ProcessId, String)> {
        let state = lock(&self.state);
        let waiting = state.waiting.iter();
        waiting
            .map(|(number, waiting)| (*number, waiting.process, waiting.request.clone()))
            .collect()
    }

    /// Chooses a request.
    pub fn open(&self, number: u64) {
        let waiting = lock(&self.state).waiting.remove(&number);
        if let Some(waiting) = waiting {
            // The sender may be dead. The network delivers it anyway.
            let _ = waiting.permit.send(());
        }
    }

    /// A hash of everything that the processes know and wait for.
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
