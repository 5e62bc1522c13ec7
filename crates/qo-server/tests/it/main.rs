//! The integration tests of qo-server, in one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that cannot continue should panic"
)]

mod access;
mod audit;
mod blobs;
mod bodies;
mod claims;
mod conformance;
mod encryption;
mod fairness;
mod jobs;
mod limited;
mod limits;
mod lists;
mod lost_responses;
mod monitoring;
mod other_sites;
mod overload;
mod queue_settings;
mod reference;
mod refusals;
mod running;
mod schedules;
mod slow_clients;
mod support;
mod tasks;
mod tls;
mod tokens;
mod uniqueness;
mod watching;
mod webhooks;
