use qo_core::limits::{ATTEMPT_LOG_MAX_BYTES, ERROR_MAX_BYTES};
use qo_core::task::{decode, decode_compact, encode, encode_compact};
use qo_core::transition::{Failure, FailureKind, ProgressReport, submit};
use qo_core::{Action, Command, Jitter, Rejection, Status, Submission, Task};

use super::{apply, assert_rejected};
use crate::support::{at, claim, complete, fail, in_status, json, lease, op, running, submission};

const EXPIRE: Action = Action::ExpireLease {
    jitter: Jitter::NONE,
};

fn renew(number: u64, lease_ms: u64) -> Action {
    Action::Renew {
        lease: lease(number),
        lease_ms,
    }
}

/// Every worker action with lease `number`.
fn worker_actions(number: u64) -> Vec<Action> {
    let report = ProgressReport {
        percent: 50.0,
        message: None,
    };
    vec![
        renew(number, 1_000),
        Action::Progress {
            lease: lease(number),
            report,
        },
        complete(number),
        fail(number, FailureKind::Retryable),
        fail(number, FailureKind::Permanent),
        fail(number, FailureKind::Timeout),
        fail(number, FailureKind::Cancelled),
        Action::Release {
            lease: lease(number),
        },
        Action::Snooze {
            lease: lease(number),
            delay_ms: 1,
        },
    ]
}

#[test]
fn no_action_with_a_stale_lease_changes_the_task() {
    for status in Status::ALL {
        let task = in_status(status);
        for action in worker_actions(2) {
            let reason = Rejection::LeaseLost {
                presented: lease(2),
                status,
                attempt: task.attempt,
            };
            assert_rejected(&task, action, at(10), &reason);
        }
    }
}

#[test]
fn an_expired_lease_is_valid_until_it_is_ended() {
    // The first writer decides, by compare-and-swap; no clock does.
    let late = at(10_000_000);
    assert_eq!(
        apply(&running(), complete(1), late).status,
        Status::Completed
    );
}

#[test]
fn completion_keeps_the_output_and_ends_the_lease() {
    let task = apply(&running(), complete(1), at(5));
    assert_eq!(task.status, Status::Completed);
    assert_eq!(task.output(), Some(json("42")));
    assert_eq!(
        (task.completed_at, task.lease_id, task.lease_expires_at),
        (Some(at(5)), None, None)
    );
    assert_eq!(
        task.events
            .last()
            .unwrap()
            .worker
            .as_ref()
            .unwrap()
            .as_str(),
        "w-1"
    );
}

#[test]
fn an_oversized_output_is_rejected() {
    let output = Some(json(&format!("\"{}\"", "x".repeat(70_000))));
    let action = Action::Complete {
        lease: lease(1),
        output,
    };
    let reason = Rejection::PayloadTooLarge {
        field: "output",
        size: 70_002,
        limit: 65_536,
    };
    assert_rejected(&running(), action, at(0), &reason);
}

#[test]
fn a_renewal_extends_the_lease_and_never_shortens_it() {
    let task = apply(&running(), renew(1, 60_000), at(20_000));
    assert_eq!(task.lease_expires_at, Some(at(80_000)));
    assert_eq!(task.events.len(), running().events.len());
    let task = apply(&task, renew(1, 1_000), at(20_000));
    assert_eq!(task.lease_expires_at, Some(at(80_000)));
}

#[test]
fn failures_wait_longer_each_time_until_retries_are_exhausted() {
    let mut task = running();
    for (retry, wait_ms) in [1_000, 2_000, 4_000].into_iter().enumerate() {
        let now = task.updated_at;
        task = apply(&task, fail(1, FailureKind::Retryable), now);
        assert_eq!(task.status, Status::Pending);
        assert_eq!(task.retry_count as usize, retry + 1);
        assert_eq!(task.available_at, now.plus_millis(wait_ms));
        assert_eq!(
            (task.worker_id.as_ref(), task.lease_id, task.started_at),
            (None, None, None)
        );
        assert_eq!(task.last_error.as_deref(), Some("it broke"));
        task = apply(&task, claim(1), task.available_at);
    }
    let task = apply(&task, fail(1, FailureKind::Timeout), task.updated_at);
    assert_eq!(task.status, Status::Failed);
    assert_eq!((task.attempt, task.retry_count), (4, 3));
}

#[test]
fn a_task_whose_worker_dies_each_time_fails_after_its_retries() {
    let mut task = running();
    while task.status == Status::Running {
        let dead = task.lease_expires_at.unwrap().plus_millis(1);
        task = apply(&task, EXPIRE, dead);
        if task.status == Status::Pending {
            task = apply(&task, claim(1), task.available_at);
        }
    }
    assert_eq!(task.status, Status::Failed);
    assert_eq!(task.attempt, task.max_retries + 1);
}

#[test]
fn a_lease_is_ended_only_after_it_expired() {
    let holds = Rejection::LeaseHolds {
        lease_expires_at: at(60_000),
    };
    assert_rejected(&running(), EXPIRE, at(60_000), &holds);
    assert_eq!(
        apply(&running(), EXPIRE, at(60_001)).status,
        Status::Pending
    );
    for status in Status::ALL
        .into_iter()
        .filter(|status| *status != Status::Running)
    {
        let reason = Rejection::WrongStatus {
            action: "expire the lease of",
            status,
        };
        assert_rejected(&in_status(status), EXPIRE, at(1_000_000), &reason);
    }
}

