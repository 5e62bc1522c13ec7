//! Supervises one attempt. Only the supervisor writes to the queue for it, so that operations of an attempt never race.
//!
//! ```text
//!  claimed ─► load the input ─► call the handler ─► store the outcome ─► call the hooks
//!                 └─ meanwhile: renew at a third of the lease, write progress at most once a second,
//!                    watch for a cancel, a lost lease, the deadline, and the worker's stop
//! ```
//!
//! To end an attempt early, the supervisor cancels the handler's token and waits for the grace period. A result within that period
//! counts ([`super::disposition`]); after it the handler's future is dropped.
//!
//! # Crashes
//!
//! | the worker dies | left behind | what follows |
//! | --- | --- | --- |
//! | after the claim, before the handler is called | a running task with a lease | the lease expires and the task is claimed again; the attempt counts |
//! | while the handler runs | the same, and the handler's effects on other systems | the same; the next attempt has a higher number, with which other systems can tell the two apart |
//! | while a renewal or a progress report is written | it is stored or not | both are valid: a renewal only extends the lease, and the next report replaces this one |
//! | after the handler, before the outcome is written | a running task with a lease | the task runs again: this is why a handler may be called twice |
//! | while the outcome is written | depends on the engine's steps | one compare-and-swap decides: before it the task runs again, after it the outcome is final |
//! | after the outcome, before the hooks | the outcome | the hooks are not called for this attempt |
//!
//! A worker that only seems dead is treated the same: its writes carry its lease, and are refused once the task was claimed again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use qo_core::{Json, LeaseId, Task};
use qo_store::runtime::Runtime;
use tokio::sync::{oneshot, watch};

use super::attempt::HandlerCall;
use super::context::{HandlerRequests, RenewalReply};
use super::disposition::AttemptEnd;
use super::hooks::call_each;
use super::log_tail::LogTail;
use super::run::{ShutdownPhase, WorkerRun, wait_for_phase};
use super::slots::Slot;
use super::{AttemptOutcome, Context, StopReason, TaskError, TaskHandler};
use crate::error::{Error, ErrorKind};

/// Minimum interval between writes of an attempt's progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Backoff after a failed operation: first and maximum.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(100);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(5);

pub(super) struct AttemptSupervisor {
    pub(super) run: Arc<WorkerRun>,
    pub(super) context: Context,
    pub(super) lease: LeaseId,
    pub(super) phase: watch::Receiver<ShutdownPhase>,
    handler: Arc<dyn TaskHandler>,
    requests: HandlerRequests,
    slot: Slot,
    /// When the attempt times out.
    deadline_at: Duration,
    /// When the handler is dropped, after it was asked to stop.
    drop_at: Option<Duration>,
    pub(super) lease_state: LeaseState,
    progress: ProgressState,
    /// Handlers that wait for a renewal.
    renewal_replies: Vec<RenewalReply>,
}

/// The lease, in the runtime's monotonic time.
pub(super) struct LeaseState {
    duration: Duration,
    expires_at: Duration,
    pub(super) renew_at: Duration,
    /// Delay after the next failure.
    backoff: Duration,
    has_failed: bool,
    /// The queue reported that the lease is no longer current.
    pub(super) is_lost: bool,
}

struct ProgressState {
    /// Whether a report is not written yet.
    is_pending: bool,
    write_at: Duration,
}

/// A write under way.
struct PendingWrite {
    future: BoxFuture<'static, WriteResult>,
    started_at: Duration,
}

enum WriteResult {
    Renewal(Result<Task, Error>, Vec<RenewalReply>),
    Progress(Result<Task, Error>),
}

