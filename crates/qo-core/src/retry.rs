//! The delay of a failed task before its next attempt.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::extra::Extra;
use crate::limits::{DELAY_MAX_MS, RETRIES_MAX};
use crate::mix::mix;

/// Exponential backoff with jitter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// The delay before the first retry.
    pub initial_interval_ms: u64,
    /// The maximum delay, including jitter.
    pub max_interval_ms: u64,
    /// The factor from one delay to the next.
    pub multiplier: f64,
    /// The maximum deviation of a delay in either direction, as a fraction: 0.25 is plus or minus 25%.
    pub jitter_percent: f64,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Why a retry policy is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidRetryPolicy {
    /// A delay is longer than a year.
    #[error("a retry interval must be at most a year ({DELAY_MAX_MS} ms)")]
    IntervalTooLong,
    /// The first delay exceeds the maximum.
    #[error("initial_interval_ms must not be larger than max_interval_ms")]
    InitialAboveMax,
    /// The multiplier is below 1, too large or not a number.
    #[error("multiplier must be a number from 1 to 100")]
    Multiplier,
    /// The jitter is not a fraction.
    #[error("jitter_percent must be a number from 0 to 1 (0.25 is plus or minus 25%)")]
    Jitter,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl RetryPolicy {
    /// The policy of tasks that are submitted without one.
    pub const DEFAULT: Self = Self {
        initial_interval_ms: 1_000,
        max_interval_ms: 60_000,
        multiplier: 2.0,
        jitter_percent: 0.25,
        extra: Extra::NONE,
    };

    /// Validates the policy.
    pub fn validate(&self) -> Result<(), InvalidRetryPolicy> {
        if self.max_interval_ms > DELAY_MAX_MS {
            return Err(InvalidRetryPolicy::IntervalTooLong);
        }
        if self.initial_interval_ms > self.max_interval_ms {
            return Err(InvalidRetryPolicy::InitialAboveMax);
        }
        if !(1.0..=100.0).contains(&self.multiplier) {
            return Err(InvalidRetryPolicy::Multiplier);
        }
        if !(0.0..=1.0).contains(&self.jitter_percent) {
            return Err(InvalidRetryPolicy::Jitter);
        }
        Ok(())
    }

    /// The delay before retry number `retry`, counted from 0.
    ///
    /// It uses only multiplication, whose result is the same on every machine, because replicas must agree on it.
    pub fn backoff_ms(&self, retry: u32, jitter: Jitter) -> u64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a year of milliseconds fits in a double"
        )]
        let max_ms = self.max_interval_ms.min(DELAY_MAX_MS) as f64;
        #[expect(
            clippy::cast_precision_loss,
            reason = "it is limited to the maximum delay below"
        )]
        let mut wait_ms = (self.initial_interval_ms as f64).min(max_ms);
        if self.multiplier > 1.0 && wait_ms > 0.0 {
            for _ in 0..retry.min(RETRIES_MAX) {
                wait_ms *= self.multiplier;
                if wait_ms >= max_ms {
                    wait_ms = max_ms;
                    break;
                }
            }
        }
        let spread = self.jitter_percent.clamp(0.0, 1.0) * (2.0 * jitter.unit() - 1.0);
        let jittered_ms = (wait_ms * (1.0 + spread)).clamp(0.0, max_ms);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and a year of milliseconds, and fractions do not matter"
        )]
        let whole_ms = jittered_ms as u64;
        whole_ms
    }
}

/// A random value from the caller that spreads delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Jitter(u32);

impl Jitter {
    /// No jitter.
    pub const NONE: Self = Self(1 << 31);

    /// Creates a jitter from 32 random bits.
    pub fn new(random: u32) -> Self {
        Self(random)
    }

    /// The jitter of the `index`-th of many tasks that one command moves, so that they do not all become due at
    /// once.
    #[must_use]
    pub fn nth(self, index: usize) -> Self {
        let mixed = mix((u64::from(self.0) << 32) ^ index as u64);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "32 of the 64 mixed bits are enough"
        )]
        let low = mixed as u32;
        Self(low)
    }

    fn unit(self) -> f64 {
        f64::from(self.0) / 4_294_967_296.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> RetryPolicy {
        RetryPolicy {
            jitter_percent: 0.0,
            ..RetryPolicy::default()
        }
    }

    #[test]
    fn delays_double_up_to_the_maximum() {
        let waits: Vec<_> = (0..8)
            .map(|retry| plain().backoff_ms(retry, Jitter::NONE))
            .collect();
        assert_eq!(
            waits,
            [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
        );
        assert_eq!(plain().backoff_ms(u32::MAX, Jitter::NONE), 60_000);
    }

    #[test]
    fn jitter_stays_within_its_bounds_and_reaches_them() {
        let policy = RetryPolicy {
            max_interval_ms: 10_000,
            ..RetryPolicy::default()
        };
        assert_eq!(policy.backoff_ms(0, Jitter::new(0)), 750);
        assert_eq!(policy.backoff_ms(0, Jitter::NONE), 1_000);
        assert_eq!(policy.backoff_ms(0, Jitter::new(u32::MAX)), 1_249);
        assert_eq!(policy.backoff_ms(20, Jitter::new(u32::MAX)), 10_000);
        let spread: std::collections::BTreeSet<_> = (0..100)
            .map(|i| policy.backoff_ms(0, Jitter::new(7).nth(i)))
            .collect();
        assert!(spread.len() > 50, "{spread:?}");
        assert!(spread.iter().all(|wait| (750..1_250).contains(wait)));
    }

    #[test]
    fn invalid_policies_are_rejected() {
        let with = |change: fn(&mut RetryPolicy)| {
            let mut policy = RetryPolicy::default();
            change(&mut policy);
            policy.validate()
        };
        assert_eq!(with(|_| ()), Ok(()));
        assert_eq!(
            with(|p| p.max_interval_ms = u64::MAX),
            Err(InvalidRetryPolicy::IntervalTooLong)
        );
        assert_eq!(
            with(|p| p.initial_interval_ms = 60_001),
            Err(InvalidRetryPolicy::InitialAboveMax)
        );
        for multiplier in [0.5, -1.0, f64::NAN, f64::INFINITY] {
            let policy = RetryPolicy {
                multiplier,
                ..plain()
            };
            assert_eq!(policy.validate(), Err(InvalidRetryPolicy::Multiplier));
        }
        for jitter_percent in [-0.1, 1.1, f64::NAN] {
            let policy = RetryPolicy {
                jitter_percent,
                ..plain()
            };
            assert_eq!(policy.validate(), Err(InvalidRetryPolicy::Jitter));
        }
    }

    #[test]
    fn an_invalid_stored_policy_is_harmless() {
        let hostile = RetryPolicy {
            initial_interval_ms: u64::MAX,
            max_interval_ms: u64::MAX,
            multiplier: f64::INFINITY,
            jitter_percent: 1e300,
            extra: Extra::default(),
        };
        assert!(hostile.backoff_ms(u32::MAX, Jitter::new(u32::MAX)) <= DELAY_MAX_MS);
    }
}
