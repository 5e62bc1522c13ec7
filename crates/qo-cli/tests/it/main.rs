//! The tests of the `qo` command, in one binary: the real command, on stores of their own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop loudly"
)]

mod broker;
mod bulk;
mod e2e;
mod handlers;
mod help;
mod look;
mod place;
mod s3;
mod schema;
mod serve;
mod service;
mod settings;
mod submit;
mod terminal;
mod worker_command;
