//! Groups take turns.

use std::collections::BTreeMap;

use proptest::prelude::*;
use qo_core::document::DocumentChange;
use qo_core::queue_state::{Claim, CommandOutcome, Request, StateCommand};
use qo_core::{Action, Json, QueueSettings, QueueState, Submission, TaskId};

use super::Space;
use crate::support::{at, id, lease, op, submission};

fn of(group: &str, number: u64) -> Submission {
    Submission {
        fairness_group: (!group.is_empty()).then(|| group.parse().unwrap()),
        ..submission(number)
    }
}

impl Space {
    fn set_weights(&mut self, weights: &str) {
        let id = QueueSettings::document_id(&"default".parse().unwrap());
        let change = DocumentChange {
            expected: self.state.document(&id).map(|known| known.op_id),
            body: Some(Json::parse(format!(r#"{{"group_weights":{weights}}}"#)).unwrap()),
            op: op(900_000 + self.ops),
        };
        let outcome = self.apply(Request::Document(id, change), at(0));
        assert_eq!(outcome, CommandOutcome::DocumentSet { changed: true });
    }

    /// The groups of the tasks that a claim takes, by their first letters; `-` for none.
    fn served(&mut self, count: u64) -> String {
        let claimed = self.claim(&[], &[], count, at(100));
        claimed.into_iter().map(|id| self.letter(id)).collect()
    }

    fn letter(&self, id: TaskId) -> char {
        let group = &self.state.task(id).unwrap().fairness_group;
        (group.as_ref()).map_or('-', |group| group.as_str().chars().next().unwrap())
    }
}

#[test]
fn a_hundred_thousand_tasks_of_one_group_do_not_delay_the_first_of_another() {
    let mut state = QueueState::new();
    let mut apply = |number: u64, request| {
        let op = op(number);
        state.apply(StateCommand { op, request }, at(0)).0
    };
    for number in 0..100_000 {
        apply(number, Request::Submit(Box::new(of("ada", number))));
    }
    apply(200_000, Request::Submit(Box::new(of("bob", 200_000))));
    let claim = Claim {
        worker: "w".parse().unwrap(),
        queues: Vec::new(),
        types: Vec::new(),
        leases: (0..2).map(lease).collect(),
        lease_ms: 60_000,
    };
    let CommandOutcome::Claimed(claimed) = apply(300_000, Request::Claim(claim)) else {
        panic!("nothing was claimed");
    };
    let claimed: Vec<TaskId> = claimed.into_iter().map(|claimed| claimed.id).collect();
    assert_eq!(claimed, [id(0), id(200_000)]);
    state.check_consistency().unwrap();
}

#[test]
fn groups_and_the_tasks_without_one_take_turns_whatever_the_size_of_a_claim() {
    for sizes in [&[12][..], &[1; 12], &[5, 1, 6]] {
        let mut space = Space::new();
        for number in 0..8 {
            space.submit(of("ada", number), at(0));
        }
        for number in 8..11 {
            space.submit(of("bob", number), at(0));
        }
        for number in 11..13 {
            space.submit(of("", number), at(0));
        }
        let served: String = sizes.iter().map(|size| space.served(*size)).collect();
        assert_eq!(served, "ab-ab-abaaaa", "{sizes:?}");
    }
}

#[test]
fn a_group_gets_as_many_turns_per_round_as_its_weight_from_the_change_on() {
    let mut space = Space::new();
    for number in 0..40 {
        space.submit(of(["ada", "bob"][(number % 2) as usize], number), at(0));
    }
    assert_eq!(space.served(4), "abab");
    space.set_weights(r#"{"bob":3}"#);
    // Within a round the oldest task goes first.
    assert_eq!(space.served(8), "abbbabbb");
    space.set_weights(r#"{"ada":2}"#);
    assert_eq!(space.served(6), "aabaab");
}

#[test]
fn the_priority_comes_before_the_turn() {
    let mut space = Space::new();
    for number in 0..3 {
        let urgent = Submission {
            priority: 0,
            ..of("ada", number)
        };
        space.submit(urgent, at(0));
        space.submit(of("bob", 10 + number), at(0));
    }
    assert_eq!(space.served(6), "aaabbb");
}

#[test]
fn groups_take_turns_whatever_the_types_of_their_tasks() {
    let mut space = Space::new();
    let types = ["send_email", "resize", "report"];
    for number in 0..9 {
        let task = Submission {
            task_type: types[(number % 3) as usize].parse().unwrap(),
            ..of("ada", number)
        };
        space.submit(task, at(0));
    }
    space.submit(of("bob", 20), at(0));
    space.submit(of("bob", 21), at(0));
    let claimed = space.claim(&["default"], &types, 4, at(100));
    let served: String = claimed.into_iter().map(|id| space.letter(id)).collect();
    assert_eq!(served, "abab");
    // Workers that ask for another type do not wait for the turn of a group that has none.
    assert_eq!(space.claim(&[], &["report"], 9, at(100)).len(), 3);
}

#[test]
fn a_group_whose_tasks_cannot_start_holds_nobody_up_and_keeps_its_turn() {
    let mut space = Space::new();
    for number in 0..4 {
        let later = Submission {
            available_at: Some(at(1_000)),
            ..of("ada", number)
        };
        space.submit(later, at(0));
        space.submit(of("bob", 10 + number), at(0));
        space.submit(of("eve", 20 + number), at(0));
    }
    assert_eq!(space.served(3), "beb");
    let served = space.claim(&[], &[], 3, at(2_000));
    let served: String = served.into_iter().map(|id| space.letter(id)).collect();
    assert_eq!(served, "eab", "each once, the oldest first");
}

#[test]
fn a_retried_task_waits_in_its_group_again() {
    let mut space = Space::new();
    space.submit(of("ada", 0), at(0));
    space.submit(of("ada", 1), at(0));
    for number in 10..14 {
        space.submit(of("bob", number), at(0));
    }
    assert_eq!(space.served(1), "a");
    let lease = space.state.task(id(0)).unwrap().lease_id.unwrap();
    let release = Action::Release { lease };
    let request = Request::Task {
        id: id(0),
        action: release,
    };
    space.apply(request, at(50));
    // It is younger now than the other tasks of both groups.
    assert_eq!(space.served(6), "babbab");
}

#[test]
fn a_group_that_submits_one_task_after_another_gets_no_more_than_its_turn() {
    let mut space = Space::new();
    for number in 0..30 {
        space.submit(
            of(["ada", "bob", "cay"][(number % 3) as usize], number),
            at(0),
        );
    }
    let mut served = String::new();
    for (number, round) in (100..).zip(1..=8) {
        // It always has exactly one task waiting.
        space.submit(of("one", number), at(0));
        while !served.ends_with('o') || served.len() < round * 4 {
            served += &space.served(1);
        }
    }
    assert_eq!(served, "abco".repeat(8));
}

fn weighted_groups() -> impl Strategy<Value = (Vec<u32>, bool, Vec<u8>, Vec<u8>)> {
    (
        proptest::collection::vec(1..=5_u32, 2..5),
        any::<bool>(),
        proptest::collection::vec(any::<u8>(), 64),
        proptest::collection::vec(1..=20_u8, 30),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// While groups stay backlogged, what two of them get differs by at most two rounds, in every window.
    #[test]
    fn backlogged_groups_get_their_share_in_every_window(
        (weights, has_plain, order, sizes) in weighted_groups()
    ) {
        let mut space = Space::new();
        let named: BTreeMap<String, u32> = (weights.iter().enumerate())
            .map(|(number, weight)| (format!("{number}"), *weight))
            .collect();
        space.set_weights(&serde_json::to_string(&named).unwrap());
        let mut weights: BTreeMap<char, u64> = (named.iter())
            .map(|(name, weight)| (name.chars().next().unwrap(), u64::from(*weight)))
            .collect();
        let mut names: Vec<String> = named.into_keys().collect();
        if has_plain {
            weights.insert('-', 1);
            names.push(String::new());
        }
        // Everybody has more tasks than are claimed, in any order of age.
        let mut waiting: Vec<&str> = names.iter().flat_map(|name| [name.as_str(); 90]).collect();
        for (index, choice) in order.iter().cycle().enumerate().take(waiting.len()) {
            let other = (usize::from(*choice) * 7 + index * 13) % waiting.len();
            waiting.swap(index, other);
        }
        for (number, group) in waiting.iter().enumerate() {
            let task = of(group, number as u64);
            let request = Request::Submit(Box::new(task));
            space.state.apply(StateCommand { op: op(50_000 + number as u64), request }, at(0));
        }
        let mut served = Vec::new();
        for size in sizes {
            if served.len() + usize::from(size) > 85 {
                break;
            }
            served.extend(space.served(size.into()).chars());
        }
        for start in 0..served.len() {
            let mut counts: BTreeMap<char, u64> = weights.keys().map(|name| (*name, 0)).collect();
            for letter in &served[start..] {
                *counts.get_mut(letter).unwrap() += 1;
                for (first, of_first) in &weights {
                    for (second, of_second) in &weights {
                        let ahead = counts[first] * of_second;
                        let behind = counts[second] * of_first;
                        prop_assert!(
                            ahead.abs_diff(behind) <= 2 * of_first * of_second,
                            "{counts:?} with {weights:?} in {served:?} from {start}"
                        );
                    }
                }
            }
        }
    }
}
