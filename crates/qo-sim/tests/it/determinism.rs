//! A seed decides a run to the byte.

use std::sync::Arc;

use qo_sim::plan::Plan;
use qo_sim::run::{Outcome, run};
use qo_sim::subject::Objects;

fn traced(seed: u64) -> Outcome {
    run(&Plan::of(seed), Arc::new(Objects), true)
}

#[test]
fn ten_seeds_run_twice_have_the_same_traces() {
    for seed in 0..10 {
        let (first, second) = (traced(seed), traced(seed));
        assert!(
            first.trace.len() > 100,
            "seed {seed}: {}",
            first.trace.len()
        );
        for (number, lines) in first.trace.iter().zip(&second.trace).enumerate() {
            assert_eq!(lines.0, lines.1, "seed {seed}, line {number}");
        }
        assert_eq!(first.trace.len(), second.trace.len(), "seed {seed}");
        assert_eq!(first.digest, second.digest, "seed {seed}");
        assert_eq!(first.requests, second.requests, "seed {seed}");
        assert_eq!(first.struck, second.struck, "seed {seed}");
    }
}

#[test]
fn another_thread_sees_the_same_run() {
    let here = traced(3);
    let there = std::thread::spawn(|| traced(3)).join().unwrap();
    assert_eq!(here.trace, there.trace);
    assert_eq!(here.digest, there.digest);
}

#[test]
fn keeping_a_trace_changes_nothing() {
    let plain = run(&Plan::of(4), Arc::new(Objects), false);
    assert!(plain.trace.is_empty());
    assert_eq!(plain.digest, traced(4).digest);
}

#[test]
fn another_seed_is_another_run() {
    assert_ne!(traced(1).trace, traced(2).trace);
}