impl AttemptSupervisor {
    /// Creates the supervisor of a claimed task. Returns `None` if the engine returned a task without a lease or of another type.
    pub(super) fn new(run: &Arc<WorkerRun>, task: Task, slot: Slot) -> Option<Self> {
        let plan = &run.plan;
        let (Some(lease), Some(handler)) = (task.lease_id, plan.handlers.get(&task.task_type))
        else {
            tracing::error!(
                "claimed a task of a type without a handler; it is retried when its lease expires"
            );
            return None;
        };
        let (context, requests) = Context::new(
            task,
            plan.id.clone(),
            run.handler_queue.clone(),
            Arc::clone(&plan.state),
            tracing::Span::current(),
            LogTail::new(plan.log_max_bytes),
        );
        let now = plan.runtime().monotonic();
        let mut lease_state = LeaseState {
            duration: Duration::ZERO,
            expires_at: now,
            renew_at: now,
            backoff: PAUSE_MIN,
            has_failed: false,
            is_lost: false,
        };
        let task = context.task();
        let started_at = task.started_at.unwrap_or(task.updated_at);
        let expires_at = task.lease_expires_at.unwrap_or(started_at);
        lease_state.duration = expires_at.since(started_at);
        lease_state.renewed(now, expires_at.since(plan.queue.now()));
        Some(Self {
            deadline_at: now + context.remaining(),
            handler: Arc::clone(handler),
            phase: run.phase.subscribe(),
            run: Arc::clone(run),
            context,
            requests,
            slot,
            lease,
            drop_at: None,
            lease_state,
            progress: ProgressState {
                is_pending: false,
                write_at: now,
            },
            renewal_replies: Vec::new(),
        })
    }

    pub(super) fn runtime(&self) -> &dyn Runtime {
        self.run.plan.runtime().as_ref()
    }

    /// Runs the attempt to its end.
    pub(super) async fn run(mut self) -> AttemptOutcome {
        let end = self.run_handler().await;
        let (disposition, error) = end.disposition(&self.context, self.lease_state.is_lost);
        let outcome = self.write(disposition).await;
        log_outcome(outcome, error.as_ref());
        self.call_hooks(error, outcome).await;
        outcome
    }

    /// Runs the handler, and meanwhile renews the lease, writes progress and watches for reasons to stop.
    async fn run_handler(&mut self) -> AttemptEnd {
        let mut handling = self.call_handler().boxed();
        let mut pending: Option<PendingWrite> = None;
        let end = loop {
            let now = self.runtime().monotonic();
            if self.drop_at.is_some_and(|at| now >= at) {
                break AttemptEnd::Dropped;
            }
            self.check_deadlines(now, pending.as_ref());
            if pending.is_none() {
                pending = self.next_write(now);
            }
            let pause = self.next_wake(now, pending.is_some()).saturating_sub(now);
            let sleep = self.runtime().sleep(pause);
            let is_stopping = self.drop_at.is_some();
            tokio::select! {
                biased;
                end = &mut handling => break end,
                phase = wait_for_phase(&mut self.phase, |phase| match phase {
                    ShutdownPhase::Running => false,
                    ShutdownPhase::Stopping(_) => !is_stopping,
                    ShutdownPhase::Abandoned => true,
                }) => match phase {
                    ShutdownPhase::Stopping(grace) => self.stop_handler(StopReason::Stopping, grace),
                    _ => break AttemptEnd::Abandoned,
                },
                result = finished(&mut pending) => {
                    pending = None;
                    self.handle_write(result);
                }
                Some(reply) = self.requests.renewals.recv() => {
                    // Dropping the reply of a lost attempt reports that it is over.
                    if !self.lease_state.is_lost {
                        self.renewal_replies.push(reply);
                    }
                }
                Ok(()) = self.requests.progress.changed() => self.progress.is_pending = true,
                () = sleep => {}
            }
        };
        // Drops a handler that has not returned. The outcome must not race with a write under way, so that one is awaited.
        drop(handling);
        if let Some(pending) = pending
            && !matches!(end, AttemptEnd::Abandoned)
        {
            let mut phase = self.phase.clone();
            tokio::select! {
                biased;
                _ = wait_for_phase(&mut phase, |phase| phase == ShutdownPhase::Abandoned) => return AttemptEnd::Abandoned,
                result = pending.future => self.handle_write(result),
            }
        }
        end
    }

    /// Loads the input and calls the handler.
    fn call_handler(&self) -> impl Future<Output = AttemptEnd> + Send + use<> {
        let run = Arc::clone(&self.run);
        let handler = Arc::clone(&self.handler);
        let context = self.context.clone();
        let slot = self.slot.clone();
        async move {
            let input = match load_input(&run, context.task()).await {
                Ok(input) => input,
                Err(end) => return end,
            };
            let hooks = Arc::clone(&run.plan.hooks);
            let mut call = HandlerCall::start(&run.runner, handler, hooks, input, context, slot);
            AttemptEnd::Returned(call.result().await)
        }
    }

