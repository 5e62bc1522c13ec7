//! How far the loop is behind, so that a lease is not ended while its renewal waits.
//!
//! A renewal counts only when the loop applies it. If the loop is late, because it is overloaded, waits for a slow write, or its process was
//! suspended, then a renewal that was sent in time is applied late. So leases are ended later by the longest delay of the last seconds, if
//! that is longer than the margin. The delay is forgotten after a while, so dead workers are still detected.

use std::time::Duration;

/// How long a delay is remembered at least, and half of how long at most. Workers whose renewals were held up outside of the loop have
/// this long to repeat them.
const WINDOW: Duration = Duration::from_secs(10);

/// The longest delay of the last seconds. All times are the runtime's monotonic time.
#[derive(Debug, Default)]
pub(super) struct LagMeter {
    window_began: Duration,
    current: Duration,
    previous: Duration,
}

impl LagMeter {
    /// Records that something was done this much later than it could have been.
    pub(super) fn record(&mut self, at: Duration, lag: Duration) {
        self.turn(at);
        self.current = self.current.max(lag);
    }

    /// The longest delay of the last seconds.
    pub(super) fn lag(&mut self, at: Duration) -> Duration {
        self.turn(at);
        self.current.max(self.previous)
    }

    /// When a delay will be forgotten.
    pub(super) fn window_end(&self) -> Duration {
        self.window_began + WINDOW
    }

    fn turn(&mut self, at: Duration) {
        let elapsed = at.saturating_sub(self.window_began);
        if elapsed < WINDOW {
            return;
        }
        let is_next = elapsed < 2 * WINDOW;
        self.previous = if is_next {
            self.current
        } else {
            Duration::ZERO
        };
        self.current = Duration::ZERO;
        self.window_began = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_remembered_for_one_to_two_windows() {
        let s = Duration::from_secs;
        let mut meter = LagMeter::default();
        assert_eq!(meter.lag(s(1)), s(0));
        meter.record(s(2), s(5));
        meter.record(s(3), s(1));
        assert_eq!(meter.lag(s(4)), s(5));
        assert_eq!(meter.lag(s(11)), s(5));
        assert_eq!(meter.lag(s(22)), s(0));
        meter.record(s(22), s(7));
        assert_eq!(meter.lag(s(60)), s(0));
    }
}
