//! SlateDB's clock, based on the runtime's clock.
//!
//! It starts at the store's time, by which SlateDB drops expired rows, and advances with the monotonic clock: SlateDB relies on time
//! that never goes back, and a wall clock can be set.
//!
//! Two processes estimate the store's time differently, and two gateways of one store may state different times. SlateDB delays or
//! refuses a write whose time is before that of the last write, which would make a new leader useless until its clock has caught up. So
//! every batch writes a row whose time of creation is the time of the last write ([`stamp`]), and a new leader's clock starts no earlier
//! ([`RuntimeClock::catch_up`]). It stands still there until its own time is later.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use qo_core::Timestamp;
use qo_engine::EngineError;
use qo_store::runtime::Runtime;
use slatedb::{Db, WriteBatch};
use slatedb_common::clock::{SystemClock, SystemClockTicker};

use super::error::from_slate;
use crate::rows::keys;

/// Lets the batch record its time for the next leader.
pub(super) fn stamp(batch: &mut WriteBatch) {
    batch.put(keys::CLOCK, []);
}

/// The clock for SlateDB.
#[derive(Debug)]
pub(super) struct RuntimeClock {
    runtime: Arc<dyn Runtime>,
    start: Timestamp,
    started_at: Duration,
    /// The earliest time that it shows, in milliseconds.
    earliest_ms: AtomicI64,
}

impl RuntimeClock {
    /// A clock that starts at `now`.
    pub(super) fn new(runtime: &Arc<dyn Runtime>, now: Timestamp) -> Arc<Self> {
        Arc::new(Self {
            runtime: Arc::clone(runtime),
            start: now,
            started_at: runtime.monotonic(),
            earliest_ms: AtomicI64::new(i64::MIN),
        })
    }

    /// Shows no time before the last write of the database from now on. Call it before the first write.
    pub(super) async fn catch_up(&self, db: &Db) -> Result<(), EngineError> {
        let last = db.get_key_value(keys::CLOCK).await;
        // Databases of earlier versions have no such row.
        if let Some(last) = last.map_err(|error| from_slate(&error))? {
            self.earliest_ms.fetch_max(last.create_ts, Ordering::AcqRel);
        }
        Ok(())
    }
}

impl SystemClock for RuntimeClock {
    fn now(&self) -> DateTime<Utc> {
        let elapsed = self.runtime.monotonic().saturating_sub(self.started_at);
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let now_ms = self.start.plus_millis(elapsed_ms).as_millis();
        let now_ms = now_ms.max(self.earliest_ms.load(Ordering::Acquire));
        DateTime::from_timestamp_millis(now_ms).unwrap_or_default()
    }

    fn sleep<'a>(&'a self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.runtime.sleep(duration)
    }

    fn ticker(&self, duration: Duration) -> SystemClockTicker<'_> {
        SystemClockTicker::new(self, duration)
    }
}
