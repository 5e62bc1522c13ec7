//! Retry timing.
//!
//! The pause before attempt `n + 1` is uniform in `0 ..= min(cap, base * 2^n)`: full jitter, so that clients which
//! failed together do not retry together. After throttling, the base is larger. An operation ends when its time or
//! its attempts run out, whichever comes first. A pause that would exceed the remaining time is not started.

use std::time::Duration;

use crate::runtime::{Runtime, RuntimeExt};

/// Retry settings of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryConfig {
    /// The maximum of the first pause.
    pub base: Duration,
    /// The maximum of the first pause after the store throttled a request.
    pub throttled_base: Duration,
    /// The maximum of every pause.
    pub cap: Duration,
    /// The time limit of one operation, including pauses.
    pub budget: Duration,
    /// The maximum number of attempts.
    pub attempts_max: u32,
    /// How long to wait for one response. It is less than the budget, so that a lost packet does not end the
    /// operation.
    pub request_timeout: Duration,
    /// Additional time to settle a write in doubt after the budget is exhausted.
    pub settle: Duration,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(50),
            throttled_base: Duration::from_millis(500),
            cap: Duration::from_secs(5),
            budget: Duration::from_secs(30),
            attempts_max: 12,
            request_timeout: Duration::from_secs(15),
            settle: Duration::from_secs(10),
        }
    }
}

/// The remaining time and attempts of one operation.
#[derive(Debug)]
pub(super) struct Budget<'a> {
    runtime: &'a dyn Runtime,
    config: &'a RetryConfig,
    started: Duration,
    limit: Duration,
    attempts: u32,
}

impl<'a> Budget<'a> {
    /// The budget of an operation that starts now.
    pub(super) fn new(runtime: &'a dyn Runtime, config: &'a RetryConfig) -> Self {
        Self {
            runtime,
            config,
            started: runtime.monotonic(),
            limit: config.budget,
            attempts: 0,
        }
    }

    /// The budget for settling a write: the rest of the operation's time, but at least `settle`.
    pub(super) fn for_settling(&self) -> Self {
        Self {
            started: self.runtime.monotonic(),
            limit: self.remaining().max(self.config.settle),
            attempts: 0,
            ..*self
        }
    }

    /// Counts one more attempt and returns its timeout.
    pub(super) fn next_timeout(&mut self) -> Duration {
        self.attempts += 1;
        self.config.request_timeout.min(self.remaining())
    }

    /// The number of attempts so far.
    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The time spent so far.
    pub(super) fn elapsed(&self) -> Duration {
        self.runtime.monotonic().saturating_sub(self.started)
    }

    /// Waits before the next attempt. Returns false immediately if the budget is exhausted.
    pub(super) async fn pause(&self, throttled: bool) -> bool {
        if self.attempts >= self.config.attempts_max {
            return false;
        }
        let pause = self.draw_pause(throttled);
        if pause >= self.remaining() {
            return false;
        }
        self.runtime.sleep(pause).await;
        true
    }

    fn draw_pause(&self, throttled: bool) -> Duration {
        let base = if throttled {
            self.config.throttled_base
        } else {
            self.config.base
        };
        let doublings = self.attempts.saturating_sub(1).min(31);
        let longest = base.saturating_mul(1 << doublings).min(self.config.cap);
        let longest_us = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX - 1);
        Duration::from_micros(self.runtime.random_below(longest_us.saturating_add(1)))
    }

    fn remaining(&self) -> Duration {
        self.limit.saturating_sub(self.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrap::testing::PausableRuntime;

    fn config() -> RetryConfig {
        RetryConfig {
            base: Duration::from_millis(10),
            throttled_base: Duration::from_millis(100),
            cap: Duration::from_millis(400),
            budget: Duration::from_secs(2),
            attempts_max: 100,
            request_timeout: Duration::from_secs(1),
            settle: Duration::from_millis(300),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_are_spread_over_a_doubling_range_up_to_the_cap() {
        let runtime = PausableRuntime::new(1);
        let config = config();
        for (throttled, sent, longest_ms) in [
            (false, 1, 10),
            (false, 2, 20),
            (false, 4, 80),
            (false, 40, 400),
            (true, 1, 100),
            (true, 2, 200),
            (true, 99, 400),
        ] {
            let mut budget = Budget::new(&runtime, &config);
            budget.attempts = sent;
            let pauses: Vec<_> = (0..500).map(|_| budget.draw_pause(throttled)).collect();
            let longest = Duration::from_millis(longest_ms);
            assert!(pauses.iter().all(|pause| *pause <= longest));
            assert!(pauses.iter().any(|pause| *pause > longest * 9 / 10));
            assert!(pauses.iter().any(|pause| *pause < longest / 10));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ends_when_time_runs_out_and_never_sleeps_past_it() {
        let runtime = PausableRuntime::new(2);
        let config = config();
        let mut budget = Budget::new(&runtime, &config);
        budget.next_timeout();
        while budget.pause(true).await {
            budget.next_timeout();
        }
        assert!(budget.elapsed() <= config.budget);
        assert!(budget.attempts() > 5, "{budget:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn ends_when_attempts_run_out() {
        let runtime = PausableRuntime::new(3);
        let config = RetryConfig {
            attempts_max: 3,
            ..config()
        };
        let mut budget = Budget::new(&runtime, &config);
        budget.next_timeout();
        while budget.pause(false).await {
            budget.next_timeout();
        }
        assert_eq!(budget.attempts(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_never_outlasts_the_budget_and_settling_has_time_of_its_own() {
        let runtime = PausableRuntime::new(4);
        let config = config();
        let mut budget = Budget::new(&runtime, &config);
        assert_eq!(budget.next_timeout(), Duration::from_secs(1));
        runtime.sleep(Duration::from_millis(1_500)).await;
        assert_eq!(budget.next_timeout(), Duration::from_millis(500));
        assert_eq!(
            budget.for_settling().next_timeout(),
            Duration::from_millis(500)
        );
        runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(budget.next_timeout(), Duration::ZERO);
        assert_eq!(
            budget.for_settling().next_timeout(),
            Duration::from_millis(300)
        );
    }
}
