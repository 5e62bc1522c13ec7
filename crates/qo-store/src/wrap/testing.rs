//! A runtime for tests: tokio's clock, which a test can pause, and seeded random numbers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qo_core::Timestamp;

use crate::runtime::{BoxFuture, Runtime};
use crate::wrap::random::SplitMix64;

/// The wall-clock time at which every test begins: five seconds after the full minute, so that tests know which minute a lease ends in.
pub const START_MS: i64 = 1_700_000_045_000;

/// Runs a future to its end in a tokio runtime whose clock is paused.
///
/// # Panics
///
/// If tokio cannot be started.
#[expect(
    clippy::expect_used,
    reason = "a test that cannot start should stop loudly"
)]
pub fn in_paused_time<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("tokio starts")
        .block_on(future)
}

/// The runtime of one process of a test.
///
/// With tokio's `start_paused`, sleeping takes no time and the clock advances by exactly what was slept. A process can have a wrong wall clock,
/// and it can be killed.
#[derive(Debug)]
pub struct PausableRuntime {
    started: tokio::time::Instant,
    wall_clock_offset_ms: i64,
    random: SplitMix64,
    spawned: Mutex<Vec<tokio::task::AbortHandle>>,
    killed: AtomicBool,
}

impl PausableRuntime {
    /// A runtime that begins at [`START_MS`].
    #[expect(clippy::disallowed_methods, reason = "this is a runtime")]
    pub fn new(seed: u64) -> Self {
        Self::starting(tokio::time::Instant::now(), seed, 0)
    }

    /// A runtime that begins at [`START_MS`], with seed 0.
    pub fn shared() -> Arc<dyn Runtime> {
        Arc::new(Self::new(0))
    }

    /// Another process at the same time, whose wall clock is ahead by `offset_ms`.
    #[must_use]
    pub fn beside(&self, seed: u64, offset_ms: i64) -> Arc<Self> {
        Arc::new(Self::starting(self.started, seed, offset_ms))
    }

    fn starting(started: tokio::time::Instant, seed: u64, wall_clock_offset_ms: i64) -> Self {
        Self {
            started,
            wall_clock_offset_ms,
            random: SplitMix64::new(seed),
            spawned: Mutex::default(),
            killed: AtomicBool::new(false),
        }
    }

    /// Aborts everything that was spawned, and spawns nothing from now on.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
        let mut spawned = self.spawned.lock().unwrap_or_else(PoisonError::into_inner);
        for task in spawned.drain(..) {
            task.abort();
        }
    }

    /// Sleeps for some seconds.
    pub async fn pass_seconds(&self, seconds: u64) {
        self.sleep(Duration::from_secs(seconds)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "this is a runtime")]
impl Runtime for PausableRuntime {
    fn now(&self) -> Timestamp {
        let elapsed_ms = i64::try_from(self.monotonic().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(START_MS + self.wall_clock_offset_ms + elapsed_ms)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, future: BoxFuture<()>) {
        if self.killed.load(Ordering::Relaxed) {
            return;
        }
        let task = tokio::spawn(future).abort_handle();
        let mut spawned = self.spawned.lock().unwrap_or_else(PoisonError::into_inner);
        spawned.retain(|task| !task.is_finished());
        spawned.push(task);
    }

    fn random(&self) -> u64 {
        self.random.next_u64()
    }
}
