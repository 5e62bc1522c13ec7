//! A tokio runtime of one process, which runs only when the scheduler says so, and only until everything in it waits.
//!
//! SlateDB spawns its tasks on a tokio runtime. One that has a single thread, no timers and no sockets runs them in the order in which
//! they were woken, and nothing else decides. It parks its thread when nothing is ready; that is when it is left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use tokio::runtime::{Builder, EnterGuard, Runtime};

use super::lock;

/// The runtime. What it holds ends with it.
pub(super) struct Room {
    runtime: Option<Runtime>,
    idle: Arc<Idle>,
}

/// Whether nothing is ready, and who wants to know.
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
    pub(super) fn new() -> std::io::Result<Self> {
        let idle = Arc::new(Idle::default());
        let noted = Arc::clone(&idle);
        let runtime = Builder::new_current_thread()
            .on_thread_park(move || noted.note())
            .build()?;
        Ok(Self {
            runtime: Some(runtime),
            idle,
        })
    }

    /// Lets what is polled find this runtime.
    pub(super) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.runtime.as_ref().map(Runtime::enter)
    }

    /// Runs what is ready, until all of it waits.
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

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
