//! Integration tests of qo-direct, in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests panic on errors"
)]

mod bucket;
mod budget;
mod conformance;
mod crash;
mod doctor;
mod documents;
mod fairness;
mod fleet;
mod index_modes;
mod init;
mod later_versions;
mod limits;
mod maintenance;
mod ordering;
mod promotion;
mod purge;
mod queue_settings;
mod repeated_submit;
mod stores;
mod urgency;
mod waking;
