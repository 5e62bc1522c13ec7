//! Decides what to store for an attempt, from its end and from the reason to stop it.
//!
//! | reason to stop | success | permanent failure | snooze | other error | dropped |
//! | --- | --- | --- | --- | --- | --- |
//! | none | complete | fail | snooze | fail | |
//! | cancel | complete | fail | cancelled | cancelled | cancelled |
//! | timeout | complete | fail | timeout | timeout | timeout |
//! | stop of the worker | complete | fail | snooze | release | release |
//! | lease possibly lost | complete | fail | nothing | nothing | nothing |
//!
//! Nothing is stored once the queue reported a lost lease. A success counts whenever possible, because the work is done. Another
//! error of a handler that was asked to stop is assumed to be a consequence of the stop.
//!
//! An input that this worker cannot decrypt is not the task's fault. If the key is missing, the task is snoozed, without using a retry, so
//! that a worker with the key can claim it. If the key does not fit, another worker may still have the right one, so the attempt fails
//! and is retried. That error is stored unencrypted, because a worker with the right key could not read it otherwise.

use std::time::Duration;

use qo_core::transition::{Failure, FailureKind};
use qo_core::{Json, Status};
use qo_engine::Operation;
use tokio::sync::watch;

use super::attempt::HandlerResult;
use super::attempt_supervisor::{AttemptSupervisor, PAUSE_MAX, PAUSE_MIN, is_lost};
use super::run::{ShutdownPhase, wait_for_phase};
use super::{AttemptOutcome, Context, StopReason, TaskError};
use crate::encryption::EncryptionError;
use crate::error::{Error, ErrorKind};

/// How long the write of an outcome is retried. The lease has expired long before, but it stays current until the store is
/// available again and another process ends it.
const WRITE_TIMEOUT: Duration = Duration::from_hours(1);

/// How long a task is snoozed whose key the worker lacks, per attempt so far, and at most. Workers with the key are not kept waiting for
/// long, and workers without it do not claim the task again and again.
const SEALED_SNOOZE: Duration = Duration::from_secs(10);
const SEALED_SNOOZE_MAX: Duration = Duration::from_mins(5);

/// How an attempt ended.
pub(super) enum AttemptEnd {
    /// The handler returned.
    Returned(HandlerResult),
    /// The input cannot be decrypted, so the handler was not called.
    Sealed(EncryptionError),
    /// The handler was asked to stop, did not return in time, and was dropped.
    Dropped,
    /// The worker stopped immediately.
    Abandoned,
}

/// What to store for an attempt.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Disposition {
    Complete(Option<Json>),
    Fail(Failure),
    /// Like [`Disposition::Fail`], with an error that is never encrypted.
    FailInClear(Failure),
    Snooze(Duration),
    Release,
    /// Nothing is stored, with this outcome.
    Nothing(AttemptOutcome),
}

impl AttemptEnd {
    /// What to store, and the error for the hooks.
    pub(super) fn disposition(
        self,
        context: &Context,
        is_lost: bool,
    ) -> (Disposition, Option<TaskError>) {
        let reason = context.stop_reason();
        let (disposition, error) = match self {
            Self::Abandoned => return (Disposition::Nothing(AttemptOutcome::Abandoned), None),
            Self::Returned(Ok(output)) => (Disposition::Complete(output), None),
            Self::Returned(Err(error)) => (for_error(&error, reason, context), Some(error)),
            Self::Sealed(error) => for_sealed(&error, reason, context),
            Self::Dropped => {
                let disposition = match reason {
                    Some(reason) => for_stop(reason, context),
                    None => Disposition::Release,
                };
                let error = match reason {
                    Some(StopReason::TimedOut) => Some(TaskError::Timeout),
                    Some(StopReason::Cancelled) => Some(TaskError::Cancelled),
                    _ => None,
                };
                (disposition, error)
            }
        };
        if is_lost {
            return (Disposition::Nothing(AttemptOutcome::Lost), error);
        }
        (disposition, error)
    }
}

fn for_error(error: &TaskError, reason: Option<StopReason>, context: &Context) -> Disposition {
    match (error, reason) {
        (TaskError::Permanent(text), _) => failure(FailureKind::Permanent, text),
        (TaskError::Snooze(delay), None | Some(StopReason::Stopping)) => {
            Disposition::Snooze(*delay)
        }
        (_, Some(reason)) => for_stop(reason, context),
        (TaskError::Retryable(text), None) => failure(FailureKind::Retryable, text),
        (TaskError::Timeout, None) => {
            failure(FailureKind::Timeout, "the handler reported a timeout")
        }
        (TaskError::Cancelled, None) => failure(
            FailureKind::Cancelled,
            "the handler reported a cancellation",
        ),
    }
}

