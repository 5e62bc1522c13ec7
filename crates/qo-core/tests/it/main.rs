//! Tests of the public interface of qo-core, in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot continue should panic"
)]

mod codec;
mod model;
mod queue_state;
mod state_machine_doc;
mod support;
mod transitions;
