//! Handlers for people who do not write Rust: a command, or a web server.
//!
//! `exec` runs a command for each attempt, `http` makes a request for each. Both are ordinary
//! [`TaskHandler`](qo::TaskHandler)s: the worker's runtime claims, renews, times out and writes outcomes, and what is here
//! only turns an input into an output or into a [`TaskError`](qo::TaskError). Their contracts are in `docs/guides/handlers.md`.

pub mod answer;
pub mod exec;
pub mod http;
