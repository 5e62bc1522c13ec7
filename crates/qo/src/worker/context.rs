//! The context of a handler: its attempt, and requests to the attempt's supervisor.
//!
//! Only the supervisor writes to the queue for an attempt. A handler's progress goes through a watch channel, where a newer report
//! replaces an older one, and its renewals through a queue of requests.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use qo_core::transition::ProgressReport;
use qo_core::{Rejection, Task, TaskId, Timestamp, WorkerId};
use qo_engine::EngineError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::log_tail::LogTail;
use crate::error::Error;
use crate::queue::Queue;

/// Capacity of the channel of renewal requests.
const RENEWALS_QUEUED_MAX: usize = 16;

/// Why a handler should stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The task was cancelled.
    Cancelled,
    /// Another attempt has the task, or may have it soon. The result of this attempt is discarded.
    LeaseLost,
    /// The attempt exceeded the task's timeout.
    TimedOut,
    /// The worker stops. The task is released.
    Stopping,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "the task was cancelled",
            Self::LeaseLost => "the lease is lost",
            Self::TimedOut => "the attempt timed out",
            Self::Stopping => "the worker is stopping",
        })
    }
}

/// The attempt that a handler runs. Clones are cheap and share everything.
#[derive(Clone)]
pub struct Context {
    inner: Arc<ContextInner>,
}

struct ContextInner {
    task: Task,
    deadline: Timestamp,
    worker: WorkerId,
    queue: Queue,
    state: Arc<SharedValues>,
    span: tracing::Span,
    token: CancellationToken,
    reason: OnceLock<StopReason>,
    progress: watch::Sender<Option<ProgressReport>>,
    renewals: mpsc::Sender<RenewalReply>,
    log: LogTail,
}

/// Where a handler waits for the result of a renewal.
pub(super) type RenewalReply = oneshot::Sender<Result<(), Error>>;

/// The supervisor's ends of a handler's channels.
pub(super) struct HandlerRequests {
    pub(super) progress: watch::Receiver<Option<ProgressReport>>,
    pub(super) renewals: mpsc::Receiver<RenewalReply>,
}

/// Values that handlers share, one per type.
pub(super) type SharedValues = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

impl Context {
    /// The context of a newly claimed task.
    pub(super) fn new(
        task: Task,
        worker: WorkerId,
        queue: Queue,
        state: Arc<SharedValues>,
        span: tracing::Span,
        log: LogTail,
    ) -> (Self, HandlerRequests) {
        let (progress, reports) = watch::channel(None);
        let (renewals, renewal_requests) = mpsc::channel(RENEWALS_QUEUED_MAX);
        let started_at = task.started_at.unwrap_or(task.updated_at);
        let context = Self {
            inner: Arc::new(ContextInner {
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
                log,
            }),
        };
        let requests = HandlerRequests {
            progress: reports,
            renewals: renewal_requests,
        };
        (context, requests)
    }

    /// The task's id.
    pub fn id(&self) -> TaskId {
        self.inner.task.id
    }

    /// The number of this attempt, from 1. It only grows, so that other systems can use it as a fencing token and refuse writes of
    /// older attempts.
    pub fn attempt(&self) -> u32 {
        self.inner.task.attempt
    }

    /// In cluster mode, the index of the log entry that granted the claim of this attempt. Unlike the attempt number it also grows from
    /// task to task: a later claim of any task with the same ordering key, or of any task in a cluster with one group, has a higher index,
    /// or the same one if both were granted in one entry. Other modes have no such log.
    pub fn log_index(&self) -> Option<u64> {
        self.inner.task.log_index.map(NonZeroU64::get)
    }

    /// The task at the start of this attempt.
    pub fn task(&self) -> &Task {
        &self.inner.task
    }

    /// When the attempt times out, in the queue's time.
    pub fn deadline(&self) -> Timestamp {
        self.inner.deadline
    }

    /// Time left until the deadline.
    pub fn remaining(&self) -> Duration {
        self.inner.deadline.since(self.inner.queue.now())
    }

    /// The worker that runs the attempt.
    pub fn worker(&self) -> &WorkerId {
        &self.inner.worker
    }

    /// The queue of the task, for instance to submit follow-up tasks.
    pub fn queue(&self) -> &Queue {
        &self.inner.queue
    }

    /// Is cancelled when the handler should stop; [`Context::stop_reason`] says why. A handler that does not return within the
    /// worker's grace period is dropped at its next `await`.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.inner.token
    }

    /// Why the handler should stop, or `None` if it should not.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.inner.reason.get().copied()
    }

    /// Reports progress, from 0 to 100 percent. Returns at once: reports are written at most once a second, and a newer report
    /// replaces one that is not written yet. Fails if the percentage is out of range or the attempt is over.
    #[expect(
        clippy::unused_async,
        reason = "backpressure can be added without a change for callers"
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

    /// Adds lines to the log of the attempt, for people to read. Returns at once. The end of the log, 16 KiB unless the worker was built with
    /// another limit, is stored with the outcome of the attempt ([`Task::logs`]), and only then: what an attempt logged whose worker
    /// died is lost.
    pub fn log(&self, lines: impl AsRef<str>) {
        self.inner.log.push(lines.as_ref());
    }

    /// Takes what was logged.
    pub(super) fn take_log(&self) -> Option<Box<str>> {
        self.inner.log.take()
    }

    /// Renews the lease now and waits for the result. The worker renews leases by itself; call this before an action that cannot be
    /// undone, to be sure that the attempt is current.
    pub async fn renew(&self) -> Result<(), Error> {
        let (reply, result) = oneshot::channel();
        let sent = self.inner.renewals.send(reply).await;
        sent.map_err(|_| self.over())?;
        result.await.map_err(|_| self.over())?
    }

    /// The value of this type that the worker was built with ([`WorkerBuilder::state`](super::WorkerBuilder::state)).
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let value = self.inner.state.get(&TypeId::of::<T>())?;
        Arc::clone(value).downcast().ok()
    }

    /// The tracing span of the attempt. The handler runs inside it; enter it in tasks and threads that the handler starts.
    pub fn span(&self) -> &tracing::Span {
        &self.inner.span
    }

    /// Asks the handler to stop. The first reason is kept.
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
