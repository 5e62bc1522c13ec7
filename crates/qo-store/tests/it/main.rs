//! The integration tests of qo-store, in one binary.

#[cfg(test)]
mod conformance;
mod fake_cloud;
mod fake_server;
mod http_layer;
mod opening;
mod probe;
mod probe_example;
mod real_stores;
mod redaction;
mod s3_admin;
mod s3_browser;
mod sqlite;
