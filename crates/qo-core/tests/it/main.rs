//! The tests of qo-core that look at it from outside, in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop loudly"
)]

mod codec;
mod model;
mod queue_state;
mod state_machine_doc;
mod support;
mod transitions;
