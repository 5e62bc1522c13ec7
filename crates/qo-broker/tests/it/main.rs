//! Integration tests of qo-broker, in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests panic on errors"
)]

mod agreement;
mod callers;
mod conformance;
mod crashes;
mod election;
mod engines;
mod fencing;
mod keys;
mod later_versions;
mod leftovers;
mod object;
mod ordering;
mod outage;
mod overload;
mod partitioned;
mod processes;
mod restart;
mod retention;
mod sharing;
mod time_index;
mod workers;
