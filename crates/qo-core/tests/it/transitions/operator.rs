use qo_core::task::{decode, decode_compact, encode, encode_compact};
use qo_core::transition::submit;
use qo_core::{Action, Actor, Rejection, Status, Submission, Task};

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

/// A task that is due in a minute, and expires half a minute later.
fn waiting() -> Task {
    let submission = Submission {
        available_at: Some(at(60_000)),
        expires_at: Some(at(90_000)),
        ..submission(1)
    };
    submit(submission, op(1), at(0)).unwrap()
}

#[test]
fn a_waiting_task_can_be_made_due_and_a_due_one_cannot() {
    let waiting = waiting();
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

mod redrive {
    use qo_core::QueueName;
    use qo_core::task::{IdempotencyScope, OrderingRule};
    use qo_core::transition::Idempotency;

    use super::*;

    fn to(queue: &str) -> Action {
        let to = queue.parse().unwrap();
        Action::Redrive { to }
    }

    fn queue(text: &str) -> QueueName {
        text.parse().unwrap()
    }

    fn keyed(scope: IdempotencyScope) -> Task {
        let idempotency = Some(Idempotency {
            key: "order-7".parse().unwrap(),
            scope,
            until: None,
        });
        let submission = Submission {
            idempotency,
            ..submission(1)
        };
        submit(submission, op(1), at(0)).unwrap()
    }

    #[test]
    fn a_waiting_task_keeps_its_due_time_and_its_retries() {
        let mut waiting = waiting();
        waiting.retry_count = 2;
        let moved = apply(&waiting, to("bulk"), at(50));
        assert_eq!(
            (moved.status, moved.queue.as_str()),
            (Status::Pending, "bulk")
        );
        assert_eq!(
            (moved.retry_count, moved.expires_at),
            (2, waiting.expires_at)
        );
        // Its old entry has another key, even if it comes back.
        assert_eq!(moved.available_at, at(60_001));
        let back = apply(&moved, to("default"), at(60));
        assert_eq!(
            (back.queue.as_str(), back.available_at),
            ("default", at(60_002))
        );
        let event = moved.events.last().unwrap();
        assert_eq!(
            event.action.map(qo_core::task::EventAction::name),
            Some("redriven")
        );
        assert_eq!(
            event.error.as_deref(),
            Some("moved from queue default to bulk")
        );
        let expired = Rejection::Expired {
            expires_at: at(90_000),
        };
        assert_rejected(&waiting, to("bulk"), at(90_000), &expired);
    }

    #[test]
    fn a_failed_task_starts_over() {
        let failed = in_status(Status::Failed);
        let moved = apply(&failed, to("bulk"), at(50_000));
        let mut expected = apply(&failed, Action::Replay, at(50_000));
        expected.queue = queue("bulk");
        expected.events = moved.events.clone();
        assert_eq!(moved, expected);
        assert_eq!(
            apply(&moved, claim(2), at(50_000)).attempt,
            failed.attempt + 1
        );
    }

    #[test]
    fn a_repeated_request_changes_nothing_even_if_the_task_has_failed_there() {
        let there = Rejection::AlreadyInQueue {
            queue: queue("default"),
        };
        for status in [Status::Pending, Status::Failed] {
            assert_rejected(&in_status(status), to("default"), at(9_999), &there);
        }
    }

    #[test]
    fn running_completed_cancelled_and_archived_tasks_stay() {
        let statuses = [
            Status::Running,
            Status::Completed,
            Status::Cancelled,
            Status::Archived,
        ];
        for status in statuses {
            let reason = Rejection::WrongStatus {
                action: "redrive",
                status,
            };
            assert_rejected(&in_status(status), to("bulk"), at(9), &reason);
        }
    }

    #[test]
    fn a_task_with_an_ordering_key_stays() {
        let ordering = Some(OrderingRule {
            key: "customer-7".parse().unwrap(),
            on_failure: qo_core::task::OnFailure::Continue,
        });
        let submission = Submission {
            ordering,
            ..submission(1)
        };
        let task = submit(submission, op(1), at(0)).unwrap();
        let reason = Rejection::InLine { action: "redrive" };
        assert_rejected(&task, to("bulk"), at(9), &reason);
    }

    #[test]
    fn a_key_stays_in_the_queue_of_the_submit() {
        for scope in [IdempotencyScope::Queue, IdempotencyScope::Type] {
            let task = keyed(scope);
            let moved = apply(&task, to("bulk"), at(9));
            assert_eq!(moved.scoped_key(), task.scoped_key());
            assert_eq!(moved.min_reader, 3, "an older version would look in bulk");
            let moved_again = apply(&moved, to("third"), at(10));
            assert_eq!(moved_again.scoped_key(), task.scoped_key());
            let back = apply(&moved_again, to("default"), at(11));
            assert_eq!(back.scoped_key(), task.scoped_key());
            assert_eq!(back.idempotency_queue, None);
            for task in [moved, back] {
                assert_eq!(decode(&encode(&task).unwrap()).unwrap(), task);
                let compact = encode_compact(&task, true).unwrap();
                assert_eq!(decode_compact(&compact).unwrap(), task);
            }
        }
        let global = keyed(IdempotencyScope::Global);
        let moved = apply(&global, to("bulk"), at(9));
        assert_eq!((moved.idempotency_queue, moved.min_reader), (None, 0));
    }
}
