//! Integration tests of qo-direct, in one binary.

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
mod stores;
mod urgency;
mod waking;
