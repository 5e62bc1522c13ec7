//! The tests of qo-engine that look at it from outside, in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop loudly"
)]

mod budget;
mod conformance;
mod crash;
mod doctor;
mod index_modes;
mod init;
mod leadership;
mod maintenance;
mod places;
mod state;

mod support;
mod urgency;
mod waking;
