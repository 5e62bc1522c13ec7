//! Blobs, and what their garbage collection reports.

use utoipa::ToSchema;

use super::{Address, Time};

/// A stored blob.
#[derive(Debug, ToSchema)]
pub struct BlobInfoRecord {
    /// Its address.
    #[schema(value_type = Address)]
    pub address: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was stored.
    #[schema(value_type = Time)]
    pub stored_at: String,
}

/// The result of an upload.
#[derive(Debug, ToSchema)]
pub struct PutBlobRecord {
    /// The address of the bytes.
    #[schema(value_type = Address)]
    pub address: String,
    /// Their number.
    pub size: u64,
    /// Whether the blob is new.
    pub created: bool,
}

/// A page of blobs.
#[derive(Debug, ToSchema)]
pub struct BlobPageRecord {
    /// The blobs, by address.
    pub blobs: Vec<BlobInfoRecord>,
    /// The `after` of the next page, if there may be one.
    #[schema(value_type = Option<Address>)]
    pub next: Option<String>,
}

/// The result of a garbage collection.
#[derive(Debug, ToSchema)]
pub struct GcReportRecord {
    /// The blobs that are stored and were looked at.
    pub blobs: u64,
    /// The tasks that were read, in all passes.
    pub tasks: u64,
    /// The blobs that were collected; with a dry run, those that would be.
    pub collected: u64,
    /// Their bytes.
    pub collected_bytes: u64,
    /// The blobs to which a task refers.
    pub referenced: u64,
    /// The blobs that were kept because they are within the grace time or were touched meanwhile.
    pub recent: u64,
    /// The uploads that had crashed and got a record.
    pub adopted: u64,
    /// The blobs with a record but without bytes.
    pub missing: u64,
    /// The blobs whose records cannot be read.
    pub unreadable: u64,
}
