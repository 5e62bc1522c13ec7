//! How many tasks a second a broker serves over HTTP to another process on the same machine.
//!
//! `cargo xtask bench broker http [--json]`. The benchmark starts itself again as the server: SlateDB on a store in memory with 30 ms
//! injected into each request. The client submits, claims and completes through the remote engine, in batches, with inputs of
//! 1 KiB. Both share the machine's cores, so that CPU time a task is told for each.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a benchmark stops loudly, reads the clock, and divides small numbers"
)]

mod load;
mod server;

use std::process::ExitCode;

use qo_fixtures::Report;

/// What the `qo` command uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What makes the benchmark the server.
const SERVE: &str = "serve";
const SCENARIO: &str = "http";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    if words.first().is_some_and(|word| word == SERVE) {
        runtime.block_on(server::serve());
        return ExitCode::SUCCESS;
    }
    let unknown = words
        .iter()
        .find(|word| *word != SCENARIO && *word != "--json");
    if let Some(unknown) = unknown {
        eprintln!("there is no scenario {unknown:?}; there is {SCENARIO}");
        return ExitCode::from(2);
    }
    let mut report = Report::new(words.iter().any(|word| word == "--json"));
    runtime.block_on(load::run(&mut report));
    report.print();
    ExitCode::SUCCESS
}
