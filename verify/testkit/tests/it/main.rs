//! The integration tests of qo-testkit, in one binary.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what helpers of tests meet unexpectedly fails the test"
)]

mod death;
mod lifetime;
mod server;
