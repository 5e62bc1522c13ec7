//! Whether a worker has anything to do.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_store::runtime::Runtime;

use crate::lock;

/// Tells whether a worker is idle. Clones share their state. [`Worker::idleness`](super::Worker::idleness) returns one.
#[derive(Debug, Clone)]
pub struct Idleness {
    runtime: Arc<dyn Runtime>,
    state: Arc<Mutex<IdleState>>,
}

#[derive(Debug)]
struct IdleState {
    running: usize,
    /// The start of the worker, or the end of its last attempt.
    since: Duration,
    /// Whether the last claim succeeded, found nothing, and ended after the last attempt.
    found_nothing: bool,
}

impl Idleness {
    pub(super) fn new(runtime: Arc<dyn Runtime>) -> Self {
        let state = IdleState {
            running: 0,
            since: runtime.monotonic(),
            found_nothing: false,
        };
        Self {
            runtime,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// How long the worker has had nothing to do. `None` while an attempt runs, and until a claim after the last attempt has found
    /// the queue empty or paused. A claim that fails shows nothing, so a worker without access to its queue is not idle.
    pub fn idle_for(&self) -> Option<Duration> {
        let state = lock(&self.state);
        let idle = self.runtime.monotonic().saturating_sub(state.since);
        (state.running == 0 && state.found_nothing).then_some(idle)
    }

    pub(super) fn began(&self) {
        let mut state = lock(&self.state);
        state.running += 1;
        state.found_nothing = false;
    }

    pub(super) fn ended(&self) {
        let now = self.runtime.monotonic();
        let mut state = lock(&self.state);
        state.running = state.running.saturating_sub(1);
        state.since = now;
        state.found_nothing = false;
    }

    /// Records the result of a claim.
    pub(super) fn claimed(&self, found_nothing: bool) {
        lock(&self.state).found_nothing = found_nothing;
    }
}
