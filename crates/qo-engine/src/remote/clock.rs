//! The queue's time, from the answers of its server.
//!
//! Every answer carries the queue's time to the millisecond. If the request left at local time `sent` and its answer came at
//! `received`, the difference `queue - local` lies in `[time - received, time - sent]`. The intersection over many answers
//! is as narrow as the fastest of them; it is widened while time passes, because clocks drift. An answer that does not meet the
//! intersection means that a clock was set, and the estimate starts anew.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use qo_core::Timestamp;

/// 200 parts per million, several times worse than a quartz clock without NTP.
const DRIFT_PER_MILLION: i64 = 200;

/// How far a better estimate may move the time back; until it is caught up with, time stands still.
const STEP_BACK_MAX_MS: i64 = 2_000;

/// The offset of the queue's time.
#[derive(Debug, Default)]
pub(super) struct ServerClock {
    known: Mutex<Option<Known>>,
    latest_ms: AtomicI64,
}

/// Bounds of `queue - local` in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Known {
    low_ms: i64,
    high_ms: i64,
    at: Timestamp,
}

impl ServerClock {
    /// Learns from one answer.
    pub(super) fn observe(&self, sent: Timestamp, received: Timestamp, time: Timestamp) {
        if received < sent {
            return;
        }
        let fresh = Known {
            low_ms: time.as_millis() - received.as_millis(),
            // The time was cut to its millisecond.
            high_ms: time.as_millis() + 1 - sent.as_millis(),
            at: received,
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(match *known {
            None => fresh,
            Some(old) => {
                let elapsed_ms = (received.as_millis() - old.at.as_millis()).abs();
                let drift_ms = elapsed_ms.saturating_mul(DRIFT_PER_MILLION) / 1_000_000;
                let low_ms = (old.low_ms - drift_ms).max(fresh.low_ms);
                let high_ms = (old.high_ms + drift_ms).min(fresh.high_ms);
                if low_ms > high_ms {
                    fresh
                } else {
                    Known {
                        low_ms,
                        high_ms,
                        // Keep the old moment until a drift can be measured from it.
                        at: if drift_ms > 0 { received } else { old.at },
                    }
                }
            }
        });
    }

    /// The queue's time when the local clock shows `local`. It does not go back by little.
    pub(super) fn now(&self, local: Timestamp) -> Timestamp {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let offset_ms = known.map_or(0, |known| known.low_ms.midpoint(known.high_ms));
        let now_ms = local.as_millis().saturating_add(offset_ms);
        let latest_ms = self.latest_ms.fetch_max(now_ms, Ordering::Relaxed);
        if latest_ms > now_ms {
            if latest_ms - now_ms <= STEP_BACK_MAX_MS {
                return Timestamp::from_millis(latest_ms);
            }
            self.latest_ms.store(now_ms, Ordering::Relaxed);
        }
        Timestamp::from_millis(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    #[test]
    fn the_fastest_answer_decides() {
        for offset in [-90_000, 0, 90_000] {
            let clock = ServerClock::default();
            assert_eq!(clock.now(at(-500_000)), at(-500_000));
            for (sent, took) in [(0, 900), (1_000, 4), (2_000, 700)] {
                let served = sent + took / 4;
                clock.observe(at(sent), at(sent + took), at(served + offset));
            }
            let off = clock.now(at(3_000)).as_millis() - at(3_000 + offset).as_millis();
            assert!(off.abs() <= 4, "{off}");
        }
    }

    #[test]
    fn a_clock_that_was_set_is_followed_and_small_steps_back_are_not() {
        let clock = ServerClock::default();
        clock.observe(at(0), at(2), at(1));
        let before = clock.now(at(10));
        clock.observe(at(20), at(22), at(21 - 1_000));
        assert_eq!(
            clock.now(at(22)),
            before.max(clock.now(at(22))),
            "it stands still"
        );
        clock.observe(at(30), at(32), at(31 + 60_000));
        assert!((clock.now(at(32)).as_millis() - at(60_032).as_millis()).abs() <= 3);
        clock.observe(at(40), at(42), at(41));
        assert!((clock.now(at(42)).as_millis() - at(42).as_millis()).abs() <= 3);
    }
}
