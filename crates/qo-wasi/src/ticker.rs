//! The clock of running programs: a thread that advances the engine's epoch while programs run.
//!
//! A program checks the epoch at each loop iteration and function call, and yields to the async runtime when it has advanced. So
//! programs share threads fairly, and a run whose future is dropped ends within a tick.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use wasmtime::Engine;

/// Interval between ticks.
const TICK: Duration = Duration::from_millis(10);

/// The thread, which stops when this is dropped.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    running: usize,
    has_stopped: bool,
}

impl Ticker {
    pub(crate) fn start(engine: Engine) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                running: 0,
                has_stopped: false,
            }),
            changed: Condvar::new(),
        });
        let ticking = Arc::clone(&shared);
        thread::Builder::new()
            .name("qo-wasi-ticker".to_owned())
            .spawn(move || ticking.tick(&engine))?;
        Ok(Self { shared })
    }

    /// Ticks until the returned guard is dropped.
    pub(crate) fn running(&self) -> Running {
        self.shared.change(|state| state.running += 1);
        Running {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.change(|state| state.has_stopped = true);
    }
}

impl fmt::Debug for Ticker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticker").finish_non_exhaustive()
    }
}

/// A program is running.
pub(crate) struct Running {
    shared: Arc<Shared>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.change(|state| state.running -= 1);
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// An idle worker does not wake up.
    fn tick(&self, engine: &Engine) {
        loop {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let idle = |state: &mut State| state.running == 0 && !state.has_stopped;
            let waited = self.changed.wait_while(state, idle);
            if waited.unwrap_or_else(PoisonError::into_inner).has_stopped {
                return;
            }
            thread::sleep(TICK);
            engine.increment_epoch();
        }
    }
}
