//! The integration tests of qo-store, in one binary.

#[cfg(test)]
mod conformance;
mod sqlite;
