//! The store's clock, as seen through its answers.
//!
//! Workers on different machines must agree on what time it is, and the one clock that they share is the store's. Every
//! answer of an HTTP store carries a `Date` with whole seconds. If the request left when the local clock showed `sent` and the
//! answer came when it showed `received`, then the store's clock showed a time in `[date, date + 1 s)` at some moment between the
//! two, so that the offset `store - local` lies in `[date - received, date + 1 s - sent]`. The intersection of these
//! intervals over many answers is far narrower than a second. When a new interval does not meet the intersection, the store's
//! clock has jumped, and the estimate starts anew from that answer.
//!
//! The local clock of all this is the monotonic one, so that nobody who sets the wall clock, whenever it may be, moves the store's time.
//! A process that is stopped and continued does not move it either, because the monotonic clock goes on meanwhile. On a machine
//! that was suspended as a whole it stood still (on Linux): the store's time is then too early until the next answer, whose interval lies
//! beyond the intersection. Too early is harmless: what has run out is ended later. Before the first answer, and with stores that tell no
//! time, the wall clock is believed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use qo_core::Timestamp;

use crate::runtime::Moment;

/// Tracks the offset between the local clock and the store's.
#[derive(Debug, Default)]
pub struct StoreClock {
    estimate: Mutex<Option<Estimate>>,
    /// The latest time that was told, in milliseconds.
    latest_ms: AtomicI64,
}

/// Bounds of `store - monotonic` in milliseconds, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Estimate {
    low_ms: i64,
    high_ms: i64,
    /// When the bounds were last widened for drift, by the monotonic clock.
    at: Duration,
    /// `wall - monotonic` at the last answer.
    wall_ahead_ms: i64,
}

/// How far the two clocks may drift apart while nothing is measured: 200 parts per million, several times worse than a
/// quartz clock without NTP.
const DRIFT_PER_MILLION: i64 = 200;

/// How far a better estimate moves the store's time back at the most: the `Date` of an answer has whole seconds.
const STEP_BACK_MAX_MS: i64 = 2_000;

/// What a `Date` leaves open.
const DATE_PRECISION_MS: i64 = 1_000;

impl Estimate {
    fn middle_ms(&self) -> i64 {
        self.low_ms.midpoint(self.high_ms)
    }

    /// How far the clocks may have drifted apart since the bounds were last widened.
    fn drift_ms(&self, now: Duration) -> i64 {
        let elapsed_ms = millis(now.saturating_sub(self.at));
        elapsed_ms.saturating_mul(DRIFT_PER_MILLION) / 1_000_000
    }

    /// What is known after one more answer.
    fn narrowed(&self, fresh: Self) -> Self {
        let drift_ms = self.drift_ms(fresh.at);
        let low_ms = (self.low_ms - drift_ms).max(fresh.low_ms);
        let high_ms = (self.high_ms + drift_ms).min(fresh.high_ms);
        if low_ms > high_ms {
            return fresh;
        }
        Self {
            low_ms,
            high_ms,
            // Keep the old moment until a drift can be measured from it, so that many quick answers still add up to one.
            at: if drift_ms > 0 { fresh.at } else { self.at },
            wall_ahead_ms: fresh.wall_ahead_ms,
        }
    }
}

impl StoreClock {
    /// A clock that knows no offset yet and trusts the local wall clock until it does.
    pub fn new() -> Self {
        Self::default()
    }

    /// Learns from one answer: the moments around the request, and the `Date` in the answer, which has whole seconds.
    pub fn observe(&self, sent: Moment, received: Moment, date: Timestamp) {
        self.learn(sent, received, date, DATE_PRECISION_MS);
    }

    /// Learns from one answer that tells the time to the millisecond.
    pub fn observe_exact(&self, sent: Moment, received: Moment, time: Timestamp) {
        self.learn(sent, received, time, 1);
    }

