//! Doing tasks: a worker claims them, calls their handlers, keeps their leases, and writes what came of them.
//!
//! ```
//! use qo::{Context, TaskError, TaskInput, Worker};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Email { to: String }
//!
//! impl TaskInput for Email {
//!     const TYPE: &'static str = "send_email";
//! }
//!
//! async fn send(email: Email, context: Context) -> Result<String, TaskError> {
//!     Ok(format!("sent to {} by attempt {}", email.to, context.attempt()))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (queue, _clock) = qo::testing::memory_queue()?;
//! queue.task_of(&Email { to: "ada@example.org".into() })?.submit().await?;
//!
//! let worker = Worker::builder(queue).handle::<Email>(send).build()?;
//! let report = worker.drain().await?; // or run_until_signal(), which goes on until SIGTERM
//! assert_eq!(report.completed, 1);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Worker`], [`WorkerBuilder`], [`WorkerHandle`]: the worker, its settings, and one that runs beside the program.
//! - [`TaskInput`], [`TaskHandler`], [`Context`], [`TaskError`]: what a handler is made of.
//! - [`Hook`], [`Outcome`], [`WorkerReport`]: what a program hears of its attempts.
//!
//! Inside, an attempt has a supervisor ([`supervisor`]), which alone talks to the queue for it; handlers run elsewhere ([`runner`]);
//! [`claims`] brings work as there is room; [`stop`] ends it all in order. Why a crash is harmless wherever it comes is at the head of
//! [`supervisor`].

mod attempt;
mod attempt_supervisor;
mod builder;
mod claims;
mod context;
mod drain;
mod handler;
mod heartbeat;
mod hooks;
mod host;
mod report;
mod run;
mod runner;
mod slots;
mod stop;
mod task_error;
mod verdict;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, stream};
use qo_core::WorkerId;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use builder::WorkerBuilder;
pub use context::{Context, StopReason};
pub use handler::{Answer, Handler, TaskHandler, TaskInput};
pub use hooks::Hook;
pub use report::{DrainReport, Outcome, WorkerReport};
pub use task_error::TaskError;

use crate::error::Error;
use crate::queue::Queue;
use run::Plan;

/// Does the tasks of a queue.
#[must_use = "a worker does nothing before it runs"]
pub struct Worker {
    plan: Arc<Plan>,
}

impl Worker {
    /// Begins to describe a worker of a queue.
    pub fn builder(queue: Queue) -> WorkerBuilder {
        WorkerBuilder::new(queue)
    }

    /// Its name.
    pub fn id(&self) -> &WorkerId {
        &self.plan.id
    }

    /// Works until the process gets SIGTERM or SIGINT, and then stops in order: no new claims; what runs may go on until the
    /// shutdown deadline; what is left is given back. A second signal stops at once, with an error that says so.
    pub async fn run_until_signal(self) -> Result<WorkerReport, Error> {
        let signals = stop::signals()?;
        stop::run(&self.plan, signals.boxed()).await
    }

    /// Works until a future is ready, and then stops in order. Dropping it in the middle is like a crash: leases run out by
    /// themselves.
    pub async fn run_until(
        self,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<WorkerReport, Error> {
        let stops = stop.into_stream().chain(stream::pending());
        stop::run(&self.plan, stops.boxed()).await
    }

    /// Works beside the program, until the handle is told to stop, or dropped.
    pub fn spawn(self) -> WorkerHandle {
        let stop = CancellationToken::new();
        let stop_now = CancellationToken::new();
        let (ended, end) = oneshot::channel();
        let runtime = Arc::clone(self.plan.runtime());
        let stops = [stop.clone(), stop_now.clone()];
        runtime.spawn(Box::pin(async move {
            let stops = stream::iter(stops)
                .then(CancellationToken::cancelled_owned)
                .chain(stream::pending());
            // Nobody waits if the handle was dropped.
            let _ = ended.send(stop::run(&self.plan, stops.boxed()).await);
        }));
        WorkerHandle {
            stop: stop.drop_guard(),
            stop_now,
            end,
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("id", &self.plan.id)
            .field("types", &self.plan.handlers.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A worker that runs beside the program. It stops, in order, when this is dropped.
#[derive(Debug)]
#[must_use = "the worker stops when this is dropped"]
pub struct WorkerHandle {
    stop: DropGuard,
    stop_now: CancellationToken,
    end: oneshot::Receiver<Result<WorkerReport, Error>>,
}

impl WorkerHandle {
    /// Stops it in order, and waits for that.
    pub async fn stop(self) -> Result<WorkerReport, Error> {
        drop(self.stop);
        self.end.await.unwrap_or(Err(Error::WorkerGone))
    }

    /// Stops it at once: what runs is left alone, and its leases run out by themselves.
    pub async fn stop_now(self) -> Result<WorkerReport, Error> {
        self.stop_now.cancel();
        self.stop().await
    }

    /// What makes it stop in order when it is cancelled, for instance from another task than the one that waits.
    pub fn stopper(&self) -> CancellationToken {
        self.stop.token().clone()
    }
}
