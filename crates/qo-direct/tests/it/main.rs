//! The tests of qo-direct that look at it from outside, in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop loudly"
)]

mod bucket;
mod budget;
mod conformance;
mod crash;
mod doctor;
mod index_modes;
mod init;
mod maintenance;
mod places;
mod urgency;
mod waking;
