//! A world for tests: tokio's clock, which a test can pause, and seeded randomness.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qo_core::Timestamp;

use crate::world::{BoxFuture, World};

/// With `start_paused`, waiting takes no time and the clock moves by exactly what was waited for.
#[derive(Debug)]
pub(crate) struct PausableWorld {
    started: tokio::time::Instant,
    drawn: AtomicU64,
}

impl PausableWorld {
    #[expect(clippy::disallowed_methods, reason = "this is a world")]
    pub(crate) fn shared() -> Arc<dyn World> {
        Arc::new(Self {
            started: tokio::time::Instant::now(),
            drawn: AtomicU64::new(0),
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "this is a world")]
impl World for PausableWorld {
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
        // A step of an odd constant visits every number once, and its high bits look random enough for names.
        let step = self.drawn.fetch_add(1, Ordering::Relaxed) + 1;
        step.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
