//! What to write of an attempt, by how it ended and why it was told to stop.
//!
//! | told to stop because of | returned a success | a permanent failure | a snooze | another error | dropped |
//! | --- | --- | --- | --- | --- | --- |
//! | nothing | complete | fail | snooze | fail | |
//! | a cancel | complete | fail | cancelled | cancelled | cancelled |
//! | its deadline | complete | fail | timeout | timeout | timeout |
//! | the worker's stop | complete | fail | snooze | release | release |
//! | a lease that may be lost | complete | fail | nothing | nothing | nothing |
//!
//! Where the queue has said that the lease is lost, nothing is written. A success counts wherever it can: the work is done, and doing
//! it again helps nobody. An error of a handler that was told to stop is taken for the echo of that.

use std::time::Duration;

use qo_core::transition::{Failure, FailureKind};
use qo_core::{Json, Status};
use tokio::sync::watch;

use super::attempt::HandlerResult;
use super::attempt_supervisor::{AttemptSupervisor, PAUSE_MAX, PAUSE_MIN, is_lost};
use super::run::{Stage, stage_is};
use super::{Context, Outcome, StopReason, TaskError};
use crate::error::{Error, ErrorKind};

/// How long an outcome is tried to be written while the store does not take it. The lease has long run out by then, but as long as
/// nobody could end it, it is good.
const PATIENCE: Duration = Duration::from_hours(1);

/// How an attempt ended.
pub(super) enum End {
    /// The handler returned.
    Returned(HandlerResult),
    /// It was told to stop, did not return in time, and was dropped.
    Dropped,
    /// The worker ended at once.
    Abandoned,
}

/// What to write.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    Complete(Option<Json>),
    Fail(Failure),
    Snooze(Duration),
    Release,
    /// Nothing, and this came of it.
    Nothing(Outcome),
}

impl End {
    /// What to write, and which error the hooks hear of.
    pub(super) fn judge(self, context: &Context, is_lost: bool) -> (Verdict, Option<TaskError>) {
        let reason = context.stop_reason();
        let (verdict, error) = match self {
            Self::Abandoned => return (Verdict::Nothing(Outcome::Abandoned), None),
            Self::Returned(Ok(output)) => (Verdict::Complete(output), None),
            Self::Returned(Err(error)) => (of_error(&error, reason, context), Some(error)),
            Self::Dropped => {
                let verdict = match reason {
                    Some(reason) => of_stop(reason, context),
                    None => Verdict::Release,
                };
                let error = match reason {
                    Some(StopReason::TimedOut) => Some(TaskError::Timeout),
                    Some(StopReason::Cancelled) => Some(TaskError::Cancelled),
                    _ => None,
                };
                (verdict, error)
            }
        };
        if is_lost {
            return (Verdict::Nothing(Outcome::Lost), error);
        }
        (verdict, error)
    }
}

fn of_error(error: &TaskError, reason: Option<StopReason>, context: &Context) -> Verdict {
    match (error, reason) {
        (TaskError::Permanent(text), _) => failure(FailureKind::Permanent, text),
        (TaskError::Snooze(delay), None | Some(StopReason::Stopping)) => Verdict::Snooze(*delay),
        (_, Some(reason)) => of_stop(reason, context),
        (TaskError::Retryable(text), None) => failure(FailureKind::Retryable, text),
        (TaskError::Timeout, None) => failure(
            FailureKind::Timeout,
            "the handler says that it took too long",
        ),
        (TaskError::Cancelled, None) => failure(
            FailureKind::Cancelled,
            "the handler says that it was called off",
        ),
    }
}

fn of_stop(reason: StopReason, context: &Context) -> Verdict {
    match reason {
        StopReason::Cancelled => failure(FailureKind::Cancelled, "called off while it ran"),
        StopReason::TimedOut => {
            let text = format!("timed out after {} s", context.task().timeout_seconds);
            failure(FailureKind::Timeout, &text)
        }
        StopReason::Stopping => Verdict::Release,
        StopReason::LeaseLost => Verdict::Nothing(Outcome::Lost),
    }
}

fn failure(kind: FailureKind, error: &str) -> Verdict {
    Verdict::Fail(Failure {
        kind,
        error: error.into(),
    })
}

impl AttemptSupervisor {
    /// Writes what came of an attempt. While the store does not take it, it is tried again, and the lease renewed meanwhile; the
    /// queue decides whether the attempt is still the current one.
    pub(super) async fn write(&mut self, mut verdict: Verdict) -> Outcome {
        let give_up_at = self.runtime().monotonic() + PATIENCE;
        let mut pause = PAUSE_MIN;
        let mut has_failed = false;
        loop {
            if let Verdict::Nothing(outcome) = verdict {
                return outcome;
            }
            let trying = unless_abandoned(self.stage.clone(), self.try_write(&verdict));
            let Some(tried) = trying.await else {
                return Outcome::Abandoned;
            };
            let error = match tried {
                Ok(outcome) => return outcome,
                Err(error) => error,
            };
            if is_lost(&error) {
                return self.what_was_written(&verdict, has_failed).await;
            }
            if error.kind() == ErrorKind::BadInput {
                match instead(&verdict, &error) {
                    Some(failure) => verdict = failure,
                    None => return Outcome::Abandoned,
                }
                continue;
            }
            tracing::warn!(%error, "could not write what came of the attempt; trying again");
            has_failed = true;
            if self.runtime().monotonic() >= give_up_at {
                return Outcome::Abandoned;
            }
            let sleep = self.runtime().sleep(pause);
            if unless_abandoned(self.stage.clone(), sleep).await.is_none() {
                return Outcome::Abandoned;
            }
            pause = (pause * 2).min(PAUSE_MAX);
            let renewing = unless_abandoned(self.stage.clone(), self.renew_if_due());
            if renewing.await.is_none() {
                return Outcome::Abandoned;
            }
        }
    }

