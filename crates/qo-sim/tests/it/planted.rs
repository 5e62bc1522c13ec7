//! Every planted bug is found, and a failure says what is needed to understand it.

use std::sync::Arc;

use qo_core::mutant::Mutant;
use qo_sim::campaign::{explain, run_seed};
use qo_sim::mutants::{Planted, SEEDS_MAX, from_name, hunt, name};
use qo_sim::subject::{Objects, Subject};

/// For each planted bug the first seed that finds it, as `cargo xtask sim --mutants` has told.
const FOUND_BY: &str = include_str!("../../mutants.txt");

fn subject() -> Arc<dyn Subject> {
    Arc::new(Objects)
}

fn first_seed(mutant: Mutant) -> Option<u64> {
    FOUND_BY.lines().find_map(|line| {
        let (found, seed) = line.split_once(' ')?;
        (from_name(found) == Some(mutant)).then(|| seed.trim().parse().unwrap())
    })
}

/// Looks where it was found the last time, and only then everywhere.
fn is_found(mutant: Mutant) -> bool {
    if let Some(seed) = first_seed(mutant) {
        assert!(seed < SEEDS_MAX);
        let _planted = Planted::new(mutant);
        if !run_seed(seed, &subject()).found.0.is_empty() {
            return true;
        }
    }
    let caught = hunt(mutant, &subject(), SEEDS_MAX);
    println!("{caught}");
    caught.by.is_some()
}

fn missed(parity: usize) -> Vec<String> {
    let mutants = Mutant::ALL.into_iter().enumerate();
    mutants
        .filter(|(place, mutant)| place % 2 == parity && !is_found(*mutant))
        .map(|(_, mutant)| name(mutant))
        .collect()
}

#[test]
fn every_second_planted_bug_is_found() {
    assert_eq!(missed(0), Vec::<String>::new());
}

#[test]
fn and_so_are_the_others() {
    assert_eq!(missed(1), Vec::<String>::new());
}

#[test]
fn a_failure_is_shrunk_and_says_how_to_run_it_again() {
    let mutant = Mutant::DoubtReadAsFailure;
    let seed = first_seed(mutant).unwrap();
    let _planted = Planted::new(mutant);
    let outcome = run_seed(seed, &subject());
    let text = explain(&outcome, &subject(), Some(&name(mutant)));
    for part in [
        &format!("seed {seed}: "),
        "promise ",
        &format!("run it again: cargo xtask sim --seed {seed} --mutant doubt-read-as-failure"),
        "shrunk to",
        "--only '",
        "its trace",
        "is told of",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let shrunk = text.split("--only '").nth(1).unwrap();
    let faults = shrunk.split('\'').next().unwrap().split(',').count();
    let before = outcome.struck.len();
    assert!(
        faults * 3 <= before,
        "{faults} of {before} faults are left:\n{text}"
    );
}
