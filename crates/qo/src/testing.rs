//! For tests of handlers: a queue in memory with a manual clock. Needs the feature `test-util`.
//!
//! ```
//! use std::time::Duration;
//! use qo::{Context, TaskError, TaskInput, Worker};
//!
//! # #[derive(serde::Deserialize)]
//! # struct Flaky;
//! # impl TaskInput for Flaky { const TYPE: &'static str = "flaky"; }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (queue, clock) = qo::testing::memory_queue()?;
//! queue.task("flaky", &())?.submit().await?;
//! let worker = Worker::builder(queue)
//!     .handle::<Flaky>(async |_: Flaky, context: Context| match context.attempt() {
//!         1 => Err(TaskError::retryable("the first attempt fails")),
//!         _ => Ok(()),
//!     })
//!     .build()?;
//!
//! assert_eq!(worker.drain().await?.retried, 1);
//! assert_eq!(worker.drain().await?.attempts(), 0); // the retry is not due yet
//! clock.advance(Duration::from_secs(2));
//! assert_eq!(worker.drain().await?.completed, 1);
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use qo_core::Timestamp;
use qo_direct::DirectConfig;
use qo_direct::DirectEngine;
use qo_store::client::ClientConfig;
use qo_store::runtime::{BoxFuture, Runtime, TokioRuntime};
use qo_store::wrap::SplitMix64;
use qo_store::{OpenOptions, StoreClient, open};

use crate::error::Error;
use crate::lock;
use crate::queue::Queue;

/// Creates a private queue in memory, and its clock.
///
/// Time stands still until [`TestClock::advance`]: a task with a delay of one second is due after
/// `clock.advance(Duration::from_secs(1))`. Everything that waits for the queue's time waits for that call, including
/// [`Queue::wait`]. Random numbers, and so task ids and the jitter of retries, are the same in every run. Everything runs on the
/// caller's tokio runtime.
pub fn memory_queue() -> Result<(Queue, TestClock), Error> {
    let clock = TestClock::new();
    let runtime: Arc<dyn Runtime> = Arc::new(clock.clone());
    let store = open("memory:", &OpenOptions::new(Arc::clone(&runtime)))?;
    let client = StoreClient::new(
        Arc::clone(&store.objects),
        Arc::clone(&store.clock),
        Arc::clone(&runtime),
        ClientConfig::default(),
    );
    let engine = DirectEngine::new(client, None, Arc::clone(&runtime), DirectConfig::local());
    let queue = Queue::direct(engine, runtime, store, BTreeMap::new());
    Ok((queue, clock))
}

/// A manual clock. Clones share the time.
#[derive(Clone)]
pub struct TestClock {
    state: Arc<Mutex<ClockState>>,
    started_at: Timestamp,
}

struct ClockState {
    elapsed: Duration,
    random: SplitMix64,
    /// Wakers by wake time and a unique number.
    sleepers: BTreeMap<(Duration, u64), Waker>,
    sleeps: u64,
}

impl TestClock {
    fn new() -> Self {
        Self {
            // The memory store stamps objects with the system time, so the clock starts there.
            started_at: TokioRuntime::shared().now(),
            state: Arc::new(Mutex::new(ClockState {
                elapsed: Duration::ZERO,
                random: SplitMix64::new(0),
                sleepers: BTreeMap::new(),
                sleeps: 0,
            })),
        }
    }

    /// Advances the clock and wakes the sleeping futures that are due.
    pub fn advance(&self, duration: Duration) {
        let woken: Vec<Waker> = {
            let mut state = lock(&self.state);
            state.elapsed = state.elapsed.saturating_add(duration);
            let now = state.elapsed;
            let asleep = state.sleepers.split_off(&(now, u64::MAX));
            std::mem::replace(&mut state.sleepers, asleep)
                .into_values()
                .collect()
        };
        for waker in woken {
            waker.wake();
        }
    }

    /// The current time of the clock.
    pub fn now(&self) -> Timestamp {
        let elapsed_ms = u64::try_from(lock(&self.state).elapsed.as_millis()).unwrap_or(u64::MAX);
        self.started_at.plus_millis(elapsed_ms)
    }
}

impl fmt::Debug for TestClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestClock")
            .field("now", &self.now())
            .finish()
    }
}

impl Runtime for TestClock {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }

    fn monotonic(&self) -> Duration {
        lock(&self.state).elapsed
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        let mut state = lock(&self.state);
        state.sleeps += 1;
        Box::pin(Sleep {
            key: (state.elapsed.saturating_add(duration), state.sleeps),
            state: Arc::clone(&self.state),
        })
    }

    #[expect(clippy::disallowed_methods, reason = "this is a runtime")]
    fn spawn(&self, future: BoxFuture<()>) {
        tokio::spawn(future);
    }

    fn random(&self) -> u64 {
        lock(&self.state).random.next_u64()
    }
}

/// Waits until the clock reaches a time.
struct Sleep {
    state: Arc<Mutex<ClockState>>,
    key: (Duration, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.elapsed >= self.key.0 {
            return Poll::Ready(());
        }
        state.sleepers.insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        lock(&self.state).sleepers.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn sleeping_futures_wake_when_due() {
        let clock = TestClock::new();
        let start = clock.now();
        let mut short = clock.sleep(Duration::from_secs(1));
        let mut long = clock.sleep(Duration::from_mins(1));
        assert!((&mut short).now_or_never().is_none());
        assert!((&mut long).now_or_never().is_none());
        clock.advance(Duration::from_secs(1));
        assert!((&mut short).now_or_never().is_some());
        assert!((&mut long).now_or_never().is_none());
        assert_eq!(clock.now(), start.plus_millis(1_000));
        drop(long);
        assert!(lock(&clock.state).sleepers.is_empty(), "no waker remains");
    }
}
