//! The effect of each action, a file per part of the life cycle.

mod attempt;
mod cancel;
mod claim;
mod history;
mod operator;
mod submit;

use qo_core::{Action, Command, Rejection, Task, Timestamp};

use crate::support::op;

/// Asserts that an action is rejected for this reason and leaves the task unchanged.
fn assert_rejected(task: &Task, action: Action, now: Timestamp, reason: &Rejection) {
    let mut changed = task.clone();
    assert_eq!(
        changed
            .apply(
                Command {
                    op: op(999),
                    action
                },
                now
            )
            .as_ref(),
        Err(reason)
    );
    assert_eq!(&changed, task);
}

/// The task after an action that must be accepted.
fn apply(task: &Task, action: Action, now: Timestamp) -> Task {
    let mut changed = task.clone();
    changed
        .apply(
            Command {
                op: op(999),
                action,
            },
            now,
        )
        .unwrap();
    changed
}
