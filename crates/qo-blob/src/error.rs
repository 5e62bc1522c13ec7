//! Errors of operations on blobs.

use std::ops::Range;

use qo_core::BlobAddress;
use qo_engine::EngineError;
use qo_store::StoreError;
use thiserror::Error;

/// Why an operation on a blob failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlobError {
    /// No blob has this address.
    #[error("there is no blob {address}; upload it with `qo blob put`")]
    NotFound {
        /// The address.
        address: BlobAddress,
    },
    /// The uploaded bytes do not have the address that the caller named. Nothing was stored.
    #[error("the uploaded bytes have the address {actual}, not {expected}; nothing was stored")]
    Mismatch {
        /// The address that the caller named.
        expected: BlobAddress,
        /// The address of the bytes.
        actual: BlobAddress,
    },
    /// The stored bytes do not have their address. The bytes that the reader has received are not the blob.
    #[error(
        "blob {address} is damaged: {detail}; delete it with `qo blob delete` and upload it again"
    )]
    Damaged {
        /// The address.
        address: BlobAddress,
        /// What differs.
        detail: String,
    },
    /// The upload is larger than the store accepts. Nothing was stored.
    #[error("the blob has more than {max_bytes} bytes, which is the limit; nothing was stored")]
    TooLarge {
        /// The limit.
        max_bytes: u64,
    },
    /// The requested range does not lie within the blob.
    #[error("bytes {start} to {end} are not within blob {address}, which has {size} bytes")]
    BadRange {
        /// The address.
        address: BlobAddress,
        /// The first byte.
        start: u64,
        /// The byte after the last one.
        end: u64,
        /// The size of the blob.
        size: u64,
    },
    /// Other processes keep changing the blob's record.
    #[error("the record of blob {address} keeps being changed by other processes; try again")]
    Contended {
        /// The address.
        address: BlobAddress,
    },
    /// The record of a blob cannot be parsed.
    #[error("the record of blob {address} cannot be read: {detail}")]
    Unreadable {
        /// The address.
        address: BlobAddress,
        /// What is wrong with it.
        detail: String,
    },
    /// The upload could not be read to its end. Nothing was stored.
    #[error("the upload ended early: {detail}; nothing was stored")]
    Upload {
        /// What happened.
        detail: String,
    },
    /// The upload could not be held in a temporary file. Nothing was stored.
    #[error(
        "the temporary file of the upload failed: {detail}; check the space in the directory that TMPDIR names"
    )]
    Spool {
        /// The error of the operating system.
        detail: String,
    },
    /// The grace time of a garbage collection is too short.
    #[error(
        "the grace time must be at least {min_seconds} seconds, so that no upload in progress is collected"
    )]
    GraceTooShort {
        /// The shortest grace time.
        min_seconds: u64,
    },
    /// A request to the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An operation of the queue failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl BlobError {
    /// Refuses a range that is empty or does not lie within a blob of this size.
    pub fn check_range(address: BlobAddress, range: &Range<u64>, size: u64) -> Result<(), Self> {
        if range.start >= range.end || range.end > size {
            return Err(Self::BadRange {
                address,
                start: range.start,
                end: range.end,
                size,
            });
        }
        Ok(())
    }
}
