//! The runtime of one process in virtual time: it can be killed, and its wall clock can be wrong.
//!
//! All runtimes of a run share tokio's paused clock, which moves only when everybody waits. A run is therefore decided by its
//! seed alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_core::Timestamp;
use qo_store::runtime::{BoxFuture, Runtime};

/// The store's time when a run begins: five seconds into a minute.
const BEGIN_MS: i64 = 1_763_238_845_000;

/// The one true clock of a run, which is the store's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrueClock {
    started: tokio::time::Instant,
}

impl TrueClock {
    /// Begins a run. Call it inside of the run's runtime.
    #[expect(clippy::disallowed_methods, reason = "this is a runtime")]
    pub(crate) fn start() -> Self {
        Self {
            started: tokio::time::Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millis(BEGIN_MS + millis(self.elapsed()))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap()
}

/// The runtime of one process.
#[derive(Debug)]
pub(crate) struct VirtualRuntime {
    clock: TrueClock,
    skew_ms: i64,
    random: Mutex<u64>,
    spawned: Mutex<Vec<tokio::task::AbortHandle>>,
    dead: AtomicBool,
}

impl VirtualRuntime {
    /// A runtime whose wall clock is `skew_ms` ahead of the true one.
    pub(crate) fn shared(clock: TrueClock, seed: u64, skew_ms: i64) -> Arc<Self> {
        Arc::new(Self {
            clock,
            skew_ms,
            random: Mutex::new(seed),
            spawned: Mutex::default(),
            dead: AtomicBool::new(false),
        })
    }

    /// Ends everything that goes on in the background, and lets nothing begin.
    pub(crate) fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
        for task in self.spawned.lock().unwrap().drain(..) {
            task.abort();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is a runtime")]
impl Runtime for VirtualRuntime {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.clock.now().as_millis() + self.skew_ms)
    }

    fn monotonic(&self) -> Duration {
        self.clock.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, future: BoxFuture<()>) {
        if self.dead.load(Ordering::Relaxed) {
            return;
        }
        let task = tokio::spawn(future).abort_handle();
        let mut spawned = self.spawned.lock().unwrap();
        spawned.retain(|task| !task.is_finished());
        spawned.push(task);
    }

    fn random(&self) -> u64 {
        // SplitMix64: small, seedable, and good enough to spread pauses and name things.
        let mut state = self.random.lock().unwrap();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
