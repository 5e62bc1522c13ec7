//! The simulator, and what is simulated.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod agreement;
mod campaign;
mod determinism;
mod small_scope;
mod store;
mod waiting;