    fn learn(&self, sent: Moment, received: Moment, shown: Timestamp, precision_ms: i64) {
        let (sent_ms, received_ms) = (millis(sent.steady), millis(received.steady));
        if received_ms < sent_ms {
            // These moments are of two runtimes, and say nothing of this request.
            return;
        }
        let shown_ms = shown.as_millis();
        let fresh = Estimate {
            low_ms: shown_ms.saturating_sub(received_ms),
            high_ms: shown_ms
                .saturating_add(precision_ms)
                .saturating_sub(sent_ms),
            at: received.steady,
            wall_ahead_ms: received.wall.as_millis().saturating_sub(received_ms),
        };
        let mut estimate = self.lock();
        *estimate = Some(estimate.map_or(fresh, |known| known.narrowed(fresh)));
    }

    /// The store's time: the middle of what is possible. Each answer sharpens what is known of it, which can move it back a little;
    /// then it stands still until it is caught up with, so that nothing that happened lies in the future. A clock that was set
    /// back by more is followed.
    pub fn now(&self, at: Moment) -> Timestamp {
        let known = *self.lock();
        let now_ms = known.map_or(at.wall.as_millis(), |known| {
            known.middle_ms().saturating_add(millis(at.steady))
        });
        let latest_ms = self.latest_ms.fetch_max(now_ms, Ordering::Relaxed);
        if latest_ms <= now_ms {
            return Timestamp::from_millis(now_ms);
        }
        if latest_ms - now_ms <= STEP_BACK_MAX_MS {
            return Timestamp::from_millis(latest_ms);
        }
        self.latest_ms.store(now_ms, Ordering::Relaxed);
        Timestamp::from_millis(now_ms)
    }

    /// The earliest that the store's time can be. Whoever ends something because its time is over must judge by this.
    pub fn earliest(&self, at: Moment) -> Timestamp {
        let known = *self.lock();
        let earliest_ms = known.map_or(at.wall.as_millis(), |known| {
            let low_ms = known.low_ms.saturating_sub(known.drift_ms(at.steady));
            low_ms.saturating_add(millis(at.steady))
        });
        Timestamp::from_millis(earliest_ms)
    }

