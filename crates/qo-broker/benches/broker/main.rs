//! The cost and speed of broker mode, with budgets.
//!
//! `cargo xtask bench broker [SCENARIO...] [--json]`; the scenario `http` is a benchmark of `qo-server`. Latency is injected, requests are
//! counted at the store's interface, and prices are those of S3. Run `deep` alone: it measures the memory of the process.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "it panics")]
#![allow(clippy::disallowed_methods, reason = "it reads the clock")]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
#![allow(clippy::panic, clippy::cast_sign_loss)]

mod deep;
mod features;
mod full;
mod half;
mod idle;
mod json;
mod names;
mod overload;
mod rig;
mod shared;
mod tenants;
mod touched;

use std::process::ExitCode;

use qo_fixtures::run_benchmark;

use self::features::Feature;

/// The allocator of the `qo` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SCENARIOS: [(&str, &str); 12] = [
    (
        "full",
        "slate, 30 ms a request, 1 KiB inputs, in batches: tasks a second, requests, dollars",
    ),
    (
        "half",
        "the same at 20,000 tasks a second: how long until an acknowledgement",
    ),
    (
        "deep",
        "the same with a million pending tasks: memory (on SQLite), rate, and a restart",
    ),
    (
        "json",
        "the JSON object on SQLite: 100 callers at depth 1,000, and jqueue under the same load",
    ),
    (
        "sizes",
        "the same with objects of 1, 4 and 16 MiB, and what has ended",
    ),
    ("idle", "an idle broker on slate: dollars a month"),
    (
        "overload",
        "slate at twice its load for two minutes: completed tasks, and leases of live workers",
    ),
    (
        "names",
        "slate with 5,000 queues and types, and with one: tasks a second",
    ),
    (
        "shared",
        "two workers and a submitter on one JSON object: their shares",
    ),
    (
        "tenants",
        "slate with 10,000 tenants that are served in turn, and without groups: tasks a second",
    ),
    (
        "keys",
        "slate with 100,000 ordering keys, and without: tasks a second",
    ),
    (
        "limited",
        "slate with a limit that all tasks share, and without: tasks a second",
    ),
];

fn main() -> ExitCode {
    run_benchmark("broker", &SCENARIOS, async |args, report| {
        if args.includes("json") {
            json::run(report).await;
        }
        if args.includes("sizes") {
            json::sizes(report).await;
        }
        if args.includes("idle") {
            idle::run(report).await;
        }
        if args.includes("half") {
            half::run(report).await;
        }
        if args.includes("full") {
            full::run(report).await;
        }
        if args.includes("overload") {
            overload::run(report).await;
        }
        if args.includes("names") {
            names::run(report).await;
        }
        if args.includes("shared") {
            shared::run(report).await;
        }
        if args.includes("tenants") {
            tenants::run(report).await;
        }
        if args.includes("keys") {
            features::run(report, "keys", Feature::Keys).await;
        }
        if args.includes("limited") {
            features::run(report, "limited", Feature::Limited).await;
        }
        if args.includes("deep") {
            deep::run(report).await;
        }
    })
}
