//! The stream of sample tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qo::Queue;
use qo_store::runtime::Runtime;

use super::demo;

/// Number of tasks to submit at the start, so that the view is not empty.
const INITIAL_TASKS: u64 = 4;

/// Minimum pause between two submits. At high rates, each submit contains several tasks.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The stream of sample tasks. Clones share the count.
#[derive(Debug, Clone)]
pub(super) struct Samples {
    per_second: f64,
    duration: Duration,
    started: Duration,
    submitted: Arc<AtomicU64>,
}

impl Samples {
    pub(super) fn new(per_second: f64, duration: Duration, runtime: &dyn Runtime) -> Self {
        Self {
            per_second,
            duration,
            started: runtime.monotonic(),
            submitted: Arc::default(),
        }
    }

    /// The number of submitted tasks.
    pub(super) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Relaxed)
    }

    /// Time until the stream ends; `None` if it has ended.
    pub(super) fn left(&self, runtime: &dyn Runtime) -> Option<Duration> {
        let elapsed = runtime.monotonic().saturating_sub(self.started);
        let left = self.duration.saturating_sub(elapsed);
        (self.per_second > 0.0 && !left.is_zero()).then_some(left)
    }

    pub(super) fn per_second(&self) -> f64 {
        self.per_second
    }

    /// The number of tasks that should have been submitted by now.
    fn due(&self, elapsed: Duration) -> u64 {
        if self.per_second <= 0.0 {
            return 0;
        }
        let elapsed = elapsed.min(self.duration).as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate of at most 1,000 for at most a year"
        )]
        let due = (elapsed * self.per_second) as u64;
        due + INITIAL_TASKS
    }

    /// Submits tasks until the time is over. Tasks that could not be submitted are retried in the next round.
    pub(super) async fn submit(&self, queue: &Queue) {
        let runtime = queue.runtime();
        let pause = Duration::from_secs_f64(1.0 / self.per_second.clamp(0.1, 1_000.0));
        while self.left(runtime.as_ref()).is_some() {
            let elapsed = runtime.monotonic().saturating_sub(self.started);
            let missing = self.due(elapsed).saturating_sub(self.submitted());
            let requests: Result<Vec<_>, _> = (0..missing.min(500))
                .map(|_| demo::sample(queue, runtime.as_ref()))
                .collect();
            match requests {
                Ok(requests) if requests.is_empty() => {}
                Ok(requests) => {
                    for result in queue.submit_many(requests).await {
                        match result {
                            Ok(_) => {
                                self.submitted.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => tracing::warn!(%error, "cannot submit a sample task"),
                        }
                    }
                }
                Err(error) => tracing::error!(%error, "cannot build sample tasks"),
            }
            runtime.sleep(pause.max(PAUSE_MIN)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use qo_store::runtime::TokioRuntime;

    use super::*;

    #[test]
    fn samples_keep_the_rate_and_end() {
        let runtime = TokioRuntime::shared();
        let samples = Samples::new(2.5, Duration::from_secs(10), runtime.as_ref());
        assert_eq!(samples.due(Duration::ZERO), INITIAL_TASKS);
        assert_eq!(samples.due(Duration::from_secs(4)), INITIAL_TASKS + 10);
        assert_eq!(samples.due(Duration::from_secs(400)), INITIAL_TASKS + 25);
        let none = Samples::new(0.0, Duration::from_secs(10), runtime.as_ref());
        assert_eq!(none.due(Duration::from_secs(4)), 0);
        assert!(none.left(runtime.as_ref()).is_none());
    }
}
