//! Tests of the sandbox with real programs, compiled from WebAssembly text.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and wait for real time to pass"
)]

mod caching;
mod granting;
mod hostile;
mod programs;
mod running;
mod support;
mod wrong_kind;
