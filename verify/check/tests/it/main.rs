//! Every breach is found: each test breaks one promise in an otherwise correct history.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests panic on errors"
)]

mod fairness;
mod final_state;
mod history;
mod limits;
mod ordering;
mod redrive;
mod scene;
mod settings;
mod uniqueness;
mod webhooks;
