use qo_core::transition::FailureKind;
use qo_core::{Action, Jitter, Rejection, Status};

use super::{apply, assert_rejected};
use crate::support::{at, complete, fail, in_status, lease, pending, running};

fn cancel() -> Action {
    Action::Cancel {
        reason: Some("no longer wanted".into()),
    }
}

#[test]
fn a_pending_task_is_cancelled_immediately() {
    let task = apply(&pending(), cancel(), at(5));
    assert_eq!(
        (task.status, task.completed_at),
        (Status::Cancelled, Some(at(5)))
    );
    assert_eq!(task.last_error.as_deref(), Some("no longer wanted"));
}

#[test]
fn a_running_task_is_asked_to_stop_and_keeps_its_lease() {
    let task = apply(&running(), cancel(), at(5));
    assert_eq!(
        (task.status, task.cancel_requested),
        (Status::Running, true)
    );
    assert_eq!(task.lease_id, Some(lease(1)));
    let event = task.events.last().unwrap();
    assert_eq!(
        (event.from, event.to),
        (Some(Status::Running), Status::Running)
    );
    assert_rejected(&task, cancel(), at(6), &Rejection::CancelAlreadyRequested);
}

#[test]
fn a_cancel_request_takes_effect_whenever_the_task_becomes_pending() {
    let cancelling = apply(&running(), cancel(), at(5));
    for action in [
        Action::Release { lease: lease(1) },
        Action::Snooze {
            lease: lease(1),
            delay_ms: 5,
        },
        fail(1, FailureKind::Retryable),
        fail(1, FailureKind::Timeout),
        fail(1, FailureKind::Cancelled),
        Action::ExpireLease {
            jitter: Jitter::NONE,
        },
    ] {
        let task = apply(&cancelling, action, at(100_000));
        assert_eq!(
            (task.status, task.cancel_requested),
            (Status::Cancelled, false)
        );
        assert_eq!(task.lease_id, None);
    }
}

#[test]
fn completed_and_failed_work_keeps_its_result() {
    let cancelling = apply(&running(), cancel(), at(5));
    assert_eq!(
        apply(&cancelling, complete(1), at(6)).status,
        Status::Completed
    );
    assert_eq!(
        apply(&cancelling, fail(1, FailureKind::Permanent), at(6)).status,
        Status::Failed
    );
}

#[test]
fn a_finished_task_cannot_be_cancelled() {
    for status in Status::ALL
        .into_iter()
        .filter(|status| status.is_terminal())
    {
        let reason = Rejection::WrongStatus {
            action: "cancel",
            status,
        };
        assert_rejected(&in_status(status), cancel(), at(9), &reason);
    }
}
