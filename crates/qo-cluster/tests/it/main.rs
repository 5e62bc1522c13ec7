//! Tests of cluster mode on real disks and sockets, in one process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and wait on the real clock"
)]

mod cluster;
mod conformance;
mod damage;
mod failover;
mod fencing;
mod groups;
mod members;
mod objects;
mod single_node;
mod strangers;
mod transfers;
mod updates;
