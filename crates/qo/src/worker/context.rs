//! What a handler knows of its attempt, and what it can ask of the attempt's supervisor.
//!
//! A handler never talks to the queue about its own attempt. What it says of its progress lies in a place where the newest
//! report replaces older ones, and what it asks goes through a channel; the supervisor takes both when it is their turn.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use qo_core::transition::ProgressReport;
use qo_core::{Rejection, Task, TaskId, Timestamp, WorkerId};
use qo_engine::EngineError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::queue::Queue;

/// How many renewals a handler can ask for before it has to wait for the first one's answer.
const RENEWALS_WAITING_MAX: usize = 16;

/// Why an attempt is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// Somebody called the task off.
    Cancelled,
    /// The task is no longer this attempt's, or may not be: whatever comes of it is thrown away.
    LeaseLost,
    /// It takes longer than the task allows.
    TimedOut,
    /// The worker stops, and cannot wait any longer. The task is given back.
    Stopping,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "the task was called off",
            Self::LeaseLost => "the lease is lost",
            Self::TimedOut => "the attempt takes too long",
            Self::Stopping => "the worker stops",
        })
    }
}

/// An attempt, as its handler sees it. Clones are cheap and share everything.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    task: Task,
    deadline: Timestamp,
    worker: WorkerId,
    queue: Queue,
    state: Arc<States>,
    span: tracing::Span,
    token: CancellationToken,
    reason: OnceLock<StopReason>,
    progress: watch::Sender<Option<ProgressReport>>,
    renewals: mpsc::Sender<Renewal>,
}

/// A renewal that a handler asks for, and where it waits for the answer.
pub(super) type Renewal = oneshot::Sender<Result<(), Error>>;

/// The supervisor's ends of what a handler says and asks.
pub(super) struct Wishes {
    pub(super) progress: watch::Receiver<Option<ProgressReport>>,
    pub(super) renewals: mpsc::Receiver<Renewal>,
}

/// Values that handlers share, one per type.
pub(super) type States = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

impl Context {
    /// The context of an attempt that was just claimed.
    pub(super) fn new(
        task: Task,
        worker: WorkerId,
        queue: Queue,
        state: Arc<States>,
        span: tracing::Span,
    ) -> (Self, Wishes) {
        let (progress, reports) = watch::channel(None);
        let (renewals, asked) = mpsc::channel(RENEWALS_WAITING_MAX);
        let started_at = task.started_at.unwrap_or(task.updated_at);
        let context = Self {
            inner: Arc::new(Inner {
                deadline: started_at.plus_millis(task.timeout_seconds.saturating_mul(1_000)),
                task,
                worker,
                queue,
                state,
                span,
                token: CancellationToken::new(),
                reason: OnceLock::new(),
                progress,
                renewals,
            }),
        };
        let wishes = Wishes {
            progress: reports,
            renewals: asked,
        };
        (context, wishes)
    }

    /// The task's id.
    pub fn id(&self) -> TaskId {
        self.inner.task.id
    }

    /// The number of this attempt, from 1. It never comes again and only grows, so that another system can refuse what an
    /// older attempt still sends: it is the fencing token.
    pub fn attempt(&self) -> u32 {
        self.inner.task.attempt
    }

    /// The task as it was when this attempt began.
    pub fn task(&self) -> &Task {
        &self.inner.task
    }

    /// When the attempt has to be over, in the queue's time.
    pub fn deadline(&self) -> Timestamp {
        self.inner.deadline
    }

    /// How much time is left until then.
    pub fn remaining(&self) -> Duration {
        self.inner.deadline.since(self.inner.queue.now())
    }

    /// The worker that runs it.
    pub fn worker(&self) -> &WorkerId {
        &self.inner.worker
    }

    /// The queue that the task is from, for instance to submit what follows from it.
    pub fn queue(&self) -> &Queue {
        &self.inner.queue
    }

    /// Fires when the handler is to stop: [`Context::stop_reason`] says why. A handler that does not return within the worker's
    /// grace is dropped at its next `await`.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.inner.token
    }

    /// Why the handler is to stop, once it is.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.inner.reason.get().copied()
    }

    /// Says how far the attempt is, from 0 to 100 percent. It returns at once: reports are written at most once a second, and a
    /// newer one replaces what is not written yet. Fails if the percentage is none, or if the attempt is over.
    #[expect(
        clippy::unused_async,
        reason = "an engine may want to hold a handler back some day, without a change for its callers"
    )]
    pub async fn progress(&self, percent: f64, message: impl Into<String>) -> Result<(), Error> {
        if !(0.0..=100.0).contains(&percent) {
            return Err(EngineError::from(Rejection::OutOfBounds {
                field: "percent",
                allowed: "a number from 0 to 100",
            })
            .into());
        }
        let message: String = message.into();
        let report = ProgressReport {
            percent,
            message: (!message.is_empty()).then(|| message.into_boxed_str()),
        };
        if self.stop_reason() == Some(StopReason::LeaseLost) {
            return Err(self.over());
        }
        self.inner
            .progress
            .send(Some(report))
            .map_err(|_| self.over())
    }

    /// Renews the lease now and waits for that. The worker renews it anyway, in time; this is for a handler that wants to be sure
    /// before it does something that cannot be undone.
    pub async fn renew(&self) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        let asked = self.inner.renewals.send(answer).await;
        asked.map_err(|_| self.over())?;
        answered.await.map_err(|_| self.over())?
    }

    /// The value of a type that was given to the worker.
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let value = self.inner.state.get(&TypeId::of::<T>())?;
        Arc::clone(value).downcast().ok()
    }

    /// The span that what the handler logs belongs to. It is entered already wherever the handler runs; enter it in tasks and threads
    /// that the handler starts.
    pub fn span(&self) -> &tracing::Span {
        &self.inner.span
    }

    /// Tells the handler to stop. The first reason stays.
    pub(super) fn stop(&self, reason: StopReason) {
        let _ = self.inner.reason.set(reason);
        self.inner.token.cancel();
    }

    fn over(&self) -> Error {
        Error::AttemptOver {
            id: self.id(),
            attempt: self.attempt(),
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("id", &self.id())
            .field("attempt", &self.attempt())
            .field("stop_reason", &self.stop_reason())
            .finish_non_exhaustive()
    }
}
