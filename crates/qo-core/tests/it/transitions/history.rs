use qo_core::limits::EVENTS_MAX;
use qo_core::task::EventAction;
use qo_core::transition::{Failure, FailureKind};
use qo_core::{Action, Command, Jitter, Status};

use super::apply;
use crate::support::{at, claim, complete, lease, op, pending};

#[test]
fn the_history_records_each_change_and_its_operation() {
    let mut task = pending();
    task.apply(
        Command {
            op: op(2),
            action: claim(1),
        },
        at(10),
    )
    .unwrap();
    task.apply(
        Command {
            op: op(3),
            action: complete(1),
        },
        at(20),
    )
    .unwrap();
    let seen: Vec<_> = task
        .events
        .iter()
        .map(|event| (event.at, event.from, event.to, event.attempt, event.op_id))
        .collect();
    assert_eq!(
        seen,
        [
            (at(0), None, Status::Pending, 0, Some(op(1))),
            (
                at(10),
                Some(Status::Pending),
                Status::Running,
                1,
                Some(op(2))
            ),
            (
                at(20),
                Some(Status::Running),
                Status::Completed,
                1,
                Some(op(3))
            ),
        ]
    );
    assert!(task.carries(op(2)) && task.carries(op(3)) && !task.carries(op(4)));
}

#[test]
fn the_newest_events_are_kept_and_older_ones_counted() {
    let mut task = pending();
    for round in 0..100 {
        let now = at(i64::try_from(round).unwrap());
        task = apply(&task, claim(round), now);
        task = apply(
            &task,
            Action::Release {
                lease: lease(round),
            },
            now,
        );
    }
    assert_eq!(task.events.len(), EVENTS_MAX);
    assert_eq!(task.events_dropped, 201 - EVENTS_MAX as u64);
    assert_eq!(task.events.last().unwrap().attempt, 100);
}

#[test]
fn a_slow_clock_does_not_reorder_the_history() {
    let task = apply(&pending(), claim(1), at(1_000));
    let task = apply(&task, complete(1), at(200));
    assert_eq!(task.updated_at, at(1_000));
    assert!(task.events.is_sorted_by_key(|event| event.at));
}

/// Every action names itself, so that no reader has to guess from statuses or from English text.
#[test]
fn each_event_says_what_happened() {
    let actions = |task: &qo_core::Task| -> Vec<_> {
        let events = task.events.iter();
        events
            .filter_map(|event| event.action.map(EventAction::name))
            .collect()
    };
    let running = apply(&pending(), claim(1), at(1));
    assert_eq!(actions(&running), ["submitted", "claimed"]);
    let ends = [
        (complete(1), "completed"),
        (Action::Release { lease: lease(1) }, "released"),
        (
            Action::Snooze {
                lease: lease(1),
                delay_ms: 1,
            },
            "snoozed",
        ),
        (Action::Cancel { reason: None }, "cancel_requested"),
    ];
    for (action, expected) in ends {
        let task = apply(&running, action, at(2));
        assert_eq!(actions(&task), ["submitted", "claimed", expected]);
    }
    let cancelled = apply(&pending(), Action::Cancel { reason: None }, at(1));
    let replayed = apply(&cancelled, Action::Replay, at(2));
    assert_eq!(actions(&replayed), ["submitted", "cancelled", "replayed"]);
    let archived = apply(&cancelled, Action::Archive, at(2));
    let back = apply(&archived, Action::Unarchive, at(3));
    assert_eq!(
        actions(&back),
        ["submitted", "cancelled", "archived", "unarchived"]
    );
}

/// An error text that looks like qo's own words changes nothing.
#[test]
fn an_error_that_starts_with_released_is_a_failure() {
    let running = apply(&pending(), claim(1), at(1));
    let failure = Failure {
        kind: FailureKind::Retryable,
        error: "released by its worker".into(),
    };
    let action = Action::Fail {
        lease: lease(1),
        failure,
        jitter: Jitter::new(0),
    };
    let task = apply(&running, action, at(2));
    assert_eq!(
        task.events.last().unwrap().action,
        Some(EventAction::Failed)
    );
}
