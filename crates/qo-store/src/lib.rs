//! Where qo's bytes live.
//!
//! The port is the field's own: the `object_store` crate's trait. This crate adds an SQLite store behind that trait, the
//! few things that the trait lacks, wrappers that count, delay and break requests, a client with qo's vocabulary, and the
//! probe that decides whether a bucket can be trusted at all.

pub mod admin;
pub mod browser;
pub mod client;
pub mod clock;
pub mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod http_layer;
pub mod open;
pub mod probe;
pub mod response;
pub mod runtime;
pub mod s3;
pub mod sqlite;
pub mod store;
pub mod wrap;

pub use client::StoreClient;
pub use error::StoreError;
pub use open::{OpenError, OpenOptions, check, open, open_default};
pub use sqlite::SqliteStore;
pub use store::{CredentialSource, Store, StoreKind, StoreSource};
