//! The one seam to the outside runtime: time, sleeping, spawning and randomness.
//!
//! Stores, engines and workers take all four from a [`Runtime`] that they are given at construction. In production that is
//! [`TokioRuntime`]; the simulator gives its own, and so drives the very code that ships. The lint that bans clocks and
//! randomness elsewhere is in `clippy.toml`.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use qo_core::{LeaseId, OpId, TaskId, Timestamp};

/// A future that owns what it needs.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Time, sleeping, spawning and randomness.
pub trait Runtime: Debug + Send + Sync + 'static {
    /// What the local wall clock shows. It may jump; nothing safe may rest on it.
    fn now(&self) -> Timestamp;

    /// Time since some fixed point in this process. It never goes back and cannot be set; use it to measure how long something took.
    /// It goes on while the process is stopped. Whether it does while the whole machine is suspended depends on the system: on
    /// Linux it stands still.
    fn monotonic(&self) -> Duration;

    /// Waits.
    fn sleep(&self, duration: Duration) -> BoxFuture<()>;

    /// Runs a future beside the caller. It is dropped, not awaited, when the process ends.
    fn spawn(&self, future: BoxFuture<()>);

    /// 64 random bits.
    fn random(&self) -> u64;
}

/// What both local clocks show at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The wall clock, which can be set.
    pub wall: Timestamp,
    /// The monotonic clock, which cannot.
    pub steady: Duration,
}

/// What every [`Runtime`] can do with its clocks and its random bits.
pub trait RuntimeExt: Runtime {
    /// What both local clocks show.
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
        // The 53 bits that a double can hold exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit into a double")]
        let numerator = (self.random() >> 11) as f64;
        numerator / 9_007_199_254_740_992.0
    }

    /// A random number below `bound`, or 0 if the bound is 0.
    fn random_below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.random() % bound }
    }

    /// A new task id.
    fn new_task_id(&self) -> TaskId {
        TaskId::from_random(self.random_u128())
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

/// The real runtime: the machine's clocks and random numbers, and the tokio runtime that the caller runs in.
#[derive(Debug)]
pub struct TokioRuntime(());

/// Where the monotonic clock begins. All of a process's runtimes share it, so that what one has measured means the same to another.
#[expect(clippy::disallowed_methods, reason = "this is the seam")]
static STARTED: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

impl TokioRuntime {
    /// The real runtime, ready to be shared.
    pub fn shared() -> Arc<dyn Runtime> {
        Arc::new(Self(()))
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the seam")]
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
    fn all_worlds_of_a_process_have_one_monotonic_clock() {
        let (one, other) = (TokioRuntime::shared(), TokioRuntime::shared());
        let times = [&one, &other, &one, &other].map(|runtime| runtime.monotonic());
        assert!(times.is_sorted(), "{times:?}");
    }
}