    /// Stops the handler if the attempt timed out or its lease may have expired.
    fn check_deadlines(&mut self, now: Duration, pending: Option<&PendingWrite>) {
        if self.drop_at.is_some() {
            return;
        }
        let grace = self.run.plan.grace;
        if now >= self.deadline_at {
            self.stop_handler(StopReason::TimedOut, grace);
            return;
        }
        // After a suspension of the process, a renewal is tried first: the lease may still be current.
        let expires_at = self.lease_state.expires_at;
        let was_tried = self.lease_state.has_failed
            || pending.is_some_and(|pending| pending.started_at < expires_at);
        if now >= expires_at && was_tried {
            tracing::warn!(
                "the lease could not be renewed in time; another worker may run the task soon"
            );
            self.stop_handler(StopReason::LeaseLost, grace);
        }
    }

    /// Asks the handler to stop, and drops it after the grace period.
    fn stop_handler(&mut self, reason: StopReason, grace: Duration) {
        if self.drop_at.is_none() {
            tracing::info!(%reason, "asking the handler to stop");
            self.context.stop(reason);
        }
        let at = self.runtime().monotonic() + grace;
        self.drop_at = Some(self.drop_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Starts the write that is due, if any.
    fn next_write(&mut self, now: Duration) -> Option<PendingWrite> {
        let queue = self.run.plan.queue.clone();
        let (id, lease) = (self.context.id(), self.lease);
        let future = if self.lease_state.is_lost {
            return None;
        } else if !self.renewal_replies.is_empty() || now >= self.lease_state.renew_at {
            let replies = std::mem::take(&mut self.renewal_replies);
            let lease_ms = self.run.plan.lease_ms;
            async move { WriteResult::Renewal(queue.renew(id, lease, lease_ms).await, replies) }
                .boxed()
        } else if self.progress.is_pending && now >= self.progress.write_at {
            self.progress.is_pending = false;
            self.progress.write_at = now + PROGRESS_INTERVAL;
            let report = self.requests.progress.borrow_and_update().clone()?;
            async move { WriteResult::Progress(queue.progress(id, lease, report).await) }.boxed()
        } else {
            return None;
        };
        Some(PendingWrite {
            future,
            started_at: now,
        })
    }

    /// When the next deadline or write is due.
    fn next_wake(&self, now: Duration, is_writing: bool) -> Duration {
        let mut next = self.drop_at.unwrap_or(self.deadline_at);
        if self.drop_at.is_none() && self.lease_state.expires_at > now {
            next = next.min(self.lease_state.expires_at);
        }
        if is_writing || self.lease_state.is_lost {
            return next;
        }
        next = next.min(self.lease_state.renew_at);
        if self.progress.is_pending {
            next = next.min(self.progress.write_at);
        }
        next
    }

    fn handle_write(&mut self, result: WriteResult) {
        let now = self.runtime().monotonic();
        let result = match result {
            WriteResult::Renewal(result, replies) => {
                match &result {
                    Ok(task) => self.lease_renewed(now, task),
                    Err(error) => self.lease_state.failed(now, error),
                }
                for reply in replies {
                    // The receiver is gone if the handler no longer waits.
                    let _ = reply.send(result.as_ref().map(|_| ()).map_err(Error::clone));
                }
                result
            }
            WriteResult::Progress(result) => {
                if result.is_err() && !self.lease_state.is_lost {
                    self.progress.is_pending = true;
                }
                result
            }
        };
        let grace = self.run.plan.grace;
        match result {
            Ok(task) if task.cancel_requested && self.drop_at.is_none() => {
                self.stop_handler(StopReason::Cancelled, grace);
            }
            Ok(_) => {}
            Err(error) if is_lost(&error) => {
                self.lease_state.is_lost = true;
                self.renewal_replies.clear();
                self.stop_handler(StopReason::LeaseLost, grace);
            }
            Err(error) => {
                tracing::warn!(%error, "could not write to the queue; trying again");
            }
        }
    }

    pub(super) fn lease_renewed(&mut self, now: Duration, task: &Task) {
        let expires_at = task.lease_expires_at.unwrap_or(task.updated_at);
        let left = expires_at.since(self.run.plan.queue.now());
        self.lease_state.renewed(now, left);
    }

    /// Calls the hooks with the outcome, for at most the grace period.
    async fn call_hooks(&mut self, error: Option<TaskError>, outcome: AttemptOutcome) {
        let hooks = Arc::clone(&self.run.plan.hooks);
        if hooks.is_empty() {
            return;
        }
        let (done, all_done) = oneshot::channel();
        let (abort, registration) = AbortHandle::new_pair();
        let context = self.context.clone();
        let calling = async move {
            if let Some(error) = &error {
                call_each(&hooks, |hook| hook.error(&context, error)).await;
            }
            call_each(&hooks, |hook| hook.after(&context, &outcome)).await;
            // The receiver is gone if the hooks took too long.
            let _ = done.send(());
        };
        self.run.runner.spawn(Box::pin(async move {
            let _ = Abortable::new(calling, registration).await;
        }));
        let sleep = self.runtime().sleep(self.run.plan.grace);
        tokio::select! {
            biased;
            _ = all_done => {}
            _ = wait_for_phase(&mut self.phase, |phase| phase == ShutdownPhase::Abandoned) => {}
            () = sleep => tracing::warn!("the hooks took longer than the grace period; aborting them"),
        }
        abort.abort();
    }
}

impl LeaseState {
    /// Records that the lease expires after `left`.
    fn renewed(&mut self, now: Duration, left: Duration) {
        let third = self.duration / 3;
        self.expires_at = now + left;
        // A third of the duration after the lease was written, which may have been a while ago.
        self.renew_at = now + left.saturating_sub(third * 2).min(third);
        self.backoff = PAUSE_MIN;
        self.has_failed = false;
    }

    pub(super) fn failed(&mut self, now: Duration, error: &Error) {
        self.is_lost |= is_lost(error);
        self.has_failed = true;
        self.renew_at = now + self.backoff;
        self.backoff = (self.backoff * 2).min(PAUSE_MAX);
    }
}

/// Logs an outcome with a target of its own, so that programs which show outcomes themselves can filter it out.
fn log_outcome(outcome: AttemptOutcome, error: Option<&TaskError>) {
    const TARGET: &str = "qo::worker::outcome";
    let error = error.map(tracing::field::display);
    match outcome {
        AttemptOutcome::Failed => tracing::warn!(target: TARGET, error, "failed"),
        AttemptOutcome::Retried { at } => {
            tracing::info!(target: TARGET, error, %at, "failed, will be retried");
        }
        AttemptOutcome::Lost => tracing::warn!(
            target: TARGET,
            "the attempt is no longer current; its result was discarded"
        ),
        AttemptOutcome::Abandoned => {
            tracing::warn!(target: TARGET, "abandoned; the task is retried when its lease expires");
        }
        _ => tracing::debug!(target: TARGET, ?outcome, "ended"),
    }
}

/// Whether an error means that the attempt is no longer current.
pub(super) fn is_lost(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::LeaseLost | ErrorKind::NotFound)
}

/// Waits for the write under way; forever, if there is none.
async fn finished(pending: &mut Option<PendingWrite>) -> WriteResult {
    match pending {
        Some(pending) => (&mut pending.future).await,
        None => std::future::pending().await,
    }
}

/// Loads the input. Retries while the store is unavailable or denies access, until the attempt times out: permissions that were just
/// changed take a while to reach all servers of a store, and credentials are renewed.
async fn load_input(run: &WorkerRun, task: &Task) -> Result<Json, AttemptEnd> {
    let mut pause = PAUSE_MIN;
    loop {
        match run.plan.queue.input(task).await {
            Ok(input) => return Ok(input),
            Err(Error::Encryption(error)) => return Err(AttemptEnd::Sealed(error)),
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Denied) => {
                tracing::warn!(%error, "could not read the input; trying again");
                run.plan.runtime().sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Err(error) => {
                return Err(AttemptEnd::Returned(Err(TaskError::permanent(
                    format_args!("the input cannot be read: {error}"),
                ))));
            }
        }
    }
}
