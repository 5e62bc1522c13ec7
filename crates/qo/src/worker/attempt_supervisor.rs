//! Keeps one attempt: it alone talks to the queue for it, so that no two operations of an attempt ever race.
//!
//! ```text
//!  claimed ─► load the input ─► call the handler ─► write what came of it ─► tell the hooks
//!                 └─ meanwhile: renew at a third of the lease, write progress at most once a second,
//!                    watch for a cancel, a lost lease, the deadline, and the worker's stop
//! ```
//!
//! Whatever ends an attempt early first tells the handler, by its token, and gives it a grace to return by itself. What it returns
//! within the grace is looked at ([`super::verdict`]); after that its future is dropped.
//!
//! # Why a crash is harmless wherever it comes
//!
//! | the worker dies | what is left | what follows |
//! | --- | --- | --- |
//! | after the claim, before the handler was called | a running task with a lease | the lease runs out and the task is claimed again; the attempt counts |
//! | while the handler runs | the same, and what the handler did elsewhere | the same; the next attempt has a higher number, by which others can tell the two apart |
//! | while a renewal or a progress report is written | it is written or not | both are right: a renewal only moves the lease's end, and a report is replaced by the next |
//! | after the handler, before the outcome is written | a running task with a lease | the task is done again: this is why a handler may be called twice |
//! | while the outcome is written | the engine's own order of steps | one compare-and-swap decides; before it the task is done again, after it the outcome stands |
//! | after the outcome, before the hooks | the outcome | hooks are not called for it: nothing may rest on them |
//!
//! A worker that only seems dead is treated alike: everything it writes presents its lease, and is refused once the task has moved on.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use qo_core::{Json, LeaseId, Task};
use qo_store::runtime::Runtime;
use tokio::sync::{oneshot, watch};

use super::attempt::{Call, HandlerResult};
use super::context::{Renewal, Wishes};
use super::hooks::call_each;
use super::run::{Run, Stage, stage_is};
use super::slots::Slot;
use super::verdict::End;
use super::{Context, Outcome, StopReason, TaskError, TaskHandler};
use crate::error::{Error, ErrorKind};

/// How often the progress of an attempt is written at the most.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// How long an operation that the store did not do waits before it is tried again: at first, and at the most.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(100);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(5);

pub(super) struct AttemptSupervisor {
    pub(super) run: Arc<Run>,
    pub(super) context: Context,
    pub(super) lease: LeaseId,
    pub(super) stage: watch::Receiver<Stage>,
    handler: Arc<dyn TaskHandler>,
    wishes: Wishes,
    slot: Slot,
    /// When it has to be over.
    deadline_at: Duration,
    /// When the handler is dropped, once it was told to stop.
    dropped_at: Option<Duration>,
    pub(super) hold: Hold,
    progress: Progress,
    /// Handlers that wait for a renewal.
    asked: Vec<Renewal>,
}

/// What is known of the lease, in the runtime's monotonic time.
pub(super) struct Hold {
    length: Duration,
    ends_at: Duration,
    pub(super) renew_at: Duration,
    /// How long to wait after the next failure.
    pause: Duration,
    has_failed: bool,
    /// The queue has said that the lease is no longer the current one.
    pub(super) is_lost: bool,
}

struct Progress {
    /// Whether there is a report that is not written.
    waits: bool,
    not_before: Duration,
}

/// A write that is on its way, and when it was begun.
struct Writing {
    future: BoxFuture<'static, Written>,
    begun_at: Duration,
}

enum Written {
    Renewed(Result<Task, Error>, Vec<Renewal>),
    Progressed(Result<Task, Error>),
}

