//! How often, and for how long, a request is tried again.
//!
//! The pause before try `n + 1` is drawn from the whole of `0 ..= min(cap, base * 2^n)`: full jitter, so that clients which
//! failed together do not come back together. A store that asked to be left alone gets a larger base. A request ends
//! with its time or its tries, whichever runs out first, and no pause is begun that would outlast the time.

use std::time::Duration;

use crate::runtime::{Runtime, RuntimeExt};

/// How a client tries again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryConfig {
    /// The longest first pause.
    pub base: Duration,
    /// The longest first pause after the store asked for fewer requests.
    pub throttled_base: Duration,
    /// The longest pause of all.
    pub cap: Duration,
    /// How long one operation may take, pauses included.
    pub budget: Duration,
    /// How many times one request may be sent.
    pub attempts_max: u32,
    /// How long to wait for one answer before it counts as lost. Less than the budget, so that one lost packet is not the end.
    pub request_timeout: Duration,
    /// How long a write in doubt may still be looked for when the budget is used up.
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

/// What one operation may still spend.
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

    /// The budget for finding out what became of a write: the rest of the operation's, and never too little for a read.
    pub(super) fn for_settling(&self) -> Self {
        Self {
            started: self.runtime.monotonic(),
            limit: self.remaining().max(self.config.settle),
            attempts: 0,
            ..*self
        }
    }

    /// Counts one more request, and says how long its answer may take.
    pub(super) fn next_timeout(&mut self) -> Duration {
        self.attempts += 1;
        self.config.request_timeout.min(self.remaining())
    }

    /// How many requests were sent.
    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How long the operation has taken.
    pub(super) fn elapsed(&self) -> Duration {
        self.runtime.monotonic().saturating_sub(self.started)
    }

    /// Waits before the next try. False, at once, if there is to be none.
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
    async fn pauses_fill_the_whole_of_a_doubling_range_up_to_the_cap() {
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
    async fn ends_with_its_time_and_never_sleeps_past_it() {
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
    async fn ends_with_its_tries() {
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
