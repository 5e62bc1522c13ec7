//! The interface to the runtime: time, sleeping, spawning and randomness.
//!
//! Stores, engines and workers receive a [`Runtime`] at construction. In production it is [`TokioRuntime`]. The
//! simulator supplies its own and thereby runs the code that ships. A lint in `clippy.toml` bans clocks and random
//! numbers elsewhere.

mod usage;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use qo_core::{LeaseId, OpId, TaskId, Timestamp};

pub use self::usage::ProcessUsage;

/// A boxed future without borrowed data.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Time, sleeping, spawning and randomness.
pub trait Runtime: Debug + Send + Sync + 'static {
    /// The local wall clock. It may jump, so safety must not depend on it.
    fn now(&self) -> Timestamp;

    /// Time since a fixed point in this process. It never goes backwards and cannot be set, so use it to measure
    /// durations. It advances while the process is stopped. Whether it advances while the machine is suspended
    /// depends on the system; on Linux it does not.
    fn monotonic(&self) -> Duration;

    /// Sleeps.
    fn sleep(&self, duration: Duration) -> BoxFuture<()>;

    /// Runs a future in the background. When the process ends, the future is dropped, not awaited.
    fn spawn(&self, future: BoxFuture<()>);

    /// 64 random bits.
    fn random(&self) -> u64;

    /// What this process uses of its machine, for display. Nothing if the system does not tell, or if runs must be repeatable.
    fn process_usage(&self) -> Option<ProcessUsage> {
        None
    }
}

/// Readings of both local clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The wall clock, which can be set.
    pub wall: Timestamp,
    /// The monotonic clock, which cannot.
    pub steady: Duration,
}

/// Helpers for every [`Runtime`].
pub trait RuntimeExt: Runtime {
    /// Reads both local clocks.
    fn moment(&self) -> Moment {
        Moment {
            wall: self.now(),
            steady: self.monotonic(),
        }
    }

    /// 128 random bits.
    fn random_u128(&self) -> u128 {
        (u128::from(self.random()) << 64) | u128::from(self.random())
    }

    /// A random number from 0 up to, not including, 1.
    fn random_unit(&self) -> f64 {
        // The 53 bits that a double represents exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit into a double")]
        let numerator = (self.random() >> 11) as f64;
        numerator / 9_007_199_254_740_992.0
    }

    /// A random number below `bound`, or 0 if the bound is 0.
    fn random_below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.random() % bound }
    }

    /// A new task id, by the local clock.
    fn new_task_id(&self) -> TaskId {
        TaskId::from_time(self.now(), self.random_u128())
    }

    /// A new lease id.
    fn new_lease_id(&self) -> LeaseId {
        LeaseId::from_random(self.random_u128())
    }

    /// A new operation id.
    fn new_op_id(&self) -> OpId {
        OpId::from_random(self.random_u128())
    }
}

impl<W: Runtime + ?Sized> RuntimeExt for W {}

/// The production runtime: the machine's clocks and random numbers, and the caller's tokio runtime.
#[derive(Debug)]
pub struct TokioRuntime(());

/// The origin of the monotonic clock. All runtimes of a process share it, so their readings are comparable.
#[expect(
    clippy::disallowed_methods,
    reason = "this implements the runtime interface"
)]
static STARTED: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

impl TokioRuntime {
    /// The production runtime in an `Arc`.
    pub fn shared() -> Arc<dyn Runtime> {
        Arc::new(Self(()))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this implements the runtime interface"
)]
impl Runtime for TokioRuntime {
    fn now(&self) -> Timestamp {
        let since_1970 = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        STARTED.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, future: BoxFuture<()>) {
        tokio::spawn(future);
    }

    fn random(&self) -> u64 {
        rand::random()
    }

    fn process_usage(&self) -> Option<ProcessUsage> {
        ProcessUsage::of_this_process()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_stay_in_their_bounds() {
        let runtime = TokioRuntime::shared();
        for _ in 0..1_000 {
            assert!((0.0..1.0).contains(&runtime.random_unit()));
            assert!(runtime.random_below(7) < 7);
        }
        assert_eq!(runtime.random_below(0), 0);
        assert_ne!(runtime.new_task_id(), runtime.new_task_id());
    }

    #[test]
    fn all_runtimes_of_a_process_share_one_monotonic_clock() {
        let (one, other) = (TokioRuntime::shared(), TokioRuntime::shared());
        let times = [&one, &other, &one, &other].map(|runtime| runtime.monotonic());
        assert!(times.is_sorted(), "{times:?}");
    }
}
