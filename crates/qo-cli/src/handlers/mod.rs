//! Handlers that need no Rust code: a command, or an HTTP server.
//!
//! `exec` runs a command for each attempt, `http` sends a request. Both are ordinary [`TaskHandler`](qo::TaskHandler)s: they turn an
//! input into an output or a [`TaskError`](qo::TaskError), and the worker does the rest. Their contracts are in `docs/guides/handlers.md`.

pub mod exec;
pub mod http;
pub mod output;
