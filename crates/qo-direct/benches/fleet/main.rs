//! What a fleet of direct-mode workers costs: requests by kind for each task and for each idle worker, and lost claims.
//!
//! `cargo xtask bench fleet [SCENARIO...] [--json]`. Time is virtual and requests are counted, so the machine does not matter.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_precision_loss,
    reason = "a benchmark panics on errors and divides small numbers"
)]

mod fleet;
mod scenarios;
mod store;
mod virtual_tasks;

use std::process::ExitCode;

use qo_fixtures::{BenchmarkArgs, Report, run_benchmark};

const SCENARIOS: [(&str, &str); 9] = [
    (
        "1",
        "1 worker: a backlog, delayed tasks, retries, long tasks",
    ),
    ("10", "the same with 10 workers"),
    ("100", "the same with 100 workers"),
    ("1000", "a backlog with 1,000 workers"),
    (
        "foreign",
        "100 idle workers with 20 types beside a trickle that nobody serves",
    ),
    (
        "own",
        "100 idle workers with 20 types and a trickle that they serve",
    ),
    (
        "million",
        "a million pending tasks: 1, 100 and 1,000 workers",
    ),
    (
        "history",
        "ten million finished tasks: how soon a task without an entry is found",
    ),
    (
        "counts",
        "print the requests of each scenario by prefix, too",
    ),
];

fn main() -> ExitCode {
    run_benchmark(
        "fleet",
        &SCENARIOS,
        async |args: &BenchmarkArgs, report: &mut Report| {
            scenarios::run(args, report);
        },
    )
}
