//! Breaches of the order per key.

use qo_check::{Promise, StoredVersion};
use qo_core::task::{OnFailure, OrderingRule};
use qo_core::{Action, Submission};

use crate::scene::{Scene, claim, complete, lease, submission};

fn in_line(id: u128) -> Submission {
    Submission {
        ordering: Some(OrderingRule {
            key: "k".parse().unwrap(),
            on_failure: OnFailure::Continue,
        }),
        ..submission(id)
    }
}

/// A task with an ordering key that is claimed and completed. Everything after the submit happens `later` ticks later.
fn ordered(id: u128, shift: u64, later: u64) -> Scene {
    let mut scene = Scene::of(in_line(id), vec![claim(id), complete(id)]);
    scene.start_later(later);
    scene.shift(shift);
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

#[test]
fn an_attempt_that_began_and_ended_in_one_write_is_not_at_once_with_another() {
    let released = |id: u128, actions: Vec<Action>| {
        let mut scene = Scene::of(in_line(id), actions);
        scene.conditions.grouped = true;
        // All that follows the submit is in one write.
        let versions = scene.versions.values_mut().next().unwrap();
        let last = versions.last().cloned().unwrap();
        versions.truncate(1);
        versions.push(StoredVersion { tick: 15, ..last });
        scene
    };
    let release = Action::Release { lease: lease(1) };
    let returned = || released(1, vec![claim(1), release.clone()]);
    let kept = || released(2, vec![claim(2)]);
    let is_ordered = |mut one: Scene, other: Scene| {
        one.join(other);
        let breaches = one.check().breaches;
        !breaches.promises().contains(&Promise::Ordered)
    };
    assert!(is_ordered(returned(), kept()));
    assert!(!is_ordered(released(1, vec![claim(1)]), kept()));
}
