//! Writes of large objects, in parts.
//!
//! One request for a large object would exceed the time limit of a request on a slow connection, and a lost connection would repeat all
//! of it. Each part has a time limit of its own. A part that fails ends the upload, because some stores do not accept a part
//! twice; the upload is then aborted and restarted. The object appears when the upload is completed, as a whole. The parts of an
//! upload that was neither completed nor aborted, because the process died, stay invisible until the bucket's own rules remove them.

use std::io;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload, PutResult};

use super::classify::Failure;
use super::{StoreClient, without_bucket};
use crate::error::StoreError;

/// Larger objects are written in parts.
pub(super) const SINGLE_MAX_BYTES: usize = 16 * 1024 * 1024;
/// The size of a part. S3 accepts at least 5 MiB.
const PART_BYTES: u64 = 8 * 1024 * 1024;
/// The number of parts that are sent at the same time.
const PARTS_AT_ONCE: usize = 4;

/// The bytes of a large object. A part may be read more than once, because a failed upload is restarted.
#[async_trait]
pub trait PartSource: Send + Sync {
    /// The size of the object.
    fn size(&self) -> u64;

    /// The bytes of a range that lies within the object.
    async fn part(&self, range: Range<u64>) -> io::Result<Bytes>;
}

#[async_trait]
impl PartSource for Bytes {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    async fn part(&self, range: Range<u64>) -> io::Result<Bytes> {
        let index = |at: u64| usize::try_from(at).map_err(io::Error::other);
        let (start, end) = (index(range.start)?, index(range.end)?);
        if start > end || end > self.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(self.slice(start..end))
    }
}

/// The error of a source that cannot be read.
pub(super) fn unreadable(error: &io::Error) -> StoreError {
    StoreError::Unsupported {
        operation: "this upload",
        detail: cannot_read(error),
    }
}

fn cannot_read(error: &io::Error) -> String {
    format!("the bytes to upload cannot be read: {error}")
}

/// Writes an object in parts.
pub(super) async fn put(
    client: &StoreClient,
    key: &str,
    path: &Path,
    source: &dyn PartSource,
) -> Result<PutResult, StoreError> {
    let mut budget = client.budget();
    let mut in_doubt = false;
    loop {
        budget.next_timeout();
        let failure = match put_once(client, path, source).await {
            Ok(done) => return Ok(done),
            Err(failure) => failure,
        };
        in_doubt |= failure.may_have_applied();
        if !failure.is_transient() || !budget.pause(failure.is_throttled()).await {
            return Err(failure.give_up("put", key, &budget, in_doubt));
        }
        tracing::debug!(key, ?failure, "starting the upload again");
    }
}

async fn put_once(
    client: &StoreClient,
    path: &Path,
    source: &dyn PartSource,
) -> Result<PutResult, Failure> {
    let timeout = client.config().retry.request_timeout;
    let failed = |error: object_store::Error| without_bucket(Failure::of(&error));
    let begun = client.with_timeout(timeout, client.objects().put_multipart(path));
    let mut upload = begun.await?.map_err(failed)?;
    match send_parts(client, upload.as_mut(), source).await {
        Ok(()) => {
            let completed = client.with_timeout(timeout, upload.complete()).await?;
            completed.map_err(failed)
        }
        Err(failure) => {
            // If this fails too, the parts remain and cost space, but never become an object.
            let _ = client.with_timeout(timeout, upload.abort()).await;
            Err(match failure {
                // Nothing is applied before the upload is completed.
                Failure::Doubtful(detail) => Failure::Contended(detail),
                other => other,
            })
        }
    }
}

async fn send_parts(
    client: &StoreClient,
    upload: &mut dyn MultipartUpload,
    source: &dyn PartSource,
) -> Result<(), Failure> {
    let timeout = client.config().retry.request_timeout;
    let mut sending = FuturesUnordered::new();
    let mut start = 0;
    while start < source.size() {
        let end = source.size().min(start + PART_BYTES);
        let bytes = source.part(start..end).await;
        let bytes = bytes.map_err(|error| Failure::Unsupported(cannot_read(&error)))?;
        let part = upload.put_part(PutPayload::from(bytes));
        sending.push(async move {
            let sent = client.with_timeout(timeout, part).await?;
            sent.map_err(|error| without_bucket(Failure::of(&error)))
        });
        start = end;
        if sending.len() >= PARTS_AT_ONCE {
            sending.try_next().await?;
        }
    }
    while sending.try_next().await?.is_some() {}
    Ok(())
}
