//! Tests of the `qo` command, in one binary. They run the real command, each test on its own store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod blob;
mod broker;
mod bulk;
#[cfg(feature = "cluster")]
mod cluster;
mod e2e;
mod encryption;
mod fairness;
mod faulty;
mod handlers;
mod help;
mod inspect;
mod limits;
mod mdns;
mod ordering;
mod queue;
mod s3;
mod schedule;
mod schema;
mod serve;
mod service;
mod settings;
mod submit;
mod terminal;
mod uniqueness;
mod webhooks;
mod worker_command;
mod workspace;
