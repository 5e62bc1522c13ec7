//! Breaches of the settings of a queue.

use qo_check::{Call, CallKind, Promise, Reply};
use qo_core::{QueueSettings, Rejection, TaskId};

use crate::scene::{Scene, claim, complete, submission};

/// A task that is claimed and completed, `shift` ticks later than usual.
fn task(id: u128, shift: u64) -> Scene {
    let mut scene = Scene::of(submission(id), vec![claim(id), complete(id)]);
    scene.shift(shift);
    scene
}

/// Two tasks in a queue in which one may wait.
fn two(shift: u64) -> Scene {
    let mut scene = task(1, 0);
    scene.join(task(2, shift));
    let mut settings = QueueSettings::NONE;
    settings.max_waiting = Some(1);
    scene.settings = Some(settings);
    scene
}

fn refused(called: u64, answered: u64) -> Call {
    let full = Rejection::QueueFull {
        queue: "default".parse().unwrap(),
        limit: 1,
    };
    Call {
        caller: 1,
        kind: CallKind::Submit,
        task: Some(TaskId::from_random(9)),
        lease: None,
        key: None,
        asked: None,
        called,
        answered: Some(answered),
        reply: Reply::Rejected(full),
    }
}

#[test]
fn a_task_too_many_is_found() {
    two(1).finds(Promise::Settings, "2 tasks wait");
    assert!(two(100).broken().is_empty());
    let mut inexact = two(1);
    inexact.conditions.counts_waiting = false;
    assert!(inexact.broken().is_empty());
}

#[test]
fn a_submit_is_refused_only_if_the_queue_is_full() {
    // The first task waits from tick 5 to 15.
    for (called, answered, is_right) in [
        (6, 9, true),
        (1, 7, true),
        (14, 30, true),
        (1, 4, false),
        (16, 19, false),
    ] {
        let mut scene = two(100);
        scene.calls.push(refused(called, answered));
        let broken: Vec<_> = scene.broken().into_iter().collect();
        let expected = if is_right {
            vec![]
        } else {
            vec![Promise::Settings]
        };
        assert_eq!(broken, expected, "{called} to {answered}");
    }
    let mut unbounded = task(1, 0);
    unbounded.calls.push(refused(6, 9));
    unbounded.finds(Promise::NothingLost, "was rejected");
}

#[test]
fn a_task_without_the_settings_of_its_queue_is_found() {
    let mut scene = task(1, 0);
    let mut settings = QueueSettings::NONE;
    settings.max_wait_ms = Some(1_000);
    scene.settings = Some(settings.clone());
    scene.finds(Promise::Settings, "does not have the settings");
    let mut kept = submission(1);
    kept.max_wait_ms = Some(60_000);
    let mut scene = Scene::of(kept, vec![claim(1), complete(1)]);
    settings.max_wait_ms = Some(60_000);
    scene.settings = Some(settings);
    assert!(scene.broken().is_empty());
}
