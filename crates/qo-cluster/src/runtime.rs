//! openraft's runtime, on top of the runtime that the node was given.
//!
//! openraft asks its runtime for time, sleeping, spawning and randomness through functions without a receiver. So each thread knows the
//! runtime of the future that it polls: [`enter`] wraps a future so that every poll sets it, and everything that openraft spawns is wrapped
//! in turn. Nodes with different runtimes can thus share a thread, as they do in the simulator.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use openraft::OptionalSend;
use openraft::async_runtime::{AsyncRuntime, Instant};
use openraft_rt_tokio::{TokioMpsc, TokioMutex, TokioOneshot, TokioWatch};
use qo_store::runtime::{BoxFuture, Runtime, TokioRuntime};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::oneshot;

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Runtime>>> = const { RefCell::new(None) };
}

/// The runtime of the future that this thread polls.
fn current() -> Arc<dyn Runtime> {
    CURRENT
        .with_borrow(Clone::clone)
        .unwrap_or_else(TokioRuntime::shared)
}

/// Restores the runtime of the outer future, also if a poll panics.
struct Restore(Option<Arc<dyn Runtime>>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Polls a future with a runtime.
pub(crate) struct Entered<F> {
    runtime: Arc<dyn Runtime>,
    future: Pin<Box<F>>,
}

/// A future whose polls, and everything that openraft spawns in them, use `runtime`.
pub(crate) fn enter<F: Future>(runtime: &Arc<dyn Runtime>, future: F) -> Entered<F> {
    Entered {
        runtime: Arc::clone(runtime),
        future: Box::pin(future),
    }
}

impl<F: Future> Future for Entered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _restore = Restore(CURRENT.replace(Some(Arc::clone(&self.runtime))));
        self.future.as_mut().poll(context)
    }
}

/// openraft's runtime. Only its test suites make values of it; they run on tokio.
pub struct NodeRuntime(tokio::runtime::Runtime);

impl fmt::Debug for NodeRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeRuntime")
    }
}

/// A time of the runtime's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeInstant(Duration);

impl Add<Duration> for NodeInstant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl AddAssign<Duration> for NodeInstant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for NodeInstant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }
}

impl Sub<Self> for NodeInstant {
    type Output = Duration;

    fn sub(self, other: Self) -> Duration {
        self.0.saturating_sub(other.0)
    }
}

impl SubAssign<Duration> for NodeInstant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

/// The origin of instants lies this long before that of the runtime's clock, so that openraft can subtract from early ones.
const ORIGIN: Duration = Duration::from_hours(24);

impl Instant for NodeInstant {
    fn now() -> Self {
        Self(current().monotonic() + ORIGIN)
    }
}

/// The spawned future was dropped before its end.
#[derive(Debug)]
pub struct Dropped(());

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the task ended early: it panicked, or the process is ending")
    }
}

/// Waits for a spawned future.
pub struct JoinHandle<T>(oneshot::Receiver<T>);

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, Dropped>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_err(|_| Dropped(()))
    }
}

/// Sleeps.
pub struct Sleep(std::sync::Mutex<BoxFuture<()>>);

impl Sleep {
    fn new(duration: Duration) -> Self {
        Self(std::sync::Mutex::new(current().sleep(duration)))
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.0.get_mut() {
            Ok(sleep) => sleep.as_mut().poll(context),
            Err(poisoned) => poisoned.into_inner().as_mut().poll(context),
        }
    }
}

/// The time was up first.
#[derive(Debug)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time is up")
    }
}

/// Waits for a future until a time.
pub struct Timeout<F> {
    future: Pin<Box<F>>,
    sleep: Sleep,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = self.future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(&mut self.sleep)
            .poll(context)
            .map(|()| Err(Elapsed(())))
    }
}

impl AsyncRuntime for NodeRuntime {
    type JoinError = Dropped;
    type JoinHandle<T: OptionalSend + 'static> = JoinHandle<T>;
    type Sleep = Sleep;
    type Instant = NodeInstant;
    type TimeoutError = Elapsed;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = Timeout<T>;
    type ThreadLocalRng = StdRng;
    type Mpsc = TokioMpsc;
    type Watch = TokioWatch;
    type Oneshot = TokioOneshot;
    type Mutex<T: OptionalSend + 'static> = TokioMutex<T>;

    fn spawn<T>(future: T) -> JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        let runtime = current();
        let (sender, receiver) = oneshot::channel();
        let entered = enter(&runtime, async move {
            // Nobody may be waiting.
            let _ = sender.send(future.await);
        });
        runtime.spawn(Box::pin(entered));
        JoinHandle(receiver)
    }

    fn sleep(duration: Duration) -> Sleep {
        Sleep::new(duration)
    }

    fn sleep_until(deadline: NodeInstant) -> Sleep {
        Sleep::new(deadline - NodeInstant::now())
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Timeout<F> {
        Timeout {
            future: Box::pin(future),
            sleep: Sleep::new(duration),
        }
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: NodeInstant,
        future: F,
    ) -> Timeout<F> {
        Self::timeout(deadline - NodeInstant::now(), future)
    }

    fn is_panic(_: &Dropped) -> bool {
        false
    }

    fn thread_rng() -> StdRng {
        StdRng::seed_from_u64(current().random())
    }

    #[expect(
        clippy::expect_used,
        reason = "openraft's test suites call this, a node never does"
    )]
    fn new(threads: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build();
        Self(runtime.expect("tokio starts"))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}