    /// How far the store's clock is ahead of the local wall clock, as that was at the last answer, in milliseconds: the middle of
    /// what is possible, 0 before the first answer.
    pub fn offset_ms(&self) -> i64 {
        self.lock().map_or(0, |known| {
            known.middle_ms().saturating_sub(known.wall_ahead_ms)
        })
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

fn millis(steady: Duration) -> i64 {
    i64::try_from(steady.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN_MS: i64 = 1_700_000_000_000;

    /// So many milliseconds after the beginning, on a machine whose wall clock is right.
    fn at(steady_ms: i64) -> Moment {
        set_ahead(steady_ms, 0)
    }

    /// The same, with a wall clock that somebody has set.
    fn set_ahead(steady_ms: i64, ahead_ms: i64) -> Moment {
        Moment {
            wall: Timestamp::from_millis(BEGIN_MS + steady_ms + ahead_ms),
            steady: Duration::from_millis(u64::try_from(steady_ms).unwrap()),
        }
    }

    /// What a store whose clock is `offset_ms` ahead shows.
    fn shown(served_ms: i64, offset_ms: i64) -> Timestamp {
        Timestamp::from_millis(BEGIN_MS + served_ms + offset_ms)
    }

    /// What it answers to a request that it served then.
    fn date(served_ms: i64, offset_ms: i64) -> Timestamp {
        let shown_ms = shown(served_ms, offset_ms).as_millis();
        Timestamp::from_millis(shown_ms - shown_ms.rem_euclid(1_000))
    }

    #[test]
    fn trusts_the_wall_clock_before_the_first_answer() {
        let clock = StoreClock::new();
        assert_eq!(clock.now(at(5)), at(5).wall);
        assert_eq!(clock.earliest(at(5)), at(5).wall);
        assert_eq!(clock.now(set_ahead(6, 60_000)), shown(6, 60_000));
        assert_eq!(clock.uncertainty_ms(), None);
        assert_eq!(clock.offset_ms(), 0);
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
            let then = at(200 * 137);
            let earliest = clock.earliest(then).as_millis() - then.wall.as_millis();
            assert!((offset - 80..=offset).contains(&earliest), "{clock:?}");
        }
    }

    #[test]
    fn of_answers_to_the_millisecond_the_fastest_decides() {
        for offset in [-90_000, 0, 90_000] {
            let clock = StoreClock::new();
            for (sent, took) in [(0, 900), (1_000, 4), (2_000, 700)] {
                let time = shown(sent + took / 4, offset);
                clock.observe_exact(at(sent), at(sent + took), time);
            }
            let off = clock.now(at(3_000)).as_millis() - shown(3_000, offset).as_millis();
            assert!(off.abs() <= 4, "{off}");
        }
    }

    #[test]
    fn a_wall_clock_that_is_set_moves_nothing_whenever_it_is() {
        for ahead in [-60_000, -1_900, -700, 700, 2_010, 60_000] {
            let clock = StoreClock::new();
            clock.observe(at(0), at(30), date(10, 0));
            let before = clock.now(at(1_000));
            // Between two answers,
            assert_eq!(clock.now(set_ahead(1_000, ahead)), before);
            assert!(clock.earliest(set_ahead(1_000, ahead)) <= shown(1_000, 0));
            // while a request is under way,
            clock.observe(at(2_000), set_ahead(2_040, ahead), date(2_020, 0));
            assert!(clock.earliest(set_ahead(2_040, ahead)) <= shown(2_040, 0));
            // and between the answer and whoever judges by it.
            clock.observe(at(3_000), at(3_040), date(3_020, 0));
            let now = clock.now(set_ahead(3_050, ahead));
            assert!(now.as_millis().abs_diff(shown(3_050, 0).as_millis()) <= 600);
            assert!(clock.earliest(set_ahead(3_050, ahead)) <= shown(3_050, 0));
        }
    }

    #[test]
    fn the_offset_is_to_the_wall_clock_as_it_was_at_the_last_answer() {
        let clock = StoreClock::new();
        clock.observe(at(0), at(30), date(10, 0));
        clock.observe(
            set_ahead(1_000, 60_000),
            set_ahead(1_030, 60_000),
            date(1_010, 0),
        );
        assert!((clock.offset_ms() + 60_000).abs() <= 600, "{clock:?}");
    }

    #[test]
    fn a_jump_of_the_stores_clock_starts_the_estimate_anew() {
        let clock = StoreClock::new();
        clock.observe(at(0), at(30), date(10, 0));
        clock.observe(at(1_000), at(1_030), date(1_010, 60_000));
        assert!((clock.offset_ms() - 60_000).abs() <= 600, "{clock:?}");
    }

    #[test]
    fn a_machine_that_was_suspended_is_behind_until_the_next_answer() {
        let clock = StoreClock::new();
        clock.observe(at(0), at(30), date(10, 0));
        // An hour passes, and only the wall clock and the store's have noticed.
        let woken = set_ahead(1_000, 3_600_000);
        assert!(clock.now(woken) < shown(1_000, 3_600_000));
        clock.observe(woken, set_ahead(1_030, 3_600_000), date(1_010, 3_600_000));
        let off = clock.now(set_ahead(1_040, 3_600_000)).as_millis()
            - shown(1_040, 3_600_000).as_millis();
        assert!(off.abs() <= 600, "{off}");
        assert!(clock.offset_ms().abs() <= 600, "{clock:?}");
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
    fn the_longer_nobody_answers_the_earlier_it_may_be() {
        let clock = StoreClock::new();
        clock.observe_exact(at(0), at(2), shown(1, 0));
        let hour = at(3_600_000);
        let behind = hour.wall.since(clock.earliest(hour)).as_millis();
        assert!((720..=730).contains(&behind), "{behind}");
    }

    #[test]
    fn time_stands_still_while_a_better_estimate_catches_up_and_follows_a_real_step_back() {
        let clock = StoreClock::new();
        // The first answer allows an offset of up to a second; the second one shows that it is next to none.
        clock.observe(at(0), at(0), shown(0, 0));
        let early = clock.now(at(0));
        assert!(early > shown(0, 0));
        clock.observe(at(0), at(0), shown(0, -950));
        assert_eq!(clock.now(at(0)), early);
        assert!(clock.earliest(at(0)) <= shown(0, 0));
        assert!(clock.now(at(2_000)) > early);

        let told = clock.now(at(2_000));
        clock.observe(at(2_000), at(2_000), shown(2_000, -60_000));
        assert!(clock.now(at(2_000)) < told.minus_millis(50_000));
    }
}
