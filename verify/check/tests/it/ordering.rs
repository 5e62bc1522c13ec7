//! Breaches of the order per key.

use qo_check::Promise;
use qo_core::Submission;
use qo_core::task::{OnFailure, OrderingRule};

use crate::scene::{Scene, claim, complete, submission};

/// A task with an ordering key that is claimed and completed. Everything after the submit happens `later` ticks later.
fn ordered(id: u128, shift: u64, later: u64) -> Scene {
    let submission = Submission {
        ordering: Some(OrderingRule {
            key: "k".parse().unwrap(),
            on_failure: OnFailure::Continue,
        }),
        ..submission(id)
    };
    let mut scene = Scene::of(submission, vec![claim(id), complete(id)]);
    let shifted = |tick: u64| tick + shift + if tick >= 10 { later } else { 0 };
    for version in scene.versions.values_mut().flatten() {
        version.tick = shifted(version.tick);
    }
    for call in &mut scene.calls {
        call.called = shifted(call.called);
        call.answered = call.answered.map(shifted);
    }
    scene
}

fn both(mut one: Scene, other: Scene) -> Vec<Promise> {
    one.versions.extend(other.versions);
    one.calls.extend(other.calls);
    one.check().breaches.promises().into_iter().collect()
}

#[test]
fn tasks_that_run_one_after_the_other_in_submit_order_break_nothing() {
    assert_eq!(both(ordered(1, 0, 0), ordered(2, 100, 0)), []);
    // The submits overlap, so either may be first.
    assert_eq!(both(ordered(1, 0, 100), ordered(2, 1, 0)), []);
}

#[test]
fn two_tasks_that_run_at_once_are_found() {
    assert_eq!(both(ordered(1, 0, 0), ordered(2, 1, 0)), [Promise::Ordered]);
}

#[test]
fn a_task_that_overtakes_is_found() {
    // The submit of the first is acknowledged at tick 9, and that of the second is called at tick 10.
    assert_eq!(
        both(ordered(1, 0, 100), ordered(2, 10, 0)),
        [Promise::Ordered]
    );
}
