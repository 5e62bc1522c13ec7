//! Breaches of moves to another queue.

use qo_check::Promise;
use qo_core::task::IdempotencyScope;
use qo_core::transition::{Failure, FailureKind, Idempotency};
use qo_core::{Action, Jitter, Submission};

use crate::history::rewrite;
use crate::scene::{Scene, at, claim, complete, lease, submission};

fn redrive() -> Action {
    Action::Redrive {
        to: "elsewhere".parse().unwrap(),
    }
}

/// A task with a key that is moved while it waits, and then run.
fn moved() -> Scene {
    let submission = Submission {
        idempotency: Some(Idempotency {
            key: "k".parse().unwrap(),
            scope: IdempotencyScope::Queue,
            until: None,
        }),
        ..submission(1)
    };
    Scene::of(submission, vec![redrive(), claim(1), complete(1)])
}

/// A task that is moved after it has failed.
fn started_over() -> Scene {
    let fail = Action::Fail {
        lease: lease(1),
        failure: Failure {
            kind: FailureKind::Permanent,
            error: "no".into(),
        },
        jitter: Jitter::NONE,
    };
    let actions = vec![claim(1), fail, redrive(), claim(2), complete(2)];
    Scene::of(submission(1), actions)
}

#[test]
fn tasks_that_are_moved_break_nothing() {
    assert_eq!(moved().broken(), [].into());
    assert_eq!(started_over().broken(), [].into());
}

#[test]
fn another_due_time_is_found() {
    let mut scene = moved();
    // The exact time of before would give an index entry the key of an old one.
    rewrite(&mut scene, 1, |task| task.available_at = at(0));
    scene.finds(Promise::Rules, "after it was moved");
    let mut scene = moved();
    rewrite(&mut scene, 1, |task| task.available_at = at(5));
    scene.finds(Promise::Rules, "after it was moved");
    let mut scene = started_over();
    rewrite(&mut scene, 3, |task| task.available_at = at(600));
    scene.finds(Promise::Rules, "after it was moved");
}

#[test]
fn a_key_that_moves_along_is_found() {
    let mut scene = moved();
    rewrite(&mut scene, 1, |task| task.idempotency_queue = None);
    scene.finds(Promise::Rules, "idempotency key");
}

#[test]
fn a_move_that_changes_more_is_found() {
    let mut scene = moved();
    rewrite(&mut scene, 1, |task| task.priority = 1);
    scene.finds(Promise::Rules, "more than its queue");
}

#[test]
fn a_move_that_was_made_twice_or_not_at_all_is_found() {
    let mut scene = moved();
    scene.stored().remove(1);
    assert!(scene.broken().contains(&Promise::Rules));
}
