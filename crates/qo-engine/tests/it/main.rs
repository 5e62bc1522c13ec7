//! The tests of qo-engine that look at it from outside, in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop loudly"
)]

mod crash;
mod maintenance;
mod smoke;
mod support;
