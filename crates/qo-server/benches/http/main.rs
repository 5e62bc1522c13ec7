//! The tasks a second that a broker serves over HTTP to another process on the same machine.
//!
//! `cargo xtask bench broker http [--json]`. The benchmark starts itself again as the server: SlateDB on a store in memory with 30 ms
//! injected into each request. The client submits, claims and completes through the remote engine, in batches, with inputs of
//! 1 KiB. Both share the machine's cores, so the CPU time a task is reported for each.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "it panics")]
#![allow(clippy::disallowed_methods, reason = "it reads the clock")]
#![allow(clippy::cast_precision_loss, reason = "it divides small numbers")]

mod load;
mod server;

use std::process::ExitCode;

use qo_fixtures::run_benchmark;

/// The allocator of the `qo` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The argument that makes the benchmark the server.
const SERVE: &str = "serve";
const SCENARIO: &str = "http";

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|word| word == SERVE) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(server::serve());
        return ExitCode::SUCCESS;
    }
    let description = "slate behind HTTP, called by another process: tasks a second";
    run_benchmark(
        "broker http",
        &[(SCENARIO, description)],
        async |_, report| load::run(report).await,
    )
}
