//! Many seeds of random trouble, every seed that ever failed among them, and every promise kept.
//!
//! `cargo xtask sim` runs more of them, or one.

use std::sync::Arc;

use qo_sim::campaign::{Totals, explain, run_seed};
use qo_sim::faults::FaultKind;
use qo_sim::subject::{Objects, Subject};

const SEEDS: u64 = 500;
/// Of how many parts, which run beside each other.
const PARTS: u64 = 4;
/// How many different steps the checks know.
const STEPS: usize = 14;

/// One seed a line, with what it has shown.
const FAILED_ONCE: &str = include_str!("../../seeds.txt");

fn campaign(seeds: impl Iterator<Item = u64>) -> Totals {
    let subject: Arc<dyn Subject> = Arc::new(Objects);
    let mut totals = Totals::default();
    for seed in seeds {
        let outcome = run_seed(seed, &subject);
        assert!(
            outcome.found.0.is_empty(),
            "{}",
            explain(&outcome, &subject, None)
        );
        totals.add(&outcome);
    }
    println!("{totals}");
    totals
}

fn part(number: u64) {
    let totals = campaign((0..SEEDS).filter(|seed| seed % PARTS == number));
    // A campaign in which something never happens proves nothing about it.
    assert_eq!(totals.steps.len(), STEPS, "{totals}");
    for kind in FaultKind::ALL {
        assert!(
            totals.faults.get(&kind).is_some_and(|count| *count > 0),
            "{kind}: {totals}"
        );
    }
    assert!(totals.undecided * 100 < totals.tasks, "{totals}");
}

#[test]
fn first_part() {
    part(0);
}

#[test]
fn second_part() {
    part(1);
}

#[test]
fn third_part() {
    part(2);
}

#[test]
fn fourth_part() {
    part(3);
}

#[test]
fn every_seed_that_ever_failed() {
    let lines = FAILED_ONCE.lines().filter(|line| !line.starts_with('#'));
    let words = lines.filter_map(|line| line.split_whitespace().next());
    campaign(words.map(|word| word.parse().unwrap()));
}
