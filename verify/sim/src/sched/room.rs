//! A tokio runtime of one process. It runs only when the scheduler runs it, and only until everything in it waits.
//!
//! SlateDB spawns its tasks on a tokio runtime. One that has a single thread, no timers and no sockets runs them in the order in which
//! they were woken. Only the order in which a `watch` channel wakes its receivers is drawn by tokio itself, from a seed that can be
//! set only if tokio is built with `tokio_unstable`, as `cargo xtask sim --exact` does. The runtime parks its
//! thread when nothing is ready, and the scheduler leaves it then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use tokio::runtime::{Builder, EnterGuard, Runtime};

use super::lock;

/// The runtime. Its tasks end with it.
pub(super) struct Room {
    runtime: Option<Runtime>,
    idle: Arc<Idle>,
}

/// Whether nothing is ready, and the waker to notify.
#[derive(Default)]
struct Idle {
    is_idle: AtomicBool,
    visitor: Mutex<Option<Waker>>,
}

impl Idle {
    fn note(&self) {
        self.is_idle.store(true, Ordering::Relaxed);
        if let Some(visitor) = lock(&self.visitor).take() {
            visitor.wake();
        }
    }
}

impl Room {
    /// A runtime whose random draws use this seed, where tokio supports that.
    pub(super) fn new(seed: u64) -> std::io::Result<Self> {
        let idle = Arc::new(Idle::default());
        let noted = Arc::clone(&idle);
        let mut builder = Builder::new_current_thread();
        builder.on_thread_park(move || noted.note());
        seed_draws(&mut builder, seed);
        let runtime = builder.build()?;
        Ok(Self {
            runtime: Some(runtime),
            idle,
        })
    }

    /// Enters this runtime.
    pub(super) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.runtime.as_ref().map(Runtime::enter)
    }

    /// Runs everything that is ready, until everything waits.
    pub(super) fn run(&self) {
        let Some(runtime) = &self.runtime else { return };
        self.idle.is_idle.store(false, Ordering::Relaxed);
        runtime.block_on(std::future::poll_fn(|context| {
            if self.idle.is_idle.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            *lock(&self.idle.visitor) = Some(context.waker().clone());
            Poll::Pending
        }));
    }
}

#[cfg(tokio_unstable)]
fn seed_draws(builder: &mut Builder, seed: u64) {
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
}

#[cfg(not(tokio_unstable))]
fn seed_draws(_builder: &mut Builder, _seed: u64) {}

/// Does some work outside all rooms, with tokio's draws from this seed where tokio supports that. A thread's draws have a seed only within a
/// runtime, and tokio refuses nested runtimes. So the work runs in a runtime that allows blocking.
#[cfg(tokio_unstable)]
pub(super) fn with_seeded_draws<T>(seed: u64, work: impl FnOnce() -> T) -> std::io::Result<T> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1);
    seed_draws(&mut builder, seed);
    let outside = builder.build()?;
    Ok(outside.block_on(async { tokio::task::block_in_place(work) }))
}

/// Does some work outside all rooms.
#[cfg(not(tokio_unstable))]
#[expect(clippy::unnecessary_wraps, reason = "the other one can fail")]
pub(super) fn with_seeded_draws<T>(_seed: u64, work: impl FnOnce() -> T) -> std::io::Result<T> {
    Ok(work())
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
