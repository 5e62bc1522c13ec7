//! The operations on blobs.

use std::fmt;
use std::ops::Range;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use futures_util::stream::{BoxStream, StreamExt};
use qo_core::{BlobAddress, Timestamp};
use qo_engine::Engine;
use serde::{Deserialize, Serialize};

use crate::error::BlobError;
use crate::gc::{GcOptions, GcReport};

/// The bytes of a blob, in chunks.
pub type BlobStream = BoxStream<'static, Result<Bytes, BlobError>>;

/// What is known about a stored blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobInfo {
    /// Its address.
    pub address: BlobAddress,
    /// Its size in bytes.
    pub size: u64,
    /// When its bytes were stored, by the store's clock.
    pub stored_at: Timestamp,
}

/// The result of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutBlob {
    /// The address of the bytes.
    pub address: BlobAddress,
    /// Their number.
    pub size: u64,
    /// Whether the blob is new. If not, the upload changed nothing except the time until which the blob is kept.
    pub created: bool,
}

/// A blob that is being read.
pub struct ReadBlob {
    /// Its address.
    pub address: BlobAddress,
    /// The size of the whole blob.
    pub size: u64,
    /// The bytes that are read.
    pub range: Range<u64>,
    /// The bytes. A read of the whole blob is verified: if the bytes do not have the address, [`BlobError::Damaged`] takes the place of
    /// the last chunk, so that no reader takes damaged bytes for a whole blob. A read of a range cannot be verified, because the address depends on all bytes.
    pub body: BlobStream,
}

impl fmt::Debug for ReadBlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadBlob")
            .field("address", &self.address)
            .field("size", &self.size)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

/// One page of a list of blobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobPage {
    /// The blobs, by address.
    pub blobs: Vec<BlobInfo>,
    /// The `after` of the next page, if there may be one.
    #[serde(default)]
    pub next: Option<BlobAddress>,
}

/// The blobs of a queue.
#[async_trait]
pub trait BlobStore: fmt::Debug + Send + Sync + 'static {
    /// The size of the largest blob that can be stored.
    fn max_bytes(&self) -> u64;

    /// Stores a blob. Fails without storing anything if the bytes do not have the address `expected`. The blob is kept at least for the
    /// grace time of the garbage collection, also if it was stored before.
    async fn put(
        &self,
        body: BlobStream,
        expected: Option<BlobAddress>,
    ) -> Result<PutBlob, BlobError>;

    /// Reads a blob, or a range of its bytes that is not empty.
    async fn get(
        &self,
        address: BlobAddress,
        range: Option<Range<u64>>,
    ) -> Result<ReadBlob, BlobError>;

    /// Reads the size of a blob.
    async fn head(&self, address: BlobAddress) -> Result<BlobInfo, BlobError>;

    /// Keeps a blob at least for the grace time of the garbage collection. Whoever submits a task that refers to a stored blob must touch
    /// the blob first; [`put`](BlobStore::put) does it, too.
    async fn touch(&self, address: BlobAddress) -> Result<BlobInfo, BlobError>;

    /// Lists at most `limit` blobs by address, from the first one after `after`.
    async fn list(&self, after: Option<BlobAddress>, limit: usize) -> Result<BlobPage, BlobError>;

    /// Deletes a blob, even if tasks refer to it. Returns whether it existed.
    async fn delete(&self, address: BlobAddress) -> Result<bool, BlobError>;

    /// Collects the blobs to which no task refers ([`crate::gc`]). `engine` is that of the queue whose blobs these are.
    async fn gc(&self, engine: &dyn Engine, options: &GcOptions) -> Result<GcReport, BlobError>;
}

/// Short forms for small blobs.
#[async_trait]
pub trait BlobStoreExt: BlobStore {
    /// Stores bytes that are in memory.
    async fn put_bytes(&self, bytes: Bytes) -> Result<PutBlob, BlobError> {
        let body = futures_util::stream::once(async move { Ok(bytes) });
        self.put(body.boxed(), None).await
    }

    /// Reads and verifies a whole blob of at most `max_bytes` into memory.
    async fn read_all(&self, address: BlobAddress, max_bytes: u64) -> Result<Bytes, BlobError> {
        let mut blob = self.get(address, None).await?;
        if blob.size > max_bytes {
            return Err(BlobError::TooLarge { max_bytes });
        }
        let mut all = BytesMut::new();
        while let Some(chunk) = blob.body.try_next().await? {
            if (all.len() + chunk.len()) as u64 > max_bytes {
                return Err(BlobError::TooLarge { max_bytes });
            }
            all.extend_from_slice(&chunk);
        }
        Ok(all.freeze())
    }
}

impl<S: BlobStore + ?Sized> BlobStoreExt for S {}
