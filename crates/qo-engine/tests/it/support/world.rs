//! A world with tokio's clock, which tests pause so that hours take no time, and random numbers from a seed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_core::Timestamp;
use qo_store::world::{BoxFuture, World};

/// When every test begins: five seconds after the full minute, so that tests know which minute a lease ends in.
pub(crate) const START_MS: i64 = 1_700_000_045_000;

/// Tokio's time and seeded randomness.
#[derive(Debug)]
pub(crate) struct TestWorld {
    started: tokio::time::Instant,
    /// How far the wall clock is off.
    offset_ms: i64,
    state: Mutex<u64>,
}

impl TestWorld {
    /// A world that begins at [`START_MS`].
    #[expect(clippy::disallowed_methods, reason = "this is a world")]
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            started: tokio::time::Instant::now(),
            offset_ms: 0,
            state: Mutex::new(seed),
        })
    }

    /// Another machine at the same time, whose wall clock is off.
    pub(crate) fn beside(&self, seed: u64, offset_ms: i64) -> Arc<Self> {
        Arc::new(Self {
            started: self.started,
            offset_ms,
            state: Mutex::new(seed),
        })
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, duration: Duration) {
        self.sleep(duration).await;
    }

    /// Lets seconds pass.
    pub(crate) async fn pass_seconds(&self, seconds: u64) {
        self.pass(Duration::from_secs(seconds)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "this is a world")]
impl World for TestWorld {
    fn now(&self) -> Timestamp {
        let millis = i64::try_from(self.started.elapsed().as_millis()).unwrap();
        Timestamp::from_millis(START_MS + self.offset_ms + millis)
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
        // SplitMix64: small, seedable, and good enough to spread pauses and faults.
        let mut state = self.state.lock().unwrap();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
