//! The time of the cluster.
//!
//! Time comes from the leader: every entry carries its time. A new leader continues from the time of the last entry, plus the time that has
//! passed on its own monotonic clock since it applied that entry. So the time neither jumps nor runs backwards when leadership moves between
//! machines whose clocks differ. Only if the machine's clock is ahead by more than [`SKEW_MAX`], because the whole cluster was down or the
//! clock was set, does the leader use the machine's clock.

use std::sync::Arc;
use std::time::Duration;

use qo_core::Timestamp;
use qo_store::clock::StoreClock;
use qo_store::runtime::{Moment, Runtime, RuntimeExt};

use crate::machine::AppliedPoint;

/// How far the cluster's time may be from the machine's clock.
const SKEW_MAX: Duration = Duration::from_secs(10);
/// How often the clock is confirmed. Without that, the store's clock assumes more and more drift.
pub(super) const CONFIRM_INTERVAL: Duration = Duration::from_secs(5);
/// After so many confirmations the store's clock forgets an earlier time.
const CONFIRMATIONS: usize = 40;

/// The time of a leader: a start, and the monotonic clock since then.
#[derive(Debug, Clone)]
pub(super) struct LeaderClock {
    runtime: Arc<dyn Runtime>,
    start: Timestamp,
    started_at: Duration,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl LeaderClock {
    /// The clock of a leader that starts now.
    pub(super) fn start(runtime: &Arc<dyn Runtime>, applied: &AppliedPoint) -> Self {
        let Moment { wall, steady } = runtime.moment();
        let continued = applied
            .time
            .plus_millis(millis(steady.saturating_sub(applied.at)));
        let skew = wall.as_millis().abs_diff(continued.as_millis());
        let start = if skew <= millis(SKEW_MAX) {
            continued
        } else {
            wall.max(continued)
        };
        Self {
            runtime: Arc::clone(runtime),
            start,
            started_at: steady,
        }
    }

    /// The clock of a leader whose barrier is applied now. The barrier was given the time of `self`, which came from what the node had applied
    /// when it was elected. Entries of the previous leader may have been applied since then, with later times.
    pub(super) fn continue_from(&self, applied: &AppliedPoint) -> Self {
        let continued = Self::start(&self.runtime, applied);
        let elapsed = continued.started_at.saturating_sub(self.started_at);
        Self {
            start: continued.start.max(self.start.plus_millis(millis(elapsed))),
            ..continued
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        let elapsed = self.runtime.monotonic().saturating_sub(self.started_at);
        self.start.plus_millis(millis(elapsed))
    }

    /// A store's clock that shows this time, and whose earliest possible time is `grace` earlier until [`confirm`](Self::confirm).
    pub(super) fn store_clock(&self, grace: Duration) -> Arc<StoreClock> {
        let clock = StoreClock::new();
        let now = self.now();
        let moment = Moment {
            wall: now.minus_millis(millis(grace)),
            steady: self.runtime.monotonic(),
        };
        clock.observe_exact(moment, moment, now);
        Arc::new(clock)
    }

    /// Ends the grace, and tells the store's clock that it has not drifted.
    pub(super) fn confirm(&self, clock: &StoreClock) {
        let now = self.now();
        let moment = Moment {
            wall: now,
            steady: self.runtime.monotonic(),
        };
        for _ in 0..CONFIRMATIONS {
            clock.observe_exact(moment, moment, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use qo_store::runtime::TokioRuntime;

    use super::*;

    fn applied(runtime: &Arc<dyn Runtime>, time: Timestamp) -> AppliedPoint {
        AppliedPoint {
            index: Some(1),
            epoch: 1,
            number: 0,
            time,
            at: runtime.monotonic(),
        }
    }

    #[test]
    fn entries_that_were_applied_late_raise_the_clock() {
        let runtime = TokioRuntime::shared();
        let wall = runtime.now();
        let old = wall.minus_millis(6_000);
        let elected = LeaderClock::start(&runtime, &applied(&runtime, old));
        assert!(elected.now() < old.plus_millis(2_000));
        let late = wall.plus_millis(3_000);
        let leading = elected.continue_from(&applied(&runtime, late));
        assert!(leading.now() >= late);
        assert!(leading.now() < late.plus_millis(2_000));
    }

    #[test]
    fn the_clock_does_not_fall_behind_the_barrier() {
        let runtime = TokioRuntime::shared();
        let wall = runtime.now();
        let elected = LeaderClock::start(&runtime, &applied(&runtime, wall.plus_millis(5_000)));
        let barrier = elected.now();
        // Whatever the node has applied.
        for time in [Timestamp::MIN, wall.minus_millis(5_000), barrier] {
            let leading = elected.continue_from(&applied(&runtime, time));
            assert!(leading.now() >= barrier);
        }
    }
}
