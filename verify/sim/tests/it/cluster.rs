//! Cluster mode under faults. `QO_CLUSTER_SEEDS` sets the number of seeds, `QO_CLUSTER_FROM` the first of them, and `QO_CLUSTER_SEED` runs
//! one and prints its trace.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use qo_sim::cluster::{ClusterOutcome, Mutation, groups_of, run};

/// The number of seeds, and the most that a planted bug may take.
const SEEDS: u64 = 300;
const HUNT_SEEDS: u64 = 300;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs a seed. A panic of the code under test is a finding, too.
fn found(seed: u64, mutation: Option<Mutation>) -> Vec<String> {
    let running = AssertUnwindSafe(|| run(seed, mutation, false));
    match std::panic::catch_unwind(running) {
        Ok(outcome) => outcome.found,
        Err(_) => vec!["it panicked".to_owned()],
    }
}

/// Runs every second seed, so that two tests use two cores.
fn every_second_seed(offset: u64) {
    if let Some(seed) = number("QO_CLUSTER_SEED") {
        if seed % 2 == offset {
            let outcome = run(seed, None, true);
            println!("{}", outcome.trace.join("\n"));
            assert!(outcome.found.is_empty(), "{:#?}", outcome.found);
        }
        return;
    }
    let seeds = number("QO_CLUSTER_SEEDS").unwrap_or(SEEDS);
    let from = number("QO_CLUSTER_FROM").unwrap_or(0);
    let (mut runs, mut tasks, mut deaths) = (0, 0, 0);
    let mut lasted = Duration::ZERO;
    let mut failed = Vec::new();
    for seed in (from..from + seeds).filter(|seed| seed % 2 == offset) {
        let ClusterOutcome {
            found,
            tasks: done,
            deaths: died,
            lasted: took,
            ..
        } = run(seed, None, false);
        if !found.is_empty() {
            println!("seed {seed}: {found:#?}");
            failed.push(seed);
        }
        lasted += took;
        runs += 1;
        tasks += done;
        deaths += died;
    }
    println!(
        "{runs} seeds, {tasks} tasks, {deaths} deaths of nodes, {} simulated seconds",
        lasted.as_secs()
    );
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
    assert!(tasks > runs * 5, "clients did nothing");
    assert!(deaths > 0, "no node died");
}

#[test]
fn clusters_keep_their_promises_in_even_seeds() {
    every_second_seed(0);
}

#[test]
fn clusters_keep_their_promises_in_odd_seeds() {
    every_second_seed(1);
}

#[test]
fn planted_bugs_of_the_cluster_are_found() {
    for mutation in Mutation::ALL {
        if std::env::var("QO_CLUSTER_MUTATION").is_ok_and(|only| only != format!("{mutation:?}")) {
            continue;
        }
        let first = number("QO_CLUSTER_FROM").unwrap_or(0);
        let mut seeds = (first..first + HUNT_SEEDS)
            .filter(|seed| !mutation.needs_groups() || groups_of(*seed) > 1);
        let hit = seeds.find_map(|seed| {
            let found = found(seed, Some(mutation));
            Some((seed, found.first()?.clone()))
        });
        println!("{mutation:?}: {hit:?}");
        assert!(hit.is_some(), "{mutation:?} was not found");
    }
}