impl AttemptSupervisor {
    /// The supervisor of a task that was claimed. Nothing, if the engine handed out what was not asked for.
    pub(super) fn new(run: &Arc<Run>, task: Task, slot: Slot) -> Option<Self> {
        let plan = &run.plan;
        let (Some(lease), Some(handler)) = (task.lease_id, plan.handlers.get(&task.task_type))
        else {
            tracing::error!(
                "the queue handed out a task that nobody here asked for; its lease runs out by itself"
            );
            return None;
        };
        let (context, wishes) = Context::new(
            task,
            plan.id.clone(),
            plan.queue.clone(),
            Arc::clone(&plan.state),
            tracing::Span::current(),
        );
        let now = plan.runtime().monotonic();
        let mut hold = Hold {
            length: Duration::ZERO,
            ends_at: now,
            renew_at: now,
            pause: PAUSE_MIN,
            has_failed: false,
            is_lost: false,
        };
        let task = context.task();
        let started_at = task.started_at.unwrap_or(task.updated_at);
        let expires_at = task.lease_expires_at.unwrap_or(started_at);
        hold.length = expires_at.since(started_at);
        hold.renewed(now, expires_at.since(plan.queue.now()));
        Some(Self {
            deadline_at: now + context.remaining(),
            handler: Arc::clone(handler),
            stage: run.stage.subscribe(),
            run: Arc::clone(run),
            context,
            wishes,
            slot,
            lease,
            dropped_at: None,
            hold,
            progress: Progress {
                waits: false,
                not_before: now,
            },
            asked: Vec::new(),
        })
    }

    pub(super) fn runtime(&self) -> &dyn Runtime {
        self.run.plan.runtime().as_ref()
    }

    /// Does everything that an attempt needs, to its end.
    pub(super) async fn keep(mut self) -> Outcome {
        let end = self.watch().await;
        let (verdict, error) = end.judge(&self.context, self.hold.is_lost);
        let outcome = self.write(verdict).await;
        tell_outcome(outcome, error.as_ref());
        self.tell_hooks(error, outcome).await;
        outcome
    }

    /// Runs the handler, and sees to everything that an attempt needs meanwhile.
    async fn watch(&mut self) -> End {
        let mut work = self.work().boxed();
        let mut writing: Option<Writing> = None;
        let end = loop {
            let now = self.runtime().monotonic();
            if self.dropped_at.is_some_and(|at| now >= at) {
                break End::Dropped;
            }
            self.see_what_is_over(now, writing.as_ref());
            if writing.is_none() {
                writing = self.next_write(now);
            }
            let pause = self.next_look(now, writing.is_some()).saturating_sub(now);
            let sleep = self.runtime().sleep(pause);
            let told = self.dropped_at.is_some();
            tokio::select! {
                biased;
                result = &mut work => break End::Returned(result),
                stage = stage_is(&mut self.stage, |stage| match stage {
                    Stage::Running => false,
                    Stage::Stopping(_) => !told,
                    Stage::Abandoned => true,
                }) => match stage {
                    Stage::Stopping(grace) => self.tell_to_stop(StopReason::Stopping, grace),
                    _ => break End::Abandoned,
                },
                written = finished(&mut writing) => {
                    writing = None;
                    self.take_note(written);
                }
                Some(renewal) = self.wishes.renewals.recv() => {
                    // Who asks too late hears so, because nobody answers.
                    if !self.hold.is_lost {
                        self.asked.push(renewal);
                    }
                }
                Ok(()) = self.wishes.progress.changed() => self.progress.waits = true,
                () = sleep => {}
            }
        };
        // The handler is dropped here, if it has not returned; what comes next must not race with a write on its way.
        drop(work);
        if let Some(writing) = writing
            && !matches!(end, End::Abandoned)
        {
            let mut stage = self.stage.clone();
            tokio::select! {
                biased;
                _ = stage_is(&mut stage, |stage| stage == Stage::Abandoned) => return End::Abandoned,
                written = writing.future => self.take_note(written),
            }
        }
        end
    }

