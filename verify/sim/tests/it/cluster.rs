//! Cluster mode under faults. `QO_CLUSTER_SEEDS` sets the number of seeds, `QO_CLUSTER_FROM` the first of them, and `QO_CLUSTER_SEED` runs
//! one and prints its trace.

use std::time::Duration;

use qo_sim::cluster::{ClusterOutcome, run};

/// The number of seeds.
const SEEDS: u64 = 300;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs every second seed, so that two tests use two cores.
fn every_second_seed(offset: u64) {
    if let Some(seed) = number("QO_CLUSTER_SEED") {
        if seed % 2 == offset {
            let outcome = run(seed, true);
            println!("{}", outcome.trace.join("\n"));
            assert!(outcome.found.is_empty(), "{}", outcome.found);
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
        } = run(seed, false);
        if !found.is_empty() {
            println!("seed {seed}:\n{found}");
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
