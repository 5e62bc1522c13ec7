//! Breaches of limits.

use qo_check::Promise;
use qo_core::{Limit, StartLimit};

use crate::scene::{Scene, claim, complete, submission};

/// A task that is claimed and completed, `shift` ticks later than usual.
fn task(id: u128, shift: u64) -> Scene {
    let mut scene = Scene::of(submission(id), vec![claim(id), complete(id)]);
    scene.shift(shift);
    scene
}

fn check(shift: u64, limit: Limit) -> Vec<Promise> {
    let mut scene = task(1, 0);
    let other = task(2, shift);
    scene.versions.extend(other.versions);
    scene.calls.extend(other.calls);
    scene.limits = vec![("l".parse().unwrap(), limit)];
    scene.check().breaches.promises().into_iter().collect()
}

fn concurrent(max: u32) -> Limit {
    Limit {
        queue: Some("default".parse().unwrap()),
        concurrent: Some(max),
        ..Limit::default()
    }
}

#[test]
fn tasks_within_the_limit_break_nothing() {
    assert_eq!(check(100, concurrent(1)), []);
    assert_eq!(check(1, concurrent(2)), []);
    let other = Limit {
        queue: Some("other".parse().unwrap()),
        ..concurrent(1)
    };
    assert_eq!(check(1, other), []);
}

#[test]
fn a_task_too_many_is_found() {
    assert_eq!(check(1, concurrent(1)), [Promise::Limited]);
}

#[test]
fn a_start_too_many_is_found() {
    // Both start at the same time by the clock, whatever the order of the writes.
    let starts = |max| Limit {
        concurrent: None,
        starts: Some(StartLimit {
            max,
            window_ms: 60_000,
        }),
        ..concurrent(1)
    };
    assert_eq!(check(100, starts(1)), [Promise::Limited]);
    assert_eq!(check(100, starts(2)), []);
}
