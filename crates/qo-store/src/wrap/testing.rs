//! A runtime for tests: tokio's clock, which a test can pause, and seeded random numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qo_core::Timestamp;

use crate::runtime::{BoxFuture, Runtime};

/// The increment of `SplitMix64`. It is odd, so that every number is visited once.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// With `start_paused`, sleeping takes no real time, and the clock advances by exactly the time slept.
#[derive(Debug)]
pub(crate) struct PausableRuntime {
    started: tokio::time::Instant,
    state: AtomicU64,
}

impl PausableRuntime {
    #[expect(clippy::disallowed_methods, reason = "this is a runtime")]
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            started: tokio::time::Instant::now(),
            state: AtomicU64::new(seed),
        }
    }

    pub(crate) fn shared() -> Arc<dyn Runtime> {
        Arc::new(Self::new(0))
    }
}

#[expect(clippy::disallowed_methods, reason = "this is a runtime")]
impl Runtime for PausableRuntime {
    fn now(&self) -> Timestamp {
        let millis = i64::try_from(self.monotonic().as_millis()).unwrap();
        Timestamp::from_millis(1_763_238_840_000 + millis)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, future: BoxFuture<()>) {
        tokio::spawn(future);
    }

    fn random(&self) -> u64 {
        // SplitMix64: small, seedable, and random enough for pauses and faults.
        let mut mixed = self
            .state
            .fetch_add(STEP, Ordering::Relaxed)
            .wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
