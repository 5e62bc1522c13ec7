//! Every order of a few steps, up to a depth.

use std::sync::Arc;

use qo_sim::explore::steps::Mishap;
use qo_sim::explore::{rules, steps};
use qo_sim::subject::{Direct, Subject};

/// How many commands to the core are tried in every order.
const RULES_DEPTH: usize = 9;

fn scope(mishap: Mishap) -> steps::Scope {
    // A death may come anywhere: no run has as many choices as this. Leases cannot run out before there are any: both workers are about to
    // write theirs when ten requests have been served. A monitor beside both workers multiplies the states by six with every two requests.
    let (skip, depth) = match mishap {
        Mishap::Death => (0, 60),
        Mishap::Zombie => (10, 6),
    };
    steps::Scope {
        mishap,
        skip,
        depth,
        runs_max: 20_000,
    }
}

fn explore(mishap: Mishap) {
    let explored =
        steps::explore(&subject(), scope(mishap)).unwrap_or_else(|error| panic!("{error}"));
    println!("{mishap:?}: {explored:?}");
    assert!(explored.complete, "{explored:?}");
    assert!(explored.states > 300, "{explored:?}");
}

fn subject() -> Arc<dyn Subject> {
    Arc::new(Direct)
}

#[test]
fn the_rules_hold_in_every_order() {
    let explored = rules::explore(RULES_DEPTH).unwrap();
    println!("{explored:?}");
    assert!(explored.states > 10_000, "{explored:?}");
}

#[test]
fn a_worker_may_die_between_any_two_requests() {
    explore(Mishap::Death);
}

#[test]
fn leases_may_expire_between_any_two_requests() {
    explore(Mishap::Zombie);
}
