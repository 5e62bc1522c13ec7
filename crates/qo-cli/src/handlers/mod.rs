//! Handlers that need no Rust code: a command, an HTTP server, a WASI program, or the notifications of webhooks.
//!
//! `exec` runs a command for each attempt, `http` sends a request, and `wasi` runs a program in a sandbox. All are ordinary [`TaskHandler`](qo::TaskHandler)s: they turn an
//! input into an output or a [`TaskError`](qo::TaskError), and the worker does the rest. Their contracts are in `docs/guides/handlers.md`.

pub mod exec;
pub mod http;
pub mod output;
#[cfg(feature = "wasi")]
pub mod wasi;
pub mod webhook;