fn for_sealed(
    error: &EncryptionError,
    reason: Option<StopReason>,
    context: &Context,
) -> (Disposition, Option<TaskError>) {
    let shown = Some(TaskError::retryable(error));
    if let Some(reason) = reason {
        return (for_stop(reason, context), shown);
    }
    if let EncryptionError::UnknownKey { .. } = error {
        tracing::warn!(%error, "leaving the task to workers that have the key");
        let delay = SEALED_SNOOZE.saturating_mul(context.attempt());
        return (Disposition::Snooze(delay.min(SEALED_SNOOZE_MAX)), shown);
    }
    let failure = Failure {
        kind: FailureKind::Retryable,
        error: error.to_string().into(),
    };
    (Disposition::FailInClear(failure), shown)
}

fn for_stop(reason: StopReason, context: &Context) -> Disposition {
    match reason {
        StopReason::Cancelled => failure(FailureKind::Cancelled, "cancelled while running"),
        StopReason::TimedOut => {
            let text = format!("timed out after {} s", context.task().timeout_seconds);
            failure(FailureKind::Timeout, &text)
        }
        StopReason::Stopping => Disposition::Release,
        StopReason::LeaseLost => Disposition::Nothing(AttemptOutcome::Lost),
    }
}

fn failure(kind: FailureKind, error: &str) -> Disposition {
    Disposition::Fail(Failure {
        kind,
        error: error.into(),
    })
}

impl AttemptSupervisor {
    /// Stores the outcome of an attempt. Retries while the store is unavailable, and renews the lease meanwhile. The queue decides
    /// whether the attempt is still current.
    pub(super) async fn write(&mut self, mut disposition: Disposition) -> AttemptOutcome {
        let give_up_at = self.runtime().monotonic() + WRITE_TIMEOUT;
        let mut pause = PAUSE_MIN;
        let mut has_failed = false;
        let mut log = self.context.take_log();
        loop {
            if let Disposition::Nothing(outcome) = disposition {
                return outcome;
            }
            let writing = unless_abandoned(
                self.phase.clone(),
                self.try_write(&disposition, log.as_deref()),
            );
            let Some(result) = writing.await else {
                return AttemptOutcome::Abandoned;
            };
            let error = match result {
                Ok(outcome) => return outcome,
                Err(error) => error,
            };
            if is_lost(&error) {
                return self.stored_outcome(&disposition, has_failed).await;
            }
            // A server of an earlier version refuses logs.
            if error.kind() == ErrorKind::BadInput && log.take().is_some() {
                continue;
            }
            if error.kind() == ErrorKind::BadInput {
                match replacement(&disposition, &error) {
                    Some(failure) => disposition = failure,
                    None => return AttemptOutcome::Abandoned,
                }
                continue;
            }
            tracing::warn!(%error, "could not store the outcome; trying again");
            has_failed = true;
            if self.runtime().monotonic() >= give_up_at {
                return AttemptOutcome::Abandoned;
            }
            let sleep = self.runtime().sleep(pause);
            if unless_abandoned(self.phase.clone(), sleep).await.is_none() {
                return AttemptOutcome::Abandoned;
            }
            pause = (pause * 2).min(PAUSE_MAX);
            let renewing = unless_abandoned(self.phase.clone(), self.renew_if_due());
            if renewing.await.is_none() {
                return AttemptOutcome::Abandoned;
            }
        }
    }

    /// Stores the outcome together with the log of the attempt.
    async fn try_write(
        &self,
        disposition: &Disposition,
        log: Option<&str>,
    ) -> Result<AttemptOutcome, Error> {
        let queue = &self.run.plan.queue;
        let (id, lease) = (self.context.id(), self.lease);
        let act = |operation: Operation| queue.act(id, operation.logged(log));
        Ok(match disposition {
            Disposition::Complete(output) => {
                let output = output.clone();
                act(Operation::Complete { lease, output }).await?;
                AttemptOutcome::Completed
            }
            Disposition::Fail(failure) => {
                let failure = failure.clone();
                AttemptOutcome::of_failure(&act(Operation::Fail { lease, failure }).await?)
            }
            Disposition::FailInClear(failure) => {
                let failed = queue.engine().fail(id, lease, failure.clone()).await;
                AttemptOutcome::of_failure(&failed.map_err(Error::from)?)
            }
            Disposition::Snooze(delay) => {
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                let task = act(Operation::Snooze { lease, delay_ms }).await?;
                match task.status {
                    Status::Cancelled => AttemptOutcome::Cancelled,
                    _ => AttemptOutcome::Snoozed {
                        until: task.available_at,
                    },
                }
            }
            Disposition::Release => match act(Operation::Release { lease }).await?.status {
                Status::Cancelled => AttemptOutcome::Cancelled,
                _ => AttemptOutcome::Released,
            },
            Disposition::Nothing(outcome) => *outcome,
        })
    }

    async fn renew_if_due(&mut self) {
        let now = self.runtime().monotonic();
        if now < self.lease_state.renew_at {
            return;
        }
        let plan = &self.run.plan;
        let (id, lease) = (self.context.id(), self.lease);
        match plan.queue.renew(id, lease, plan.lease_ms).await {
            Ok(task) => self.lease_renewed(now, &task),
            // The write that follows also reports a lost lease.
            Err(error) => self.lease_state.failed(now, &error),
        }
    }

