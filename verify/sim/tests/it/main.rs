//! Integration tests of the simulator, in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod agreement;
mod campaign;
mod cluster;
mod determinism;
mod overload;
mod reuse;
mod schedules;
mod small_scope;
mod store;
mod turns;
mod waiting;
