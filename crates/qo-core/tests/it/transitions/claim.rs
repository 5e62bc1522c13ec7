use qo_core::transition::submit;
use qo_core::{Action, Rejection, Status, Submission};

use super::{apply, assert_rejected};
use crate::support::{at, claim, in_status, lease, op, pending, running, submission};

#[test]
fn a_claim_counts_the_attempt_and_starts_a_lease() {
    let task = apply(&pending(), claim(7), at(10));
    assert_eq!(task.status, Status::Running);
    assert_eq!((task.attempt, task.retry_count), (1, 0));
    assert_eq!(task.worker_id.as_ref().unwrap().as_str(), "w-1");
    assert_eq!(task.lease_id, Some(lease(7)));
    assert_eq!(task.started_at, Some(at(10)));
    assert_eq!(task.lease_expires_at, Some(at(60_010)));
    assert_eq!((task.revision, task.op_id), (2, Some(op(999))));
}

#[test]
fn only_a_pending_task_can_be_claimed() {
    for status in Status::ALL
        .into_iter()
        .filter(|status| *status != Status::Pending)
    {
        assert_rejected(
            &in_status(status),
            claim(2),
            at(0),
            &Rejection::WrongStatus {
                action: "claim",
                status,
            },
        );
    }
}

#[test]
fn a_task_can_be_claimed_from_its_due_millisecond() {
    let later = Submission {
        available_at: Some(at(1_000)),
        ..submission(1)
    };
    let task = submit(later, op(1), at(0)).unwrap();
    let too_early = Rejection::NotDue {
        available_at: at(1_000),
    };
    assert_rejected(&task, claim(1), at(999), &too_early);
    assert_eq!(apply(&task, claim(1), at(1_000)).status, Status::Running);
}

#[test]
fn an_expired_task_is_cancelled_instead_of_claimed() {
    let perishable = Submission {
        expires_at: Some(at(1_000)),
        ..submission(1)
    };
    let task = submit(perishable, op(1), at(0)).unwrap();
    assert_eq!(apply(&task, claim(1), at(999)).status, Status::Running);
    assert_rejected(
        &task,
        claim(1),
        at(1_000),
        &Rejection::Expired {
            expires_at: at(1_000),
        },
    );
    assert_rejected(
        &task,
        Action::Expire,
        at(999),
        &Rejection::NotExpired {
            expires_at: Some(at(1_000)),
        },
    );
    let expired = apply(&task, Action::Expire, at(1_000));
    assert_eq!(expired.status, Status::Cancelled);
    assert!(expired.last_error.unwrap().contains("expired"));
    let never = Rejection::NotExpired { expires_at: None };
    assert_rejected(&pending(), Action::Expire, at(i64::from(u32::MAX)), &never);
}

#[test]
fn lease_durations_are_bounded() {
    for lease_ms in [0, u64::MAX] {
        let Action::Claim { worker, lease, .. } = claim(1) else {
            unreachable!()
        };
        let action = Action::Claim {
            worker,
            lease,
            lease_ms,
        };
        let mut task = pending();
        let rejection = task
            .apply(qo_core::Command { op: op(2), action }, at(0))
            .unwrap_err();
        assert!(matches!(
            rejection,
            Rejection::OutOfBounds {
                field: "lease_ms",
                ..
            }
        ));
    }
}

#[test]
fn a_fencing_token_is_never_issued_twice() {
    let mut task = pending();
    task.attempt = u32::MAX;
    assert_rejected(&task, claim(1), at(0), &Rejection::AttemptsUsedUp);
    assert_eq!(running().attempt, 1);
}
