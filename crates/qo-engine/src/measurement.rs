//! What the changes of tasks say about throughput and latency.

use std::time::Duration;

use qo_core::task::{Event, EventAction};
use qo_core::{QueueName, Status, Task, TaskType, Timestamp};

/// A durable change of a task, as counters need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurement {
    /// The task's queue.
    pub queue: QueueName,
    /// The task's type.
    pub task_type: TaskType,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub kind: MeasurementKind,
}

/// What happened to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MeasurementKind {
    /// It was submitted.
    Submitted,
    /// A worker claimed it.
    Claimed {
        /// From its due time to the claim.
        wait: Duration,
    },
    /// An attempt ended, or the task ended without one.
    Ended {
        /// How it ended.
        end: End,
        /// From the claim to the end of the attempt, if there was one.
        run: Option<Duration>,
        /// From the submit to the end, if the task is finished.
        total: Option<Duration>,
    },
}

/// How an attempt or a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum End {
    /// The task is completed.
    Completed,
    /// The task has failed permanently.
    Failed,
    /// The task is cancelled.
    Cancelled,
    /// The attempt failed or its lease expired, and the task will be tried again.
    Retried,
    /// The worker returned the task without using a retry.
    Returned,
}

impl Measurement {
    /// The measurement of an operation that led to `task`; `None` if there is nothing to count.
    pub fn of(operation: &str, task: &Task) -> Option<Self> {
        let kind = match operation {
            "submit" => MeasurementKind::Submitted,
            "claim" if task.status == Status::Running => MeasurementKind::Claimed {
                wait: task.started_at?.since(task.available_at),
            },
            // A claim also cancels expired tasks that it meets.
            "claim" | "complete" | "fail" | "release" | "snooze" | "expire" | "cancel" => {
                end_of(task)?
            }
            _ => return None,
        };
        Some(Self {
            queue: task.queue.clone(),
            task_type: task.task_type.clone(),
            at: task.updated_at,
            kind,
        })
    }
}

/// How the newest event ended an attempt or the task.
fn end_of(task: &Task) -> Option<MeasurementKind> {
    let mut events = task.events.iter().rev();
    let last = events.next()?;
    let end = match (last.to, last.action) {
        (Status::Completed, _) => End::Completed,
        (Status::Failed, _) => End::Failed,
        (Status::Cancelled, _) => End::Cancelled,
        (Status::Pending, Some(EventAction::Released | EventAction::Snoozed)) => End::Returned,
        (Status::Pending, _) if last.from == Some(Status::Running) => End::Retried,
        _ => return None,
    };
    let is_claim = |event: &&Event| {
        event.to == Status::Running && event.action != Some(EventAction::CancelRequested)
    };
    let claim = events
        .find(is_claim)
        .filter(|_| last.from == Some(Status::Running));
    let finished = task.completed_at.filter(|_| last.to.is_terminal());
    Some(MeasurementKind::Ended {
        end,
        run: claim.map(|claim| last.at.since(claim.at)),
        total: finished.map(|at| at.since(task.created_at)),
    })
}

#[cfg(test)]
mod tests {
    use qo_core::transition::{Failure, FailureKind, submit};
    use qo_core::{Action, Command, Jitter, Json, LeaseId, OpId, Payload, Submission, TaskId};

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    fn submitted() -> Task {
        let input = Payload::Inline(Json::null());
        let submission = Submission::new(TaskId::from_random(1), "t".parse().unwrap(), input);
        submit(submission, OpId::from_random(1), at(0)).unwrap()
    }

    fn after(mut task: Task, action: Action, millis: i64) -> Task {
        let op = OpId::from_random(u128::from(millis.unsigned_abs()));
        task.apply(Command { op, action }, at(millis)).unwrap();
        task
    }

    fn kind(operation: &str, task: &Task) -> Option<MeasurementKind> {
        Measurement::of(operation, task).map(|measured| measured.kind)
    }

    #[test]
    fn waits_runs_and_ends_are_measured_once() {
        let lease = LeaseId::from_random(1);
        let claim = Action::Claim {
            worker: "w".parse().unwrap(),
            lease,
            lease_ms: 60_000,
        };
        let task = submitted();
        assert_eq!(kind("submit", &task), Some(MeasurementKind::Submitted));
        let task = after(task, claim.clone(), 30);
        let wait = Duration::from_millis(30);
        assert_eq!(
            kind("claim", &task),
            Some(MeasurementKind::Claimed { wait })
        );
        // Neither ends the attempt.
        let task = after(task, Action::Cancel { reason: None }, 40);
        assert_eq!(kind("cancel", &task), None);
        assert_eq!(kind("progress", &task), None);
        assert_eq!(kind("renew", &task), None);
        let done = after(
            task.clone(),
            Action::Complete {
                lease,
                output: None,
            },
            130,
        );
        let ended = |end, run_ms: Option<u64>, total_ms: Option<u64>| {
            Some(MeasurementKind::Ended {
                end,
                run: run_ms.map(Duration::from_millis),
                total: total_ms.map(Duration::from_millis),
            })
        };
        assert_eq!(
            kind("complete", &done),
            ended(End::Completed, Some(100), Some(130))
        );
        assert_eq!(kind("archive", &after(done, Action::Archive, 200)), None);

        let running = after(submitted(), claim, 30);
        let failure = Failure {
            kind: FailureKind::Retryable,
            error: "no".into(),
        };
        let fail = Action::Fail {
            lease,
            failure,
            jitter: Jitter::new(0),
        };
        let retried = after(running.clone(), fail, 50);
        assert_eq!(kind("fail", &retried), ended(End::Retried, Some(20), None));
        let released = after(running, Action::Release { lease }, 50);
        assert_eq!(
            kind("release", &released),
            ended(End::Returned, Some(20), None)
        );
        let cancelled = after(submitted(), Action::Cancel { reason: None }, 70);
        assert_eq!(
            kind("cancel", &cancelled),
            ended(End::Cancelled, None, Some(70))
        );
    }
}
