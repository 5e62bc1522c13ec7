//! The tests of qo-broker that look at it from outside, in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop loudly"
)]

mod agreement;
mod callers;
mod conformance;
mod crashes;
mod election;
mod faults;
mod fencing;
mod leftovers;
mod object;
mod place;
mod processes;
mod restart;