    /// Loads the input and calls the handler.
    fn work(&self) -> impl Future<Output = HandlerResult> + Send + use<> {
        let run = Arc::clone(&self.run);
        let handler = Arc::clone(&self.handler);
        let context = self.context.clone();
        let slot = self.slot.clone();
        async move {
            let input = load_input(&run, context.task()).await?;
            let hooks = Arc::clone(&run.plan.hooks);
            let mut call = Call::start(&run.runner, handler, hooks, input, context, slot);
            call.result().await
        }
    }

    /// Stops the handler if its time is over, or its lease may be.
    fn see_what_is_over(&mut self, now: Duration, writing: Option<&Writing>) {
        if self.dropped_at.is_some() {
            return;
        }
        let grace = self.run.plan.grace;
        if now >= self.deadline_at {
            self.tell_to_stop(StopReason::TimedOut, grace);
            return;
        }
        // A process that was suspended asks first: nobody may have taken the task meanwhile.
        let ends_at = self.hold.ends_at;
        let was_tried =
            self.hold.has_failed || writing.is_some_and(|writing| writing.begun_at < ends_at);
        if now >= ends_at && was_tried {
            tracing::warn!(
                "the lease could not be renewed in time, so that somebody else may run the task soon"
            );
            self.tell_to_stop(StopReason::LeaseLost, grace);
        }
    }

    fn tell_to_stop(&mut self, reason: StopReason, grace: Duration) {
        if self.dropped_at.is_none() {
            tracing::info!(%reason, "telling the handler to stop");
            self.context.stop(reason);
        }
        let at = self.runtime().monotonic() + grace;
        self.dropped_at = Some(self.dropped_at.map_or(at, |known| known.min(at)));
    }

    /// The write that is due, if any.
    fn next_write(&mut self, now: Duration) -> Option<Writing> {
        let queue = self.run.plan.queue.clone();
        let (id, lease) = (self.context.id(), self.lease);
        let future = if self.hold.is_lost {
            return None;
        } else if !self.asked.is_empty() || now >= self.hold.renew_at {
            let asked = std::mem::take(&mut self.asked);
            let lease_ms = self.run.plan.lease_ms;
            async move { Written::Renewed(queue.renew(id, lease, lease_ms).await, asked) }.boxed()
        } else if self.progress.waits && now >= self.progress.not_before {
            self.progress.waits = false;
            self.progress.not_before = now + PROGRESS_INTERVAL;
            let report = self.wishes.progress.borrow_and_update().clone()?;
            async move { Written::Progressed(queue.progress(id, lease, report).await) }.boxed()
        } else {
            return None;
        };
        Some(Writing {
            future,
            begun_at: now,
        })
    }

    /// When something is due next.
    fn next_look(&self, now: Duration, is_writing: bool) -> Duration {
        let mut next = self.dropped_at.unwrap_or(self.deadline_at);
        if self.dropped_at.is_none() && self.hold.ends_at > now {
            next = next.min(self.hold.ends_at);
        }
        if is_writing || self.hold.is_lost {
            return next;
        }
        next = next.min(self.hold.renew_at);
        if self.progress.waits {
            next = next.min(self.progress.not_before);
        }
        next
    }

    fn take_note(&mut self, written: Written) {
        let now = self.runtime().monotonic();
        let result = match written {
            Written::Renewed(result, asked) => {
                match &result {
                    Ok(task) => self.note_renewal(now, task),
                    Err(error) => self.hold.failed(now, error),
                }
                for renewal in asked {
                    // A handler that no longer waits does not want to know.
                    let _ = renewal.send(result.as_ref().map(|_| ()).map_err(Error::clone));
                }
                result
            }
            Written::Progressed(result) => {
                if result.is_err() && !self.hold.is_lost {
                    self.progress.waits = true;
                }
                result
            }
        };
        let grace = self.run.plan.grace;
        match result {
            Ok(task) if task.cancel_requested && self.dropped_at.is_none() => {
                self.tell_to_stop(StopReason::Cancelled, grace);
            }
            Ok(_) => {}
            Err(error) if is_lost(&error) => {
                self.hold.is_lost = true;
                self.asked.clear();
                self.tell_to_stop(StopReason::LeaseLost, grace);
            }
            Err(error) => {
                tracing::warn!(%error, "could not tell the queue how the attempt is; trying again");
            }
        }
    }

