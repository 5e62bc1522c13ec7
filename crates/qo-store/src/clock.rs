//! An estimate of the store's clock, from the `Date` header of its responses.
//!
//! Workers on different machines must agree on the time, and the only clock that they share is the store's. Every
//! response of an HTTP store has a `Date` header in whole seconds. If a request was sent at local time `sent` and its
//! response arrived at local time `received`, the store's clock was in `[date, date + 1 s)` at some moment between
//! the two. The offset `store - local` is therefore in `[date - received, date + 1 s - sent]`. The intersection of
//! these intervals over many responses is far narrower than a second.
//!
//! # Responses that disagree
//!
//! A response whose interval does not overlap the intersection means that the store's clock has jumped, or that the
//! response came through a gateway whose clock is wrong. A store has many gateways, so a wrong one shows itself by
//! responses that disagree with each other. Responses that contradict the estimate and agree with each other form a
//! rival. Each of them adds a vote for the rival, and each response that agrees with the estimate takes one away. With
//! [`VOTES_MIN`] votes the rival replaces the estimate, so the estimate follows the majority. Two votes suffice if the
//! wall clock has jumped as far, as it does while a machine is suspended. In the first responses of a process the
//! wall clock decides which of the two is better.
//!
//! Whatever the estimate is, [`StoreClock::earliest`] is never later than the earliest clock among the recent
//! responses: an earlier clock counts until [`FLOOR_AGREEING`] responses in a row agree with the estimate. Until as many
//! responses have confirmed the first estimate, the wall clock counts as such a clock. A gateway that is ahead thus
//! ends no lease unless it is the only one that answers, or the machine's own clock is ahead too in the first responses of
//! a process.
//!
//! # The local clock
//!
//! The local clock is the monotonic one, so setting the wall clock does not affect the store's time. Stopping and
//! continuing the process does not affect it either, because the monotonic clock keeps running. While a machine is
//! suspended, the monotonic clock may stop (it does on Linux). The store's time is then too early until the next
//! responses, whose intervals lie beyond the intersection. Too early is safe: leases only expire later. The wall clock
//! is used before the first response, and for stores that send no time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use qo_core::Timestamp;

use crate::runtime::Moment;

/// Tracks the offset between the local clock and the store's.
#[derive(Debug, Default)]
pub struct StoreClock {
    state: Mutex<ClockState>,
    /// The latest time returned by `now`, in milliseconds.
    latest_ms: AtomicI64,
}

/// What the responses have shown so far.
#[derive(Debug, Default)]
struct ClockState {
    estimate: Option<Estimate>,
    /// What other responses show instead, and its votes.
    rival: Option<(Estimate, u32)>,
    /// The lowest `store - monotonic` of a clock that disagrees with the estimate, in milliseconds.
    floor_ms: Option<i64>,
    /// The number of responses in a row that agree with the estimate.
    agreeing: u32,
    /// The number of responses.
    responses: u32,
}

/// Bounds of `store - monotonic` in milliseconds, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Estimate {
    low_ms: i64,
    high_ms: i64,
    /// When the bounds were last widened for drift, by the monotonic clock.
    at: Duration,
    /// `wall - monotonic` at the last response.
    wall_ahead_ms: i64,
}

/// The assumed drift between the two clocks without measurements: 200 parts per million, several times worse than a
/// quartz clock without NTP.
const DRIFT_PER_MILLION: i64 = 200;

/// The largest backward step that `now` hides. A better estimate can lower the store's time by this much, because
/// `Date` has whole seconds.
const STEP_BACK_MAX_MS: i64 = 2_000;

/// With this many votes, a rival replaces the estimate.
const VOTES_MIN: u32 = 12;

/// The same, if the wall clock has jumped as far as the responses.
const VOTES_WITH_WALL_MIN: u32 = 2;

/// After this many responses in a row that agree with the estimate, an earlier clock no longer counts.
const FLOOR_AGREEING: u32 = 32;

/// For this many responses, the wall clock decides between two estimates.
const YOUNG_RESPONSES: u32 = 16;

/// How far two clocks that agree may be apart.
const WALL_TOLERANCE_MS: i64 = 2_000;

/// The precision of a `Date` header.
const DATE_PRECISION_MS: i64 = 1_000;

impl Estimate {
    fn middle_ms(&self) -> i64 {
        self.low_ms.midpoint(self.high_ms)
    }

    /// The possible drift since the bounds were last widened.
    fn drift_ms(&self, now: Duration) -> i64 {
        let elapsed_ms = millis(now.saturating_sub(self.at));
        elapsed_ms.saturating_mul(DRIFT_PER_MILLION) / 1_000_000
    }