    /// The outcome of an attempt whose lease is no longer current. If the response to an earlier write was lost, that write may have
    /// succeeded; only this worker can complete this attempt.
    async fn stored_outcome(&self, disposition: &Disposition, has_failed: bool) -> AttemptOutcome {
        if !has_failed || !matches!(disposition, Disposition::Complete(_)) {
            return AttemptOutcome::Lost;
        }
        match self.run.plan.queue.history(self.context.id()).await {
            Ok(events)
                if events.iter().any(|event| {
                    event.attempt == self.context.attempt()
                        && event.from == Some(Status::Running)
                        && event.to == Status::Completed
                }) =>
            {
                AttemptOutcome::Completed
            }
            _ => AttemptOutcome::Lost,
        }
    }
}

/// What to store instead of something that the queue rejects as invalid: it would reject it again.
fn replacement(disposition: &Disposition, error: &Error) -> Option<Disposition> {
    let what = match disposition {
        Disposition::Complete(_) => "the handler succeeded, but its output was rejected",
        Disposition::Snooze(_) => "the handler's snooze was rejected",
        Disposition::Fail(_)
        | Disposition::FailInClear(_)
        | Disposition::Release
        | Disposition::Nothing(_) => {
            tracing::error!(%error, "the queue rejected the outcome");
            return None;
        }
    };
    Some(failure(FailureKind::Permanent, &format!("{what}: {error}")))
}

/// Waits for a future, unless the worker stops immediately.
async fn unless_abandoned<T>(
    mut phase: watch::Receiver<ShutdownPhase>,
    future: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        _ = wait_for_phase(&mut phase, |phase| phase == ShutdownPhase::Abandoned) => None,
        result = future => Some(result),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use qo_engine::api::ClaimRequest;

    use super::*;
    use crate::testing::memory_queue;
    use crate::worker::context::SharedValues;
    use crate::worker::log_tail::LogTail;

    /// The context of an attempt, which may have been asked to stop.
    async fn context(reason: Option<StopReason>) -> Context {
        let (queue, _clock) = memory_queue().unwrap();
        queue.task("job", &1).unwrap().submit().await.unwrap();
        let request = ClaimRequest::new("w".parse().unwrap(), vec!["job".parse().unwrap()]);
        let task = queue.claim(&request).await.unwrap().remove(0);
        let span = tracing::Span::none();
        let (context, _) = Context::new(
            task,
            request.worker,
            queue,
            Arc::<SharedValues>::default(),
            span,
            LogTail::new(0),
        );
        if let Some(reason) = reason {
            context.stop(reason);
        }
        context
    }

    /// A short name for a disposition.
    fn name(disposition: &Disposition) -> &'static str {
        match disposition {
            Disposition::Complete(_) => "complete",
            Disposition::Fail(failure) | Disposition::FailInClear(failure) => match failure.kind {
                FailureKind::Retryable => "retry",
                FailureKind::Permanent => "fail",
                FailureKind::Timeout => "timeout",
                FailureKind::Cancelled => "cancelled",
            },
            Disposition::Snooze(_) => "snooze",
            Disposition::Release => "release",
            Disposition::Nothing(_) => "nothing",
        }
    }

    #[tokio::test]
    async fn dispositions_follow_the_table() {
        use StopReason::{Cancelled, LeaseLost, Stopping, TimedOut};
        // Columns: success, permanent failure, snooze, retryable error, dropped.
        let table = [
            (None, ["complete", "fail", "snooze", "retry", "release"]),
            (
                Some(Cancelled),
                ["complete", "fail", "cancelled", "cancelled", "cancelled"],
            ),
            (
                Some(TimedOut),
                ["complete", "fail", "timeout", "timeout", "timeout"],
            ),
            (
                Some(Stopping),
                ["complete", "fail", "snooze", "release", "release"],
            ),
            (
                Some(LeaseLost),
                ["complete", "fail", "nothing", "nothing", "nothing"],
            ),
        ];
        for (reason, expected) in table {
            let context = context(reason).await;
            let ends = || {
                [
                    AttemptEnd::Returned(Ok(None)),
                    AttemptEnd::Returned(Err(TaskError::permanent("p"))),
                    AttemptEnd::Returned(Err(TaskError::Snooze(Duration::from_secs(1)))),
                    AttemptEnd::Returned(Err(TaskError::retryable("r"))),
                    AttemptEnd::Dropped,
                ]
            };
            let dispositions = ends().map(|end| name(&end.disposition(&context, false).0));
            assert_eq!(dispositions, expected, "{reason:?}");
            let lost = ends().map(|end| end.disposition(&context, true).0);
            assert!(
                lost.iter()
                    .all(|disposition| *disposition == Disposition::Nothing(AttemptOutcome::Lost))
            );
        }
    }
}
