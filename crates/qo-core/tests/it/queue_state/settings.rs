//! Settings of queues in the state.

use qo_core::document::DocumentChange;
use qo_core::queue_state::{CommandOutcome, Request, StateCommand};
use qo_core::{Action, Jitter, Json, QueueSettings, QueueState, Rejection, Status, Submission};

use crate::support::{at, claim, id, op, submission};

fn set(state: &mut QueueState, number: u64, body: Option<&str>) {
    let document = QueueSettings::document_id(&"default".parse().unwrap());
    let change = DocumentChange {
        expected: state.document(&document).map(|stored| stored.op_id),
        body: body.map(|text| Json::parse(text).unwrap()),
        op: op(number),
    };
    apply(state, Request::Document(document, change), 0);
}

fn apply(state: &mut QueueState, request: Request, now: i64) -> CommandOutcome {
    let op = op(1_000 + state.last_sequence());
    state.apply(StateCommand { op, request }, at(now)).0
}

fn submit(state: &mut QueueState, submission: Submission) -> CommandOutcome {
    apply(state, Request::Submit(Box::new(submission)), 0)
}

fn full(limit: u64) -> CommandOutcome {
    CommandOutcome::Rejected(Rejection::QueueFull {
        queue: "default".parse().unwrap(),
        limit,
    })
}

#[test]
fn a_full_queue_accepts_a_task_when_one_has_started() {
    let mut state = QueueState::new();
    set(&mut state, 1, Some(r#"{"max_waiting":2}"#));
    for number in [1, 2] {
        assert!(matches!(
            submit(&mut state, submission(number)),
            CommandOutcome::Submitted { .. }
        ));
    }
    assert_eq!(submit(&mut state, submission(3)), full(2));
    assert_eq!(state.task(id(3)), None);
    // A duplicate is no new task, and an exempt one is added anyway.
    let again = submit(&mut state, submission(2));
    assert_eq!(
        again,
        CommandOutcome::Submitted {
            id: id(2),
            duplicate: true
        }
    );
    let exempt = Submission {
        is_exempt: true,
        ..submission(4)
    };
    assert!(matches!(
        submit(&mut state, exempt),
        CommandOutcome::Submitted {
            duplicate: false,
            ..
        }
    ));
    let other = Submission {
        queue: "bulk".parse().unwrap(),
        ..submission(5)
    };
    assert!(matches!(
        submit(&mut state, other),
        CommandOutcome::Submitted {
            duplicate: false,
            ..
        }
    ));
    for number in [1, 4] {
        let action = claim(number);
        apply(
            &mut state,
            Request::Task {
                id: id(number),
                action,
            },
            0,
        );
    }
    assert!(matches!(
        submit(&mut state, submission(3)),
        CommandOutcome::Submitted {
            duplicate: false,
            ..
        }
    ));
    assert_eq!(submit(&mut state, submission(6)), full(2));
    // A higher limit, and none, take effect at once.
    set(&mut state, 2, Some(r#"{"max_waiting":3}"#));
    assert!(matches!(
        submit(&mut state, submission(6)),
        CommandOutcome::Submitted { .. }
    ));
    assert_eq!(submit(&mut state, submission(7)), full(3));
    set(&mut state, 3, None);
    assert!(matches!(
        submit(&mut state, submission(7)),
        CommandOutcome::Submitted { .. }
    ));
    state.check_consistency().unwrap();
}

#[test]
fn settings_are_restored_with_the_documents() {
    let mut state = QueueState::new();
    set(
        &mut state,
        1,
        Some(r#"{"max_waiting":1,"max_retries":9,"timeout_seconds":2}"#),
    );
    let documents = state.documents(qo_core::DocumentKind::Queues);
    let documents = documents
        .map(|(id, stored)| (id.clone(), stored.clone()))
        .collect();
    let mut restored = QueueState::new();
    restored.restore_documents(documents);
    submit(&mut restored, submission(1));
    let task = restored.task(id(1)).unwrap();
    assert_eq!((task.max_retries, task.timeout_seconds), (9, 2));
    assert_eq!(submit(&mut restored, submission(2)), full(1));
    restored.restore_documents(std::collections::BTreeMap::new());
    assert_eq!(
        *restored.settings(&"default".parse().unwrap()),
        QueueSettings::NONE
    );
}

#[test]
fn a_task_that_waited_too_long_fails() {
    let mut state = QueueState::new();
    set(&mut state, 1, Some(r#"{"max_wait_ms":1000}"#));
    let delayed = Submission {
        available_at: Some(at(5_000)),
        ..submission(1)
    };
    submit(&mut state, delayed);
    let perishable = Submission {
        expires_at: Some(at(5_500)),
        available_at: Some(at(5_000)),
        ..submission(2)
    };
    submit(&mut state, perishable);
    assert_eq!(state.next_expiry(0), Some(at(5_500)));
    let expire = Request::ExpireLeases {
        limit: 10,
        lease_margin_ms: 0,
        jitter: Jitter::NONE,
    };
    apply(&mut state, expire.clone(), 5_999);
    assert_eq!(state.task(id(2)).unwrap().status, Status::Cancelled);
    assert_eq!(state.task(id(1)).unwrap().status, Status::Pending);
    let late = Request::Task {
        id: id(1),
        action: claim(1),
    };
    let refused = apply(&mut state, late, 6_000);
    assert_eq!(
        refused,
        CommandOutcome::Rejected(Rejection::Expired {
            expires_at: at(6_000)
        })
    );
    apply(&mut state, expire, 6_000);
    let failed = state.task(id(1)).unwrap();
    assert_eq!(failed.status, Status::Failed);
    assert_eq!(
        failed.last_error.as_deref(),
        Some("waited longer than 1000 ms, the maximum wait of the queue default")
    );
    // Each wait counts anew, and a replayed task may wait for ever.
    apply(
        &mut state,
        Request::Task {
            id: id(1),
            action: Action::Replay,
        },
        7_000,
    );
    assert_eq!(state.task(id(1)).unwrap().pending_until(), None);
    submit(&mut state, submission(3));
    apply(
        &mut state,
        Request::Task {
            id: id(3),
            action: claim(3),
        },
        500,
    );
    let lease = crate::support::lease(3);
    apply(
        &mut state,
        Request::Task {
            id: id(3),
            action: Action::Release { lease },
        },
        9_000,
    );
    assert_eq!(state.task(id(3)).unwrap().pending_until(), Some(at(10_000)));
    state.check_consistency().unwrap();
}