    /// The estimate after one more response; `None` if the response contradicts it.
    fn narrowed(&self, fresh: Self) -> Option<Self> {
        let drift_ms = self.drift_ms(fresh.at);
        let low_ms = (self.low_ms - drift_ms).max(fresh.low_ms);
        let high_ms = (self.high_ms + drift_ms).min(fresh.high_ms);
        (low_ms <= high_ms).then_some(Self {
            low_ms,
            high_ms,
            // Keep the old moment until its drift is at least a millisecond, so that the drift of many
            // quick responses adds up.
            at: if drift_ms > 0 { fresh.at } else { self.at },
            wall_ahead_ms: fresh.wall_ahead_ms,
        })
    }

    /// How far the store's clock and the wall clock are apart.
    fn distance_to_wall_ms(&self) -> u64 {
        self.middle_ms().abs_diff(self.wall_ahead_ms)
    }
}

impl ClockState {
    fn add(&mut self, fresh: Estimate) {
        self.responses = self.responses.saturating_add(1);
        let Some(known) = self.estimate else {
            self.estimate = Some(fresh);
            self.agreeing = 1;
            if fresh.wall_ahead_ms < fresh.low_ms {
                self.floor_ms = Some(fresh.wall_ahead_ms);
            }
            return;
        };
        if let Some(narrowed) = known.narrowed(fresh) {
            self.estimate = Some(narrowed);
            if let Some((_, votes)) = &mut self.rival {
                *votes = votes.saturating_sub(1);
            }
            self.agreeing = self.agreeing.saturating_add(1);
            if self.agreeing >= FLOOR_AGREEING {
                self.floor_ms = None;
            }
            return;
        }
        self.agreeing = 0;
        self.lower_floor(fresh.low_ms);
        let (rival, votes) = match self.rival {
            Some((rival, votes)) => match rival.narrowed(fresh) {
                Some(narrowed) => (narrowed, votes + 1),
                // A third clock replaces a rival without votes.
                None if votes > 0 => (rival, votes - 1),
                None => (fresh, 1),
            },
            None => (fresh, 1),
        };
        let jump_ms = rival.middle_ms() - known.middle_ms();
        let wall_jump_ms = rival.wall_ahead_ms - known.wall_ahead_ms;
        let wall_agrees = (jump_ms - wall_jump_ms).abs() <= WALL_TOLERANCE_MS;
        let is_young = self.responses <= YOUNG_RESPONSES;
        let is_restart = votes >= VOTES_MIN
            || (wall_agrees && votes >= VOTES_WITH_WALL_MIN)
            || (is_young && rival.distance_to_wall_ms() < known.distance_to_wall_ms());
        if !is_restart {
            self.rival = Some((rival, votes));
            return;
        }
        self.estimate = Some(rival);
        self.rival = Some((known, 0));
        self.agreeing = 1;
        self.lower_floor(known.low_ms);
    }

    fn lower_floor(&mut self, low_ms: i64) {
        self.floor_ms = Some(
            self.floor_ms
                .map_or(low_ms, |floor_ms| floor_ms.min(low_ms)),
        );
    }

    /// The lowest possible `store - monotonic` in milliseconds, without drift.
    fn lowest_ms(&self, known: &Estimate) -> i64 {
        self.floor_ms
            .map_or(known.low_ms, |floor_ms| floor_ms.min(known.low_ms))
    }
}

impl StoreClock {
    /// A clock without an estimate. It returns the local wall clock until the first observation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records the `Date` of a response, which has whole seconds, and the moments around its request.
    pub fn observe(&self, sent: Moment, received: Moment, date: Timestamp) {
        self.learn(sent, received, date, DATE_PRECISION_MS);
    }

    /// Records a time with millisecond precision and the moments around its request.
    pub fn observe_exact(&self, sent: Moment, received: Moment, time: Timestamp) {
        self.learn(sent, received, time, 1);
    }

