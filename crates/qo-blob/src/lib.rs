//! Content-addressed blobs: bytes that are stored under their SHA-256 digest, next to the tasks that refer to them.
//!
//! - [`BlobStore`]: the operations, which every mode of qo offers.
//! - [`Blobs`]: the blobs in an object store. Its documentation has the layout and the crash table.
//! - [`gc`]: collects the blobs that no task refers to.
//! - [`references`]: how a task refers to a blob.
//! - [`job`]: the stored form of a WASI job.
//! - [`spool`]: holds an upload until its address is known.

mod api;
mod blobs;
mod digest;
mod error;
pub mod gc;
pub mod job;
mod record;
pub mod references;
pub mod spool;
mod submit;

pub use api::{BlobInfo, BlobPage, BlobStore, BlobStoreExt, BlobStream, PutBlob, ReadBlob};
pub use blobs::{Blobs, TOUCH_INTERVAL_MS};
pub use digest::{address_of, verified};
pub use error::BlobError;
pub use gc::{GcOptions, GcReport};
pub use qo_core::BlobAddress;
pub use submit::submit_with_blobs;
