//! SlateDB's clock, based on the runtime's clock.
//!
//! It starts at the store's time, by which SlateDB drops expired rows, and advances with the monotonic clock: SlateDB relies on time
//! that never goes back, and a wall clock can be set.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use qo_core::Timestamp;
use qo_store::runtime::Runtime;
use slatedb_common::clock::{SystemClock, SystemClockTicker};

/// The clock for SlateDB.
#[derive(Debug)]
pub(super) struct RuntimeClock {
    runtime: Arc<dyn Runtime>,
    start: Timestamp,
    started_at: Duration,
}

impl RuntimeClock {
    /// A clock that starts at `now`.
    pub(super) fn new(runtime: &Arc<dyn Runtime>, now: Timestamp) -> Arc<Self> {
        Arc::new(Self {
            runtime: Arc::clone(runtime),
            start: now,
            started_at: runtime.monotonic(),
        })
    }
}

impl SystemClock for RuntimeClock {
    fn now(&self) -> DateTime<Utc> {
        let elapsed = self.runtime.monotonic().saturating_sub(self.started_at);
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let now_ms = self.start.plus_millis(elapsed_ms).as_millis();
        DateTime::from_timestamp_millis(now_ms).unwrap_or_default()
    }

    fn sleep<'a>(&'a self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.runtime.sleep(duration)
    }

    fn ticker(&self, duration: Duration) -> SystemClockTicker<'_> {
        SystemClockTicker::new(self, duration)
    }
}
