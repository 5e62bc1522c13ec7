//! What broker mode costs and how fast it is, against the budgets that it was given.
//!
//! `cargo xtask bench broker [SCENARIO...] [--json]`. Latency is injected, requests are counted at the store's interface, and
//! prices are those of S3. The budgets stand beside each figure. Run `deep` alone: it looks at the memory of the process.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a benchmark stops loudly, reads the clock, and divides small numbers"
)]

mod deep;
mod full;
mod half;
mod idle;
mod json;
mod place;
mod touched;

use std::process::ExitCode;

use qo_fixtures::Report;

/// What the `qo` command uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SCENARIOS: [(&str, &str); 6] = [
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
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("cargo xtask bench broker [SCENARIO...] [--json]\n");
        for (name, what) in SCENARIOS {
            println!("  {name:<9}{what}");
        }
        println!("  http     slate behind HTTP, asked by another process: tasks a second");
        return ExitCode::SUCCESS;
    }
    let json = words.iter().any(|word| word == "--json");
    let asked: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|word| *word != "--json")
        .collect();
    if let Some(unknown) = asked
        .iter()
        .find(|word| SCENARIOS.iter().all(|(name, _)| name != *word))
    {
        eprintln!("there is no scenario {unknown:?}; `cargo xtask bench broker --help` lists them");
        return ExitCode::from(2);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut report = Report::new(json);
    runtime.block_on(async {
        let wanted = |name: &str| asked.is_empty() || asked.contains(&name);
        if wanted("json") {
            json::run(&mut report).await;
        }
        if wanted("sizes") {
            json::sizes(&mut report).await;
        }
        if wanted("idle") {
            idle::run(&mut report).await;
        }
        if wanted("half") {
            half::run(&mut report).await;
        }
        if wanted("full") {
            full::run(&mut report).await;
        }
        if wanted("deep") {
            deep::run(&mut report).await;
        }
    });
    report.print();
    ExitCode::SUCCESS
}
