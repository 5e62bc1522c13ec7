use qo_core::task::{decode, decode_compact, encode, encode_compact};
use qo_core::transition::submit;
use qo_core::{Action, Actor, Rejection, Status, Submission};

use super::{apply, assert_rejected};
use crate::support::{at, claim, in_status, op, submission};

const ENDS: [Status; 3] = [Status::Completed, Status::Failed, Status::Cancelled];

#[test]
fn a_replay_starts_over_but_never_repeats_an_attempt_number() {
    for status in ENDS {
        let ended = in_status(status);
        let task = apply(&ended, Action::Replay, at(50));
        assert_eq!(
            (task.status, task.available_at, task.retry_count),
            (Status::Pending, at(50), 0)
        );
        assert_eq!(
            (task.completed_at, task.output(), task.expires_at),
            (None, None, None)
        );
        assert_eq!(task.attempt, ended.attempt);
        assert_eq!(apply(&task, claim(2), at(50)).attempt, ended.attempt + 1);
    }
}

#[test]
fn a_waiting_task_can_be_made_due_and_a_due_one_cannot() {
    let waiting = submit(
        Submission {
            available_at: Some(at(60_000)),
            expires_at: Some(at(90_000)),
            ..submission(1)
        },
        op(1),
        at(0),
    )
    .unwrap();
    let task = apply(&waiting, Action::RunNow, at(50));
    assert_eq!(
        (task.status, task.available_at, task.attempt),
        (Status::Pending, at(50), 0)
    );
    assert_eq!(task.expires_at, waiting.expires_at, "it may still expire");
    assert_eq!(apply(&task, claim(1), at(50)).status, Status::Running);
    let due = Rejection::AlreadyDue {
        available_at: at(50),
    };
    assert_rejected(&task, Action::RunNow, at(50), &due);
    let expired = Rejection::Expired {
        expires_at: at(90_000),
    };
    assert_rejected(&waiting, Action::RunNow, at(90_000), &expired);
    for status in Status::ALL
        .into_iter()
        .filter(|status| *status != Status::Pending)
    {
        let reason = Rejection::WrongStatus {
            action: "run now",
            status,
        };
        assert_rejected(&in_status(status), Action::RunNow, at(9), &reason);
    }
}

#[test]
fn unarchiving_restores_the_previous_status() {
    for status in ENDS {
        let archived = apply(&in_status(status), Action::Archive, at(50));
        assert_eq!(archived.status, Status::Archived);
        assert_eq!(archived.output(), in_status(status).output());
        assert_eq!(apply(&archived, Action::Unarchive, at(60)).status, status);
    }
}

#[test]
fn unarchiving_a_record_without_history_gives_failed() {
    let mut archived = in_status(Status::Archived);
    archived.events = qo_core::task::History::default();
    assert_eq!(
        apply(&archived, Action::Unarchive, at(60)).status,
        Status::Failed
    );
}

#[test]
fn live_tasks_are_neither_replayed_nor_archived() {
    for status in [Status::Pending, Status::Running, Status::Archived] {
        let task = in_status(status);
        assert_rejected(
            &task,
            Action::Replay,
            at(9),
            &Rejection::WrongStatus {
                action: "replay",
                status,
            },
        );
        assert_rejected(
            &task,
            Action::Archive,
            at(9),
            &Rejection::WrongStatus {
                action: "archive",
                status,
            },
        );
    }
    for status in Status::ALL
        .into_iter()
        .filter(|status| *status != Status::Archived)
    {
        let reason = Rejection::WrongStatus {
            action: "unarchive",
            status,
        };
        assert_rejected(&in_status(status), Action::Unarchive, at(9), &reason);
    }
}

#[test]
fn the_history_names_who_requested_a_change() {
    let actor = Actor::new("ada@laptop").unwrap();
    let by = |action| Action::By {
        actor: actor.clone(),
        action: Box::new(action),
    };
    let pending = submit(submission(1), op(1), at(0)).unwrap();
    let named = apply(&pending, by(Action::Cancel { reason: None }), at(50));
    let plain = apply(&pending, Action::Cancel { reason: None }, at(50));
    let event = named.events.last().unwrap();
    assert_eq!(event.by.as_deref(), Some(&actor));
    assert_eq!(event.action, plain.events.last().unwrap().action);
    assert_eq!(named.status, plain.status);
    // Both stored forms keep the name, and the compact one falls back to JSON, which earlier versions rewrite unharmed.
    assert_eq!(decode(&encode(&named).unwrap()).unwrap(), named);
    let compact = encode_compact(&named, true).unwrap();
    assert_eq!(compact.first(), Some(&b'{'));
    assert_eq!(decode_compact(&compact).unwrap(), named);
    assert_rejected(
        &named,
        by(Action::Cancel { reason: None }),
        at(60),
        &Rejection::WrongStatus {
            action: "cancel",
            status: Status::Cancelled,
        },
    );
}

#[test]
fn a_failed_task_that_stops_its_key_can_be_cancelled_or_replayed_but_not_put_away() {
    use qo_core::task::{OnFailure, OrderingRule};
    use qo_core::transition::FailureKind;

    use crate::support::{after, fail};

    let failed = |on_failure| {
        let ordering = Some(OrderingRule {
            key: "customer-7".parse().unwrap(),
            on_failure,
        });
        let submission = Submission {
            ordering,
            ..submission(1)
        };
        let task = submit(submission, op(1), at(0)).unwrap();
        assert_eq!(task.min_reader, 2);
        after(after(task, claim(1)), fail(1, FailureKind::Permanent))
    };
    let stopping = failed(OnFailure::Stop);
    assert!(stopping.stops_line() && !stopping.is_settled());
    let cancelled = apply(&stopping, Action::Cancel { reason: None }, at(50));
    assert_eq!(cancelled.status, Status::Cancelled);
    assert_eq!(
        cancelled.last_error, stopping.last_error,
        "the error is kept"
    );
    assert_eq!(apply(&cancelled, Action::Replay, at(60)).ordering_turn, 1);
    assert_eq!(apply(&stopping, Action::Replay, at(60)).ordering_turn, 0);
    let reason = Rejection::StopsLine { action: "archive" };
    assert_rejected(&stopping, Action::Archive, at(50), &reason);

    let settled = failed(OnFailure::Continue);
    assert!(settled.is_settled());
    assert_eq!(apply(&settled, Action::Replay, at(60)).ordering_turn, 1);
    apply(&settled, Action::Archive, at(50));
}
