//! A seed decides a run to the byte, on every engine.

use std::sync::Arc;

use qo_sim::plan::Plan;
use qo_sim::run::{Outcome, run};
use qo_sim::subject::{all, from_name};

fn traced(engine: &str, seed: u64) -> Outcome {
    run(&Plan::of(seed), from_name(engine).unwrap(), true)
}

fn same_twice(engine: &str) {
    for seed in 0..10 {
        let (first, second) = (traced(engine, seed), traced(engine, seed));
        let lines = first.trace.len();
        assert!(lines > 100, "{engine}, seed {seed}: {lines}");
        for (number, lines) in first.trace.iter().zip(&second.trace).enumerate() {
            assert_eq!(lines.0, lines.1, "{engine}, seed {seed}, line {number}");
        }
        assert_eq!(lines, second.trace.len(), "{engine}, seed {seed}");
        assert_eq!(first.digest, second.digest, "{engine}, seed {seed}");
        assert_eq!(first.requests, second.requests, "{engine}, seed {seed}");
        assert_eq!(first.struck, second.struck, "{engine}, seed {seed}");
    }
}

#[test]
fn ten_seeds_run_twice_on_objects_have_the_same_traces() {
    same_twice("objects");
}

#[test]
fn ten_seeds_run_twice_on_json_have_the_same_traces() {
    same_twice("json");
}

#[test]
fn another_thread_sees_the_same_run() {
    for subject in all() {
        let engine = subject.name();
        let here = traced(engine, 3);
        let there = std::thread::spawn(|| traced(engine, 3)).join().unwrap();
        assert_eq!(here.trace, there.trace, "{engine}");
        assert_eq!(here.digest, there.digest, "{engine}");
    }
}

#[test]
fn keeping_a_trace_changes_nothing() {
    for subject in all() {
        let plain = run(&Plan::of(4), Arc::clone(&subject), false);
        assert!(plain.trace.is_empty());
        assert_eq!(plain.digest, traced(subject.name(), 4).digest);
    }
}

#[test]
fn another_seed_is_another_run() {
    for subject in all() {
        let engine = subject.name();
        assert_ne!(traced(engine, 1).trace, traced(engine, 2).trace, "{engine}");
    }
}
