//! Storage for qo.
//!
//! The interface is the `ObjectStore` trait of the `object_store` crate. This crate adds:
//!
//! - [`open()`](open()): opens a store by URL. Each backend is a Cargo feature: `sqlite`, `s3`, `gcs`, `azure` (all
//!   on by default). `memory:` is always available.
//! - [`StoreClient`]: create, compare-and-swap, get, list and delete, with retries that never apply a write twice.
//! - [`probe`]: checks that a bucket honours conditional writes before qo relies on it.
//! - [`admin`]: object versions and bucket settings, which the trait lacks.
//! - [`sqlite`]: an object store in an SQLite file.
//! - [`clock`]: an estimate of the store's clock.
//! - [`runtime`]: time, spawning and randomness behind one trait, so that a simulator can replace them.
//! - [`wrap`]: stores that count or log requests and, with the feature `test-util`, delay or fail them.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub mod admin;
pub mod browser;
pub mod client;
pub mod clock;
pub mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
#[cfg(feature = "cloud")]
mod http_layer;
pub mod open;
pub mod probe;
mod recent;
pub mod response;
pub mod runtime;
#[cfg(feature = "s3")]
pub mod s3;
mod shell;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod store;
pub mod wrap;

pub use client::StoreClient;
pub use error::StoreError;
pub use open::{OpenError, OpenOptions, check, open, open_default};
pub use recent::written_since;
pub use shell::shell_command;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use store::{CredentialSource, Store, StoreKind, StoreSource};
