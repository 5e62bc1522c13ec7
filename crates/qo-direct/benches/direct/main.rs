//! The cost and speed of direct mode: requests, dollars and tasks a second, with budgets.
//!
//! `cargo xtask bench direct [SCENARIO...] [--json]`. Latency is injected, requests are counted at the store's interface, and
//! prices are those of S3.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "it panics")]
#![allow(clippy::disallowed_methods, reason = "it reads the clock")]
#![allow(clippy::cast_precision_loss, reason = "it divides small numbers")]

mod features;
mod idle;
mod load;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use self::features::Feature;
use self::load::{Backing, Load};
use qo_fixtures::{BenchmarkArgs, Report, run_benchmark};

const SCENARIOS: [(&str, &str); 10] = [
    (
        "one",
        "2,000 tasks, 30 ms a request, 1 worker with 64 tasks at once",
    ),
    ("four", "the same with 4 workers"),
    (
        "sixteen",
        "8,000 tasks, 16 workers with 16 tasks at once each: how rarely they collide",
    ),
    (
        "deep",
        "the first again, with 100,000 finished tasks in the bucket",
    ),
    (
        "idle",
        "an idle worker: requests, dollars a month, time from submit to start",
    ),
    (
        "ordered",
        "2,000 tasks with 200 ordering keys, and without: requests a task",
    ),
    (
        "limited",
        "2,000 tasks under one limit, and without: requests a task",
    ),
    (
        "groups",
        "2,000 tasks of 200 groups, and without: requests a task",
    ),
    (
        "unique",
        "2,000 tasks with idempotency keys that are held until they are finished, and without: requests a task",
    ),
    ("sqlite", "20,000 tasks on SQLite, nothing injected"),
];

fn main() -> ExitCode {
    run_benchmark("direct", &SCENARIOS, run)
}

async fn run(args: &BenchmarkArgs, report: &mut Report) {
    let wanted = |name| args.includes(name);
    let latency = Some(Duration::from_millis(30));
    let one = Load {
        tasks: 2_000,
        workers: 1,
        slots: 64,
        latency,
        finished: 0,
        backing: Backing::Memory,
        feature: Feature::Batched,
    };
    let mut first_rate = None;
    if wanted("one") {
        let figures = one.run().await;
        first_rate = Some((figures.rate, figures.dollars_per_million));
        report::add_load(report, "one", &figures, report::ONE);
    }
    if wanted("four") {
        report::add_load(
            report,
            "four",
            &Load { workers: 4, ..one }.run().await,
            report::FOUR,
        );
    }
    if wanted("sixteen") {
        let load = Load {
            tasks: 8_000,
            workers: 16,
            slots: 16,
            ..one
        };
        report::add_load(report, "sixteen", &load.run().await, report::SIXTEEN);
    }
    if wanted("deep") {
        let figures = Load {
            finished: 100_000,
            ..one
        }
        .run()
        .await;
        report::add_load(report, "deep", &figures, report::ONE);
        if let Some((rate, dollars)) = first_rate {
            report.figure(
                "deep",
                "rate, as a part of that in an empty bucket",
                figures.rate / rate,
                "at least 0.9",
            );
            report.figure(
                "deep",
                "cost, as a part of that in an empty bucket",
                figures.dollars_per_million / dollars,
                "at most 1.1",
            );
        }
    }
    if wanted("idle") {
        idle::run(report).await;
    }
    features::run(report, args).await;
    if wanted("sqlite") {
        let load = Load {
            tasks: 20_000,
            workers: 1,
            slots: 256,
            latency: None,
            finished: 0,
            backing: Backing::Sqlite,
            feature: Feature::Batched,
        };
        report::add_load(report, "sqlite", &load.run().await, report::SQLITE);
    }
}