    async fn try_write(&self, verdict: &Verdict) -> Result<Outcome, Error> {
        let queue = &self.run.plan.queue;
        let (id, lease) = (self.context.id(), self.lease);
        Ok(match verdict {
            Verdict::Complete(output) => {
                queue.complete(id, lease, output.clone()).await?;
                Outcome::Completed
            }
            Verdict::Fail(failure) => {
                Outcome::of_failure(&queue.fail(id, lease, failure.clone()).await?)
            }
            Verdict::Snooze(delay) => {
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                let task = queue.snooze(id, lease, delay_ms).await?;
                match task.status {
                    Status::Cancelled => Outcome::Cancelled,
                    _ => Outcome::Snoozed {
                        until: task.available_at,
                    },
                }
            }
            Verdict::Release => match queue.release(id, lease).await?.status {
                Status::Cancelled => Outcome::Cancelled,
                _ => Outcome::Released,
            },
            Verdict::Nothing(outcome) => *outcome,
        })
    }

    async fn renew_if_due(&mut self) {
        let now = self.runtime().monotonic();
        if now < self.hold.renew_at {
            return;
        }
        let plan = &self.run.plan;
        let (id, lease) = (self.context.id(), self.lease);
        match plan.queue.renew(id, lease, plan.lease_ms).await {
            Ok(task) => self.note_renewal(now, &task),
            // Whether the lease is lost is told to the write that follows, too.
            Err(error) => self.hold.failed(now, &error),
        }
    }

    /// What became of an attempt whose lease is not the current one: another one's turn, or our own success, if a write whose
    /// answer was lost has been made after all. Nobody else can complete this attempt.
    async fn what_was_written(&self, verdict: &Verdict, has_failed: bool) -> Outcome {
        if !has_failed || !matches!(verdict, Verdict::Complete(_)) {
            return Outcome::Lost;
        }
        match self.run.plan.queue.history(self.context.id()).await {
            Ok(events)
                if events.iter().any(|event| {
                    event.attempt == self.context.attempt()
                        && event.from == Some(Status::Running)
                        && event.to == Status::Completed
                }) =>
            {
                Outcome::Completed
            }
            _ => Outcome::Lost,
        }
    }
}

/// What to write instead of something that the queue refuses for what it is: the same would be refused again.
fn instead(verdict: &Verdict, error: &Error) -> Option<Verdict> {
    let what = match verdict {
        Verdict::Complete(_) => "the work is done, but its output was refused",
        Verdict::Snooze(_) => "the handler's snooze was refused",
        Verdict::Fail(_) | Verdict::Release | Verdict::Nothing(_) => {
            tracing::error!(%error, "the queue refuses what came of the attempt");
            return None;
        }
    };
    Some(failure(FailureKind::Permanent, &format!("{what}: {error}")))
}

/// Waits for something, unless the worker ends at once.
async fn unless_abandoned<T>(
    mut stage: watch::Receiver<Stage>,
    future: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        _ = stage_is(&mut stage, |stage| stage == Stage::Abandoned) => None,
        result = future => Some(result),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use qo_engine::api::ClaimRequest;

    use super::*;
    use crate::testing::memory_queue;
    use crate::worker::context::States;

    /// The context of an attempt that was told to stop, or was not.
    async fn context(reason: Option<StopReason>) -> Context {
        let (queue, _clock) = memory_queue().unwrap();
        queue.task("job", &1).unwrap().submit().await.unwrap();
        let wish = ClaimRequest::new("w".parse().unwrap(), vec!["job".parse().unwrap()]);
        let task = queue.claim(&wish).await.unwrap().remove(0);
        let span = tracing::Span::none();
        let (context, _) = Context::new(task, wish.worker, queue, Arc::<States>::default(), span);
        if let Some(reason) = reason {
            context.stop(reason);
        }
        context
    }

    /// One word for each verdict.
    fn word(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Complete(_) => "complete",
            Verdict::Fail(failure) => match failure.kind {
                FailureKind::Retryable => "retry",
                FailureKind::Permanent => "fail",
                FailureKind::Timeout => "timeout",
                FailureKind::Cancelled => "cancelled",
            },
            Verdict::Snooze(_) => "snooze",
            Verdict::Release => "release",
            Verdict::Nothing(_) => "nothing",
        }
    }

    #[tokio::test]
    async fn the_table_holds() {
        use StopReason::{Cancelled, LeaseLost, Stopping, TimedOut};
        // By what is returned: a success, a permanent failure, a snooze, a retryable error; and dropped.
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
                    End::Returned(Ok(None)),
                    End::Returned(Err(TaskError::permanent("p"))),
                    End::Returned(Err(TaskError::Snooze(Duration::from_secs(1)))),
                    End::Returned(Err(TaskError::retryable("r"))),
                    End::Dropped,
                ]
            };
            let verdicts = ends().map(|end| word(&end.judge(&context, false).0));
            assert_eq!(verdicts, expected, "{reason:?}");
            let lost = ends().map(|end| end.judge(&context, true).0);
            assert!(
                lost.iter()
                    .all(|verdict| *verdict == Verdict::Nothing(Outcome::Lost))
            );
        }
    }
}
