//! Reads of large objects as streams.
//!
//! A stream waits for each chunk as long as for a response. If the connection breaks or falls silent, it asks for the rest with another
//! request. The object may be replaced meanwhile, so callers either read objects that never change or verify what they read.

use std::ops::Range;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt, TryStreamExt, try_unfold};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta};
use qo_core::Timestamp;

use super::classify::Failure;
use super::tag::Tag;
use super::{StoreClient, key_path};
use crate::error::StoreError;

/// What a store knows about an object without its bytes.
#[derive(Debug, Clone)]
pub struct ObjectInfo {
    /// Its size in bytes.
    pub size: u64,
    /// Identifies this state of the object.
    pub tag: Tag,
    /// When it was written, by the store's clock.
    pub last_modified: Timestamp,
}

/// An object that is being read.
pub struct ObjectStream {
    /// The object.
    pub info: ObjectInfo,
    /// Its bytes, or those of the requested range.
    pub body: BoxStream<'static, Result<Bytes, StoreError>>,
}

impl std::fmt::Debug for ObjectStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectStream")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

pub(super) async fn head(client: &StoreClient, key: &str) -> Result<ObjectInfo, StoreError> {
    let path = key_path(key)?;
    client
        .retrying("head", key, false, |timeout| {
            let options = GetOptions::new().with_head(true);
            let request = client.objects().get_opts(&path, options);
            async move {
                let result = client.with_timeout(timeout, request).await?;
                info(&result.map_err(|error| Failure::of(&error))?.meta)
            }
        })
        .await
}

pub(super) async fn read(
    client: &StoreClient,
    key: &str,
    range: Option<Range<u64>>,
) -> Result<ObjectStream, StoreError> {
    let path = key_path(key)?;
    let (info, chunks) = client
        .retrying("read", key, false, |timeout| {
            let opening = open(client, &path, range.clone());
            async move { client.with_timeout(timeout, opening).await? }
        })
        .await?;
    let Range { start, end } = range.unwrap_or(0..info.size);
    let reading = Reading {
        client: client.clone(),
        key: key.to_owned(),
        path,
        at: start,
        end,
        chunks: Some(chunks),
    };
    let body = try_unfold(reading, Reading::next).boxed();
    Ok(ObjectStream { info, body })
}

type Chunks = BoxStream<'static, object_store::Result<Bytes>>;

async fn open(
    client: &StoreClient,
    path: &Path,
    range: Option<Range<u64>>,
) -> Result<(ObjectInfo, Chunks), Failure> {
    let options = GetOptions::new().with_range(range.map(GetRange::Bounded));
    let result = client.objects().get_opts(path, options).await;
    let result = result.map_err(|error| Failure::of(&error))?;
    Ok((info(&result.meta)?, result.into_stream()))
}

fn info(meta: &ObjectMeta) -> Result<ObjectInfo, Failure> {
    let tag = Tag::of_meta(meta)
        .ok_or_else(|| Failure::Unsupported("the store returns no ETag".to_owned()))?;
    Ok(ObjectInfo {
        size: meta.size,
        tag,
        last_modified: Timestamp::from_millis(meta.last_modified.timestamp_millis()),
    })
}

/// A read in progress.
struct Reading {
    client: StoreClient,
    key: String,
    path: Path,
    /// The next byte.
    at: u64,
    /// The byte after the last one.
    end: u64,
    /// `None` after a failure.
    chunks: Option<Chunks>,
}

impl Reading {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, StoreError> {
        if self.at >= self.end {
            return Ok(None);
        }
        let client = self.client.clone();
        let mut budget = client.budget();
        loop {
            let timeout = budget.next_timeout();
            let next = client.with_timeout(timeout, self.chunk()).await;
            let failure = match next.unwrap_or_else(Err) {
                Ok(chunk) => {
                    self.at += chunk.len() as u64;
                    return Ok(Some((chunk, self)));
                }
                Err(failure) => failure,
            };
            self.chunks = None;
            if !failure.is_transient() || !budget.pause(failure.is_throttled()).await {
                return Err(failure.give_up("read", &self.key, &budget, false));
            }
            tracing::debug!(key = self.key, at = self.at, ?failure, "reading on");
        }
    }

    /// The next chunk that is not empty.
    async fn chunk(&mut self) -> Result<Bytes, Failure> {
        let mut chunks = match self.chunks.take() {
            Some(chunks) => chunks,
            None => {
                open(&self.client, &self.path, Some(self.at..self.end))
                    .await?
                    .1
            }
        };
        loop {
            let next = chunks.try_next().await;
            let Some(chunk) = next.map_err(|error| Failure::of(&error))? else {
                let (at, end) = (self.at, self.end);
                return Err(Failure::Torn(format!("read up to byte {at} of {end}")));
            };
            if chunk.len() as u64 > self.end - self.at {
                return Err(Failure::Torn("read more bytes than requested".to_owned()));
            }
            if !chunk.is_empty() {
                self.chunks = Some(chunks);
                return Ok(chunk);
            }
        }
    }
}
