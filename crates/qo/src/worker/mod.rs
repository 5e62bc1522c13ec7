//! Workers: claim tasks, call their handlers, renew their leases, and store their outcomes.
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
//! let report = worker.drain().await?; // or run_until_signal(), which runs until SIGTERM
//! assert_eq!(report.completed, 1);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Worker`], [`WorkerBuilder`], [`WorkerHandle`]: the worker, its settings, and a worker in the background.
//! - [`TaskInput`], [`TaskHandler`], [`Context`], [`TaskError`]: handlers.
//! - [`BatchFunction`]: handlers that run several tasks in one call ([`WorkerBuilder::handle_batch`]).
//! - [`Hook`], [`AttemptOutcome`], [`WorkerReport`]: observing attempts.

// Each attempt has a supervisor, the only one to write to the queue for it (`attempt_supervisor`). Handlers run on threads of
// their own (`runner`). `claims` fetches tasks for free slots, and `stop` ends the worker. The head of `attempt_supervisor` shows
// why a crash at any point is harmless.
mod attempt;
mod attempt_supervisor;
mod batch;
mod builder;
mod claims;
mod context;
mod disposition;
mod drain;
mod handler;
mod heartbeat;
mod home;
mod hooks;
mod host;
mod idleness;
mod log_tail;
mod report;
mod requests;
mod run;
mod runner;
mod slots;
mod stop;
mod task_error;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, stream};
use qo_core::WorkerId;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use batch::BatchFunction;
pub use builder::WorkerBuilder;
pub use context::{Context, StopReason};
pub use handler::{Handler, HandlerOutput, TaskHandler, TaskInput};
pub use hooks::Hook;
#[doc(hidden)]
pub use host::host_name;
pub use idleness::Idleness;
pub use report::{AttemptOutcome, DrainReport, WorkerReport};
pub use requests::WorkerRequests;
pub use task_error::TaskError;

use crate::error::Error;
use crate::queue::Queue;
use run::Plan;

/// Runs the tasks of a queue. Build one with [`Worker::builder`].
#[must_use = "a worker does nothing before it runs"]
pub struct Worker {
    plan: Arc<Plan>,
}

impl Worker {
    /// Starts to build a worker of a queue.
    pub fn builder(queue: Queue) -> WorkerBuilder {
        WorkerBuilder::new(queue)
    }

    /// The worker's name.
    pub fn id(&self) -> &WorkerId {
        &self.plan.id
    }

    /// Tells whether the worker is idle while it runs.
    pub fn idleness(&self) -> Idleness {
        self.plan.idleness.clone()
    }

    /// Tells what operators ask the worker to do while it runs.
    pub fn requests(&self) -> WorkerRequests {
        self.plan.requests.clone()
    }

    /// Runs until the process receives SIGTERM or SIGINT, then stops gracefully: it claims no more tasks, waits for running tasks
    /// until the shutdown deadline, and releases the rest. A second signal stops it immediately, with [`Error::StoppedAtOnce`].
    pub async fn run_until_signal(self) -> Result<WorkerReport, Error> {
        let signals = stop::signals(Arc::clone(self.plan.runtime()))?;
        stop::run(&self.plan, signals.boxed()).await
    }

    /// Runs until a future is ready, or an operator asks the worker to stop, then stops gracefully. Dropping the returned future is like
    /// a crash: the tasks are retried when their leases expire.
    pub async fn run_until(
        self,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<WorkerReport, Error> {
        let stops = stop.into_stream().chain(stream::pending());
        stop::run(&self.plan, stops.boxed()).await
    }

    /// Runs in the background until the handle is stopped or dropped.
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
            // The receiver is gone if the handle was dropped.
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

/// A worker in the background. It stops gracefully when this is dropped.
#[derive(Debug)]
#[must_use = "the worker stops when this is dropped"]
pub struct WorkerHandle {
    stop: DropGuard,
    stop_now: CancellationToken,
    end: oneshot::Receiver<Result<WorkerReport, Error>>,
}

impl WorkerHandle {
    /// Stops the worker gracefully and waits for its end.
    pub async fn stop(self) -> Result<WorkerReport, Error> {
        drop(self.stop);
        self.end.await.unwrap_or(Err(Error::WorkerGone))
    }

    /// Stops the worker immediately. Running tasks are abandoned and retried when their leases expire.
    pub async fn stop_now(self) -> Result<WorkerReport, Error> {
        self.stop_now.cancel();
        self.stop().await
    }

    /// A token that stops the worker gracefully when cancelled, for instance from another task.
    pub fn stopper(&self) -> CancellationToken {
        self.stop.token().clone()
    }
}
