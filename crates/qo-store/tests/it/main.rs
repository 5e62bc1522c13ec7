//! The integration tests of qo-store, in one binary.

mod sqlite;
