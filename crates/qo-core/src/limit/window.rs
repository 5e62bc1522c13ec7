//! The starts within a window that ends now.
//!
//! Starts are counted in steps of a sixtieth of the window. A step counts until all of it is older than the window, so no window of this
//! length, wherever it begins, has more starts than allowed; a start may wait a sixtieth of the window longer than necessary. The size of the
//! record does not depend on the number of starts.

use serde::{Deserialize, Serialize};

use super::StartLimit;
use crate::time::Timestamp;

/// How many steps a window has.
const STEPS: u64 = 60;

/// The recent starts under a limit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StartWindow {
    /// The end of each step and the number of starts in it, oldest first.
    steps: Vec<(Timestamp, u32)>,
}

impl StartWindow {
    /// Whether nothing has started.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The number of starts that count at `now`.
    pub fn count(&self, limit: StartLimit, now: Timestamp) -> u32 {
        let counted = self
            .steps
            .iter()
            .filter(|(end, _)| counts(*end, limit, now));
        counted.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// How many more may start at `now`.
    pub fn room(&self, limit: StartLimit, now: Timestamp) -> u32 {
        limit.max.saturating_sub(self.count(limit, now))
    }

    /// When the next one may start, if that is later than `now`.
    pub fn opens_at(&self, limit: StartLimit, now: Timestamp) -> Option<Timestamp> {
        let mut count = self.count(limit, now);
        if count < limit.max {
            return None;
        }
        for (end, number) in self
            .steps
            .iter()
            .filter(|(end, _)| counts(*end, limit, now))
        {
            count = count.saturating_sub(*number);
            if count < limit.max {
                return Some(end.plus_millis(limit.window_ms));
            }
        }
        None
    }

    /// Records a start, and forgets what no longer counts.
    pub fn record(&mut self, limit: StartLimit, now: Timestamp) {
        self.steps.retain(|(end, _)| counts(*end, limit, now));
        if let Some((end, count)) = self.steps.last_mut()
            // A clock that was set back must not make a start count for less long.
            && now < *end
        {
            *count = count.saturating_add(1);
            return;
        }
        self.steps.push((step_end(limit, now), 1));
    }

    /// Takes back a start that was recorded at `at` and did not happen.
    ///
    /// It is taken from the step that `at` is in, and never from a later one, whose starts count for longer. If that step no longer exists,
    /// nothing changes.
    pub fn refund(&mut self, limit: StartLimit, at: Timestamp) {
        let step = self.steps.iter_mut().find(|(end, _)| *end > at);
        if let Some((_, count)) = step.filter(|(end, _)| *end <= step_end(limit, at)) {
            *count = count.saturating_sub(1);
        }
        self.steps.retain(|(_, count)| *count > 0);
    }
}

fn counts(end: Timestamp, limit: StartLimit, now: Timestamp) -> bool {
    end.plus_millis(limit.window_ms) > now
}

/// The end of the step that `now` is in.
fn step_end(limit: StartLimit, now: Timestamp) -> Timestamp {
    let width = i64::try_from((limit.window_ms / STEPS).max(1)).unwrap_or(i64::MAX);
    let number = now.as_millis().div_euclid(width);
    Timestamp::from_millis(number.saturating_add(1).saturating_mul(width))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    proptest! {
        #[test]
        fn no_window_has_more_starts_than_allowed(
            max in 1u32..6,
            window_ms in 1_000u64..200_000,
            waits in proptest::collection::vec(0i64..40_000, 1..200),
        ) {
            let limit = StartLimit { max, window_ms };
            let window_millis = i64::try_from(window_ms).unwrap();
            let (mut window, mut starts, mut now) = (StartWindow::default(), Vec::new(), 1_000_000);
            for wait in waits {
                now += wait;
                match window.opens_at(limit, at(now)) {
                    None => {
                        prop_assert!(window.room(limit, at(now)) > 0);
                        window.record(limit, at(now));
                        starts.push(now);
                    }
                    Some(opens) => {
                        prop_assert!(opens > at(now));
                        prop_assert_eq!(window.room(limit, at(now)), 0);
                        // It opens at the time that it says, and at most a step after the window has passed.
                        prop_assert!(window.room(limit, opens) > 0);
                        let first = starts[starts.len() - usize::try_from(max).unwrap()];
                        let step = window_millis / 60 + 1;
                        prop_assert!(opens.as_millis() <= first + window_millis + step);
                    }
                }
                prop_assert!(window.steps.len() <= 62);
            }
            for (index, first) in starts.iter().enumerate() {
                let within = starts[index..].iter().take_while(|start| **start < first + window_millis);
                prop_assert!(within.count() <= usize::try_from(max).unwrap());
            }
        }
    }

    proptest! {
        #[test]
        fn no_window_has_more_starts_than_allowed_if_some_are_taken_back(
            max in 1u32..6,
            window_ms in 1_000u64..20_000,
            // How much later the next claim begins, how long it takes, and whether it starts.
            claims in proptest::collection::vec((0i64..4_000, 0i64..4_000, any::<bool>()), 1..200),
        ) {
            let limit = StartLimit { max, window_ms };
            let window_millis = i64::try_from(window_ms).unwrap();
            let (mut window, mut starts, mut now) = (StartWindow::default(), Vec::new(), 1_000_000);
            // When a claim is taken back, and when it took its slot.
            let mut failing: Vec<(i64, i64)> = Vec::new();
            for (wait, takes, succeeds) in claims {
                now += wait;
                failing.sort_unstable();
                while let Some((_, taken)) = failing.first().copied().filter(|(end, _)| *end <= now) {
                    failing.remove(0);
                    window.refund(limit, at(taken));
                }
                if window.opens_at(limit, at(now)).is_some() {
                    continue;
                }
                window.record(limit, at(now));
                if succeeds {
                    starts.push(now);
                } else {
                    failing.push((now + takes, now));
                }
            }
            for (index, first) in starts.iter().enumerate() {
                let within = starts[index..].iter().take_while(|start| **start < first + window_millis);
                prop_assert!(within.count() <= usize::try_from(max).unwrap());
            }
        }
    }

    #[test]
    fn a_refund_makes_room_and_a_clock_set_back_does_not() {
        let limit = StartLimit {
            max: 2,
            window_ms: 60_000,
        };
        let mut window = StartWindow::default();
        window.record(limit, at(100_000));
        window.record(limit, at(100_000));
        assert_eq!(window.room(limit, at(90_000)), 0);
        assert_eq!(window.opens_at(limit, at(90_000)), Some(at(161_000)));
        window.refund(limit, at(100_000));
        assert_eq!(window.room(limit, at(100_000)), 1);
        window.record(limit, at(95_000));
        assert_eq!(window.steps, [(at(101_000), 2)]);
        assert_eq!(window.room(limit, at(161_000)), 2);
    }
}