    pub(super) fn note_renewal(&mut self, now: Duration, task: &Task) {
        let expires_at = task.lease_expires_at.unwrap_or(task.updated_at);
        let left = expires_at.since(self.run.plan.queue.now());
        self.hold.renewed(now, left);
    }

    /// Lets the hooks hear what came of the attempt, for as long as the grace lasts.
    async fn tell_hooks(&mut self, error: Option<TaskError>, outcome: Outcome) {
        let hooks = Arc::clone(&self.run.plan.hooks);
        if hooks.is_empty() {
            return;
        }
        let (told, all_told) = oneshot::channel();
        let (abort, registration) = AbortHandle::new_pair();
        let context = self.context.clone();
        let telling = async move {
            if let Some(error) = &error {
                call_each(&hooks, |hook| hook.error(&context, error)).await;
            }
            call_each(&hooks, |hook| hook.after(&context, &outcome)).await;
            // Nobody waits if it took too long.
            let _ = told.send(());
        };
        self.run.runner.spawn(Box::pin(async move {
            let _ = Abortable::new(telling, registration).await;
        }));
        let sleep = self.runtime().sleep(self.run.plan.grace);
        tokio::select! {
            biased;
            _ = all_told => {}
            _ = stage_is(&mut self.stage, |stage| stage == Stage::Abandoned) => {}
            () = sleep => tracing::warn!("the hooks take too long; going on without them"),
        }
        abort.abort();
    }
}

impl Hold {
    /// The lease has so much time from now on.
    fn renewed(&mut self, now: Duration, left: Duration) {
        let third = self.length / 3;
        self.ends_at = now + left;
        // A third after it was written, which may be a while ago.
        self.renew_at = now + left.saturating_sub(third * 2).min(third);
        self.pause = PAUSE_MIN;
        self.has_failed = false;
    }

    pub(super) fn failed(&mut self, now: Duration, error: &Error) {
        self.is_lost |= is_lost(error);
        self.has_failed = true;
        self.renew_at = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

/// Says what came of an attempt, under a target of its own, so that a program that shows this by itself can leave it out.
fn tell_outcome(outcome: Outcome, error: Option<&TaskError>) {
    const TARGET: &str = "qo::worker::outcome";
    let error = error.map(tracing::field::display);
    match outcome {
        Outcome::Failed => tracing::warn!(target: TARGET, error, "failed"),
        Outcome::Retried { at } => {
            tracing::info!(target: TARGET, error, %at, "failed, will be retried");
        }
        Outcome::Lost => tracing::warn!(
            target: TARGET,
            "the attempt is no longer the current one; what came of it was thrown away"
        ),
        Outcome::Abandoned => {
            tracing::warn!(target: TARGET, "left alone; its lease runs out by itself");
        }
        _ => tracing::debug!(target: TARGET, ?outcome, "ended"),
    }
}

/// Whether an error says that the attempt is no longer the current one.
pub(super) fn is_lost(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::LeaseLost | ErrorKind::NotFound)
}

/// Waits for the write that is on its way, if there is one.
async fn finished(writing: &mut Option<Writing>) -> Written {
    match writing {
        Some(writing) => (&mut writing.future).await,
        None => std::future::pending().await,
    }
}

/// The input, wherever it is kept. A store that does not answer is asked again: the deadline ends that.
async fn load_input(run: &Run, task: &Task) -> Result<Json, TaskError> {
    let mut pause = PAUSE_MIN;
    loop {
        match run.plan.queue.input(task).await {
            Ok(input) => return Ok(input),
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                tracing::warn!(%error, "could not read the input; trying again");
                run.plan.runtime().sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Err(error) => {
                return Err(TaskError::permanent(format_args!(
                    "the input cannot be read: {error}"
                )));
            }
        }
    }
}