    fn learn(&self, sent: Moment, received: Moment, shown: Timestamp, precision_ms: i64) {
        let (sent_ms, received_ms) = (millis(sent.steady), millis(received.steady));
        if received_ms < sent_ms {
            // The moments come from two runtimes and cannot be compared.
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
        self.lock().add(fresh);
    }

    /// The store's time: the midpoint of the possible interval.
    ///
    /// A better estimate can be slightly earlier than the previous one. In that case the returned time stays
    /// constant until the estimate catches up, so that no recorded event is in the future. A larger backward jump
    /// of the store's clock is followed.
    pub fn now(&self, at: Moment) -> Timestamp {
        let now_ms = self.lock().estimate.map_or(at.wall.as_millis(), |known| {
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

    /// The earliest possible store time. Use it to decide that a deadline has passed.
    pub fn earliest(&self, at: Moment) -> Timestamp {
        let state = self.lock();
        let earliest_ms = state.estimate.map_or(at.wall.as_millis(), |known| {
            let low_ms = (state.lowest_ms(&known)).saturating_sub(known.drift_ms(at.steady));
            low_ms.saturating_add(millis(at.steady))
        });
        Timestamp::from_millis(earliest_ms)
    }

    /// How far the store's clock is ahead of the local wall clock as of the last response, in milliseconds: the
    /// midpoint of the possible interval. 0 before the first response.
    pub fn offset_ms(&self) -> i64 {
        self.lock().estimate.map_or(0, |known| {
            known.middle_ms().saturating_sub(known.wall_ahead_ms)
        })
    }

    /// The maximum error of the offset in either direction, in milliseconds. `None` before the first response.
    pub fn uncertainty_ms(&self) -> Option<u64> {
        self.lock()
            .estimate
            .map(|known| known.high_ms.abs_diff(known.low_ms).div_ceil(2))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ClockState> {
        self.state
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

    /// The moment `steady_ms` after the start, with a correct wall clock.
    fn at(steady_ms: i64) -> Moment {
        set_ahead(steady_ms, 0)
    }

    /// The same moment with a wall clock that is `ahead_ms` ahead.
    fn set_ahead(steady_ms: i64, ahead_ms: i64) -> Moment {
        Moment {
            wall: Timestamp::from_millis(BEGIN_MS + steady_ms + ahead_ms),
            steady: Duration::from_millis(u64::try_from(steady_ms).unwrap()),
        }
    }

    /// The time of a store whose clock is `offset_ms` ahead.
    fn shown(served_ms: i64, offset_ms: i64) -> Timestamp {
        Timestamp::from_millis(BEGIN_MS + served_ms + offset_ms)
    }

    /// The `Date` header of a response served at that time.
    fn date(served_ms: i64, offset_ms: i64) -> Timestamp {
        let shown_ms = shown(served_ms, offset_ms).as_millis();
        Timestamp::from_millis(shown_ms - shown_ms.rem_euclid(1_000))
    }

    #[test]
    fn uses_the_wall_clock_before_the_first_response() {
        let clock = StoreClock::new();
        assert_eq!(clock.now(at(5)), at(5).wall);
        assert_eq!(clock.earliest(at(5)), at(5).wall);
        assert_eq!(clock.now(set_ahead(6, 60_000)), shown(6, 60_000));
        assert_eq!(clock.uncertainty_ms(), None);
        assert_eq!(clock.offset_ms(), 0);
    }

    #[test]
    fn many_responses_narrow_the_offset_to_the_round_trip() {
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
    fn the_fastest_response_with_millisecond_precision_decides() {
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
    fn setting_the_wall_clock_does_not_affect_store_time() {
        for ahead in [-60_000, -1_900, -700, 700, 2_010, 60_000] {
            let clock = StoreClock::new();
            clock.observe(at(0), at(30), date(10, 0));
            let before = clock.now(at(1_000));
            // Between two responses,
            assert_eq!(clock.now(set_ahead(1_000, ahead)), before);
            assert!(clock.earliest(set_ahead(1_000, ahead)) <= shown(1_000, 0));
            // while a request is in flight,
            clock.observe(at(2_000), set_ahead(2_040, ahead), date(2_020, 0));
            assert!(clock.earliest(set_ahead(2_040, ahead)) <= shown(2_040, 0));
            // and between a response and its use.
            clock.observe(at(3_000), at(3_040), date(3_020, 0));
            let now = clock.now(set_ahead(3_050, ahead));
            assert!(now.as_millis().abs_diff(shown(3_050, 0).as_millis()) <= 600);
            assert!(clock.earliest(set_ahead(3_050, ahead)) <= shown(3_050, 0));
        }
    }

    #[test]
    fn the_offset_is_relative_to_the_wall_clock_at_the_last_response() {
        let clock = StoreClock::new();
        clock.observe(at(0), at(30), date(10, 0));
        clock.observe(
            set_ahead(1_000, 60_000),
            set_ahead(1_030, 60_000),
            date(1_010, 0),
        );
        assert!((clock.offset_ms() + 60_000).abs() <= 600, "{clock:?}");
    }

    /// A clock that has learned from `responses` responses, one a second, each `offset(number)` ahead.
    fn learned(responses: i64, offset: impl Fn(i64) -> i64) -> StoreClock {
        let clock = StoreClock::new();
        for number in 0..responses {
            let sent = number * 1_000;
            clock.observe(at(sent), at(sent + 30), date(sent + 10, offset(number)));
        }
        clock
    }

    #[test]
    fn a_jump_of_the_stores_clock_restarts_the_estimate_when_responses_agree() {
        for jump in [-60_000, 60_000] {
            let clock = learned(20, |_| 0);
            let follow = |number: i64| {
                let sent = 20_000 + number * 1_000;
                clock.observe(at(sent), at(sent + 30), date(sent + 10, jump));
            };
            (0..11).for_each(follow);
            assert!(clock.offset_ms().abs() <= 600, "{clock:?}");
            follow(11);
            assert!((clock.offset_ms() - jump).abs() <= 600, "{clock:?}");
            // The earlier clock counts for a while.
            let lag = |second: i64| shown(second, jump).since(clock.earliest(at(second)));
            assert!(jump < 0 || lag(32_000).as_secs() >= 59, "{clock:?}");
            (12..50).for_each(follow);
            assert!(lag(70_000).as_secs() <= 1, "{clock:?}");
        }
    }

    #[test]
    fn a_gateway_that_is_ahead_ends_nothing_early_and_is_not_followed() {
        for bad in [-40_000, 40_000] {
            // Every third response comes through the wrong gateway, from the first, second or third on.
            for first in 0..3 {
                for count in 2..100 {
                    let offset = |number: i64| if number % 3 == first { bad } else { 0 };
                    let clock = learned(count, offset);
                    let now = at(count * 1_000);
                    assert!(clock.earliest(now) <= now.wall, "{count}: {clock:?}");
                    let off = clock.now(now).as_millis() - now.wall.as_millis();
                    assert!(off.abs() <= 1_100, "{count}: {off} {clock:?}");
                }
            }
        }
    }

    #[test]
    fn a_gateway_that_is_ahead_ends_nothing_early_on_a_machine_with_a_wrong_clock() {
        for wall_ahead in [-90_000, 90_000] {
            let clock = StoreClock::new();
            for number in 0..200 {
                let sent = number * 1_000;
                let offset = if number % 4 == 1 { 40_000 } else { 0 };
                let moment = |at_ms| set_ahead(at_ms, wall_ahead);
                clock.observe(moment(sent), moment(sent + 30), date(sent + 10, offset));
                let now = sent + 30;
                assert!(clock.earliest(moment(now)) <= shown(now, 0), "{clock:?}");
            }
            assert!((clock.offset_ms() + wall_ahead).abs() <= 1_100, "{clock:?}");
        }
    }

    #[test]
    fn the_first_responses_are_compared_with_the_wall_clock() {
        let clock = learned(1, |_| 40_000);
        assert!(clock.earliest(at(1_000)) <= shown(1_000, 0), "{clock:?}");
        let clock = learned(31, |_| 40_000);
        assert!(clock.earliest(at(31_000)) <= shown(31_000, 0), "{clock:?}");
        let clock = learned(32, |_| 40_000);
        assert!(
            clock.earliest(at(32_000)) > shown(32_000, 38_000),
            "{clock:?}"
        );
    }

    #[test]
    fn a_suspended_machine_is_behind_until_the_next_response() {
        let clock = StoreClock::new();
        clock.observe(at(0), at(30), date(10, 0));
        // An hour passes on the wall clock and the store's clock, but not on the monotonic clock.
        let woken = set_ahead(1_000, 3_600_000);
        assert!(clock.now(woken) < shown(1_000, 3_600_000));
        clock.observe(woken, set_ahead(1_030, 3_600_000), date(1_010, 3_600_000));
        assert!(clock.now(woken) < shown(1_000, 3_600_000));
        clock.observe(
            set_ahead(1_031, 3_600_000),
            set_ahead(1_039, 3_600_000),
            date(1_035, 3_600_000),
        );
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
    fn the_earliest_time_drifts_back_without_responses() {
        let clock = StoreClock::new();
        clock.observe_exact(at(0), at(2), shown(1, 0));
        let hour = at(3_600_000);
        let behind = hour.wall.since(clock.earliest(hour)).as_millis();
        assert!((720..=730).contains(&behind), "{behind}");
    }

    #[test]
    fn time_never_goes_back_for_a_better_estimate_but_follows_a_real_step_back() {
        let clock = StoreClock::new();
        // The first response allows an offset of up to a second. The second one shows that it is close to
        // zero.
        clock.observe(at(0), at(0), shown(0, 0));
        let early = clock.now(at(0));
        assert!(early > shown(0, 0));
        clock.observe(at(0), at(0), shown(0, -950));
        assert_eq!(clock.now(at(0)), early);
        assert!(clock.earliest(at(0)) <= shown(0, 0));
        assert!(clock.now(at(2_000)) > early);

        let before = clock.now(at(2_000));
        for _ in 0..VOTES_MIN {
            clock.observe(at(2_000), at(2_000), shown(2_000, -60_000));
        }
        assert!(clock.now(at(2_000)) < before.minus_millis(50_000));
    }
}
