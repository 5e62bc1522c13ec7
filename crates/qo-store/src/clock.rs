//! The store's clock, as seen through its answers.
//!
//! Workers on different machines must agree on what time it is, and the one clock that they share is the store's. Every
//! answer of an HTTP store carries a `Date` with whole seconds. If the request left at local time `sent` and the answer
//! came at local time `received`, then the store's clock showed a time in `[date, date + 1 s)` at some moment between the
//! two, so that the offset `store - local` lies in `[date - received, date + 1 s - sent]`. The intersection of these
//! intervals over many answers is far narrower than a second. When a new interval does not meet the intersection, one of
//! the clocks has jumped, and the estimate starts anew from that answer.

use std::sync::Mutex;

use qo_core::Timestamp;
use qo_core::mutant::{Mutant, planted};

/// Tracks the offset between the local clock and the store's.
#[derive(Debug, Default)]
pub struct StoreClock {
    estimate: Mutex<Option<Estimate>>,
}

/// Bounds of `store - local` in milliseconds, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Estimate {
    low_ms: i64,
    high_ms: i64,
    /// When the bounds were last widened for drift, in local time.
    at: Timestamp,
}

/// How far the two clocks may drift apart while nothing is measured: 200 parts per million, several times worse than a
/// quartz clock without NTP.
const DRIFT_PER_MILLION: i64 = 200;

impl StoreClock {
    /// A clock that knows no offset yet and trusts the local one until it does.
    pub fn new() -> Self {
        Self::default()
    }

    /// Learns from one answer: the local times around the request, and the `Date` in the answer.
    pub fn observe(&self, sent: Timestamp, received: Timestamp, date: Timestamp) {
        if received < sent {
            // The local clock jumped back during the request: the answer says nothing.
            return;
        }
        let low_ms = date.as_millis() - received.as_millis();
        let high_ms = date.as_millis() + 999 - sent.as_millis();
        let mut estimate = self.lock();
        let fresh = Estimate {
            low_ms,
            high_ms,
            at: received,
        };
        *estimate = Some(match *estimate {
            None => fresh,
            Some(known) => {
                let elapsed_ms = (received.as_millis() - known.at.as_millis()).abs();
                let drift_ms = elapsed_ms.saturating_mul(DRIFT_PER_MILLION) / 1_000_000;
                let low = (known.low_ms - drift_ms).max(low_ms);
                let high = (known.high_ms + drift_ms).min(high_ms);
                if low > high && planted(Mutant::ClockJumpUnnoticed) {
                    known
                } else if low > high {
                    fresh
                } else if drift_ms > 0 {
                    Estimate {
                        low_ms: low,
                        high_ms: high,
                        at: received,
                    }
                } else {
                    // Keep the old moment, so that many quick answers still add up to a measurable drift.
                    Estimate {
                        low_ms: low,
                        high_ms: high,
                        at: known.at,
                    }
                }
            }
        });
    }

    /// The store's time when the local clock shows `local`: the middle of what is possible.
    pub fn to_store_time(&self, local: Timestamp) -> Timestamp {
        Timestamp::from_millis(local.as_millis().saturating_add(self.offset_ms()))
    }

    /// The earliest that the store's time can be when the local clock shows `local`.
    pub fn earliest_store_time(&self, local: Timestamp) -> Timestamp {
        let low_ms = self.lock().map_or(0, |known| known.low_ms);
        Timestamp::from_millis(local.as_millis().saturating_add(low_ms))
    }

    /// `store - local` in milliseconds: the middle of what is possible, 0 before the first answer.
    pub fn offset_ms(&self) -> i64 {
        self.lock()
            .map_or(0, |known| known.low_ms.midpoint(known.high_ms))
    }

    /// How far off the offset may be, either way, in milliseconds; `None` before the first answer.
    pub fn uncertainty_ms(&self) -> Option<u64> {
        self.lock()
            .map(|known| known.high_ms.abs_diff(known.low_ms).div_ceil(2))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Estimate>> {
        self.estimate
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    /// What a store whose clock is `offset_ms` ahead answers to a request that it served at `served_ms` of local time.
    fn date(served_ms: i64, offset_ms: i64) -> Timestamp {
        let shown = 1_700_000_000_000 + served_ms + offset_ms;
        Timestamp::from_millis(shown - shown.rem_euclid(1_000))
    }

    #[test]
    fn trusts_the_local_clock_before_the_first_answer() {
        let clock = StoreClock::new();
        assert_eq!(clock.to_store_time(at(5)), at(5));
        assert_eq!(clock.uncertainty_ms(), None);
    }

    #[test]
    fn many_answers_narrow_the_offset_to_the_round_trip() {
        for offset in [-90_000, -501, 0, 37, 90_000] {
            let clock = StoreClock::new();
            for request in 0..200 {
                let sent = request * 137;
                clock.observe(at(sent), at(sent + 30), date(sent + 10, offset));
            }
            assert!(
                (clock.offset_ms() - offset).abs() <= 40,
                "{offset}: {clock:?}"
            );
            assert!(clock.uncertainty_ms().unwrap() <= 40, "{clock:?}");
            let earliest = clock.earliest_store_time(at(0)).as_millis() - at(0).as_millis();
            assert!((offset - 80..=offset).contains(&earliest), "{clock:?}");
        }
    }

    #[test]
    fn a_jump_of_either_clock_starts_the_estimate_anew() {
        let clock = StoreClock::new();
        clock.observe(at(0), at(30), date(10, 0));
        clock.observe(at(1_000), at(1_030), date(1_010, 60_000));
        assert!((clock.offset_ms() - 60_000).abs() <= 600, "{clock:?}");
    }

    #[test]
    fn slow_drift_is_followed() {
        let clock = StoreClock::new();
        // The store's clock gains 100 parts per million over a day.
        for second in (0..86_400).step_by(10) {
            let local = second * 1_000 + (second * 37) % 1_000;
            clock.observe(at(local), at(local + 30), date(local + 10, second / 10));
        }
        assert!((clock.offset_ms() - 8_640).abs() <= 100, "{clock:?}");
    }

    #[test]
    fn an_answer_during_which_the_local_clock_went_back_is_ignored() {
        let clock = StoreClock::new();
        clock.observe(at(1_000), at(0), date(500, 0));
        assert_eq!(clock.uncertainty_ms(), None);
    }
}