#[test]
fn a_permanent_failure_is_final() {
    let task = apply(&running(), fail(1, FailureKind::Permanent), at(0));
    assert_eq!((task.status, task.attempt), (Status::Failed, 1));
    assert_eq!(
        apply(&running(), fail(1, FailureKind::Cancelled), at(0)).status,
        Status::Cancelled
    );
}

#[test]
fn no_retries_means_one_attempt() {
    let once = Submission {
        max_retries: Some(0),
        ..submission(1)
    };
    let task = apply(&submit(once, op(1), at(0)).unwrap(), claim(1), at(0));
    assert_eq!(
        apply(&task, fail(1, FailureKind::Retryable), at(0)).status,
        Status::Failed
    );
}

fn assert_back_without_counting(task: &Task, available_at: qo_core::Timestamp) {
    assert_eq!(
        (task.status, task.retry_count, task.attempt),
        (Status::Pending, 0, 1)
    );
    assert_eq!((task.available_at, task.lease_id), (available_at, None));
}

#[test]
fn a_release_returns_the_task_immediately_and_does_not_count() {
    let task = apply(&running(), Action::Release { lease: lease(1) }, at(5));
    assert_back_without_counting(&task, at(5));
}

#[test]
fn a_snooze_delays_the_task_and_does_not_count() {
    let snooze = |delay_ms| Action::Snooze {
        lease: lease(1),
        delay_ms,
    };
    assert_back_without_counting(&apply(&running(), snooze(9_000), at(5)), at(9_005));
    let too_long = Rejection::OutOfBounds {
        field: "delay_ms",
        allowed: "at most a year",
    };
    assert_rejected(&running(), snooze(u64::MAX), at(5), &too_long);
}

#[test]
fn progress_is_kept_while_the_attempt_lasts() {
    let report = |percent| Action::Progress {
        lease: lease(1),
        report: ProgressReport {
            percent,
            message: Some("x".repeat(1_000).into()),
        },
    };
    let task = apply(&running(), report(12.5), at(5));
    let progress = task.progress.as_deref().unwrap();
    assert_eq!((progress.percent, progress.at), (12.5, at(5)));
    assert!(progress.message.as_deref().unwrap().len() <= 256);
    for percent in [-1.0, 100.1, f64::NAN] {
        let reason = Rejection::OutOfBounds {
            field: "percent",
            allowed: "a number from 0 to 100",
        };
        assert_rejected(&task, report(percent), at(6), &reason);
    }
    let released = apply(&task, Action::Release { lease: lease(1) }, at(7));
    assert_eq!(released.progress, None);
}

#[test]
fn a_long_error_is_truncated_not_rejected() {
    let failure = Failure {
        kind: FailureKind::Permanent,
        error: "é".repeat(10_000).into(),
    };
    let action = Action::Fail {
        lease: lease(1),
        failure,
        jitter: Jitter::NONE,
    };
    let task = apply(&running(), action, at(0));
    let error = task.last_error.unwrap();
    assert!(error.len() <= ERROR_MAX_BYTES && error.len() > ERROR_MAX_BYTES - 8);
    assert!(task.events.last().unwrap().error.as_deref().unwrap().len() <= 512);
}

#[test]
fn the_end_of_an_attempt_keeps_its_log() {
    let mut task = submit(submission(1), op(1), at(0)).unwrap();
    for attempt in 1..=5_u32 {
        let now = at(10 * i64::from(attempt));
        task = apply(&task, claim(u64::from(attempt)), now);
        let text = match attempt {
            4 => "x".repeat(100_000),
            _ => format!("attempt {attempt}\n"),
        };
        let logged = |action| Action::Logged {
            log: text.clone().into(),
            action: Box::new(action),
        };
        let release = |number| Action::Release {
            lease: lease(number),
        };
        let mut rejected = task.clone();
        let action = logged(release(99));
        let stale = rejected.apply(Command { op: op(2), action }, now);
        assert!(stale.is_err() && rejected == task);
        let plain = apply(&task, release(u64::from(attempt)), now);
        let with_log = apply(&task, logged(release(u64::from(attempt))), now);
        assert_eq!(with_log.logs().last().unwrap().attempt, attempt);
        // It changes nothing else.
        assert_eq!(with_log.clone().without_logs(), plain.without_logs());
        task = with_log;
    }
    let attempts: Vec<_> = task.logs().iter().map(|log| log.attempt).collect();
    assert_eq!(attempts, [3, 4, 5]);
    assert_eq!(&*task.logs()[2].text, "attempt 5\n");
    let long = &task.logs()[1].text;
    assert!(long.starts_with('…') && long.len() <= ATTEMPT_LOG_MAX_BYTES);
    assert_eq!(decode(&encode(&task).unwrap()).unwrap(), task);
    let compact = encode_compact(&task, true).unwrap();
    assert_eq!(decode_compact(&compact).unwrap(), task);
}
