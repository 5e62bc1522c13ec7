//! Integration tests of qo-blob, in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests panic on errors"
)]

mod broken_connections;
mod gc;
mod operations;
mod stores;
