//! Every breach is found: each test breaks one promise in an otherwise correct history.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop loudly"
)]

mod final_state;
mod history;
mod scene;
