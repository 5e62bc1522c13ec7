use qo_core::limits::EVENTS_MAX;
use qo_core::{Action, Command, Status, Transition};

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

#[test]
fn the_pure_and_the_in_place_transition_agree() {
    let command = Command {
        op: op(2),
        action: claim(1),
    };
    let Transition { from, task } =
        qo_core::transition::transition(pending(), command.clone(), at(5)).unwrap();
    let mut in_place = pending();
    in_place.apply(command, at(5)).unwrap();
    assert_eq!((from, task), (Status::Pending, in_place));
}
