//! Breaches of the turns of groups.

use qo_check::{Promise, TURNS};
use qo_core::Submission;

use crate::scene::{Scene, claim, complete, submission};

/// A task of a group that starts `later` ticks later than usual.
fn of_group(id: u128, group: &str, later: u64) -> Scene {
    let submission = Submission {
        fairness_group: Some(group.parse().unwrap()),
        ..submission(id)
    };
    let mut scene = Scene::of(submission, vec![claim(id), complete(id)]);
    scene.start_later(later);
    scene
}

/// So many turns of a large group, and then one of a small group that could have had one before.
fn after(turns: u32, new_rounds: Vec<u64>) -> Vec<Promise> {
    let mut scene = of_group(1, "small", 10_000);
    for number in 0..u64::from(turns) {
        scene.join(of_group(u128::from(number) + 2, "large", 100 * number));
    }
    scene.turns = Some((TURNS, new_rounds));
    scene.check().breaches.promises().into_iter().collect()
}

#[test]
fn two_turns_while_another_group_waits_break_nothing() {
    assert_eq!(after(1, Vec::new()), []);
    assert_eq!(after(2, Vec::new()), []);
}

#[test]
fn a_turn_too_many_is_found() {
    assert_eq!(after(3, Vec::new()), [Promise::InTurn]);
}

#[test]
fn a_new_round_allows_one_more() {
    assert_eq!(after(3, vec![150]), []);
    assert_eq!(after(4, vec![150]), [Promise::InTurn]);
    // It began after the group was served.
    assert_eq!(after(3, vec![20_000]), [Promise::InTurn]);
}
