//! Where qo's bytes live.
//!
//! The port is the field's own: the `object_store` crate's trait. This crate adds an SQLite store behind that trait, the
//! few things that the trait lacks, wrappers that count, delay and break requests, a client with qo's vocabulary, and the
//! probe that decides whether a bucket can be trusted at all.

pub mod admin;
pub mod clock;
pub mod error;
pub mod probe;
pub mod response;
pub mod world;
pub mod wrap;

pub use error::StoreError;
