//! A store client with the operations that qo needs: create, swap, put, get, page, delete.
//!
//! # Why qo has its own client
//!
//! The queue depends on one question: was my conditional write applied? Networks, proxies and servers lose requests and
//! responses, deliver them late or twice, and fail after doing the work. The client reduces all of this to three results:
//! the write was applied, it was not and never will be, or it is unknown ([`StoreError::Unavailable`] with `in_doubt`).
//! This works because every record contains the id of the operation that wrote it (see [`authorship`]), so reading the
//! stored record settles the question.
//!
//! # From response to action
//!
//! These tables apply to [`create`](StoreClient::create) (`If-None-Match: *`) and [`swap`](StoreClient::swap)
//! (`If-Match`). "Unsure" means that an earlier attempt of the same operation got no definite response.
//!
//! | response | action | reason |
//! | --- | --- | --- |
//! | success | done | the condition held when the store applied the write |
//! | 412 or "exists" on the first attempt | `Conflict` / `AlreadyExists`, no read | no attempt of ours can have made the condition fail |
//! | 404 to a swap on the first attempt | `Conflict` | AWS returns 404 where others return 412: the expected object is gone |
//! | 412, "exists" or 404 when unsure | read back | our own first write may have made the condition fail |
//! | no response, timeout, 5xx | read back | applied, not applied, or still in flight |
//! | 409 | read back | another write was in flight; it means neither "exists" nor failure |
//! | 429, 503 | wait longer, resend, now unsure | by contract nothing was applied, so a read would only add load to an overloaded store; if the store broke the contract, the condition fails and the 412 is read back |
//! | 400, 401, 403, unsupported | return that error, no retry | a retry would fail the same way; when unsure, read back first |
//!
//! Then, depending on what the read returned:
//!
//! | stored | action | reason |
//! | --- | --- | --- |
//! | our operation id, as the newest | success, with the tag just read | the write was applied exactly once: a second copy of a conditional write fails its condition |
//! | our operation id, in the history | success, without a tag | the write was applied, and another writer has since replaced it |
//! | a swap finds the expected tag, a create finds nothing | resend the same bytes with the same id | nothing was applied so far. If the first copy arrives late, it makes the second fail with 412, or fails itself. Either way exactly one is applied, and it contains our id |
//! | anything else | `Conflict` / `AlreadyExists` | the condition can never hold again, so a late copy fails too |
//! | a swap finds nothing | `Conflict`, or in doubt if an attempt may have been applied | the object may have been deleted after our write |
//! | the read fails | read again within the budget, then in doubt | |
//!
//! An operation takes at most `budget + settle` of [`RetryConfig`] (40 s). A write that is still unsettled then is
//! reported as in doubt. The caller knows the operation id and can look for it later.
//!
//! Callers must ensure that:
//! - The body of a conditional write contains its operation id, and keeps the ids of earlier writes for longer than a
//!   write can stay unsettled. If a body lacks the id, the client does not guess: the write is in doubt.
//! - No two writes have the same bytes. The record's revision ensures this. Entity tags are content hashes, so a record
//!   that returned to its old bytes would let a late write pass `If-Match`.
//! - A key written by `create` is not deleted while its creation may be in flight. Otherwise a late copy could create it
//!   again.
//! - Dropping the future of a write leaves that write in doubt.
//!
//! The transport below must not resend a conditional write by itself. Otherwise the first 412 could be the response to
//! its own second copy. qo's transport does not, but a proxy may: nginx resends a PUT when an upstream breaks off. In such
//! an environment, disable [`ClientConfig::trust_first_refusal`], so that every refusal is read back.
//!
//! # Requests
//!
//! | operation | requests | if the response is lost |
//! | --- | --- | --- |
//! | `create`, `swap` | 1 PUT | + 1 GET, and + 1 PUT if the write was not applied |
//! | `create`, `swap`, throttled | 1 PUT per attempt | + 1 GET only if a condition then fails |
//! | `put` | 1 PUT | + 1 PUT |
//! | `put`, more than 16 MiB | 2 POST and 1 PUT per 8 MiB | the same again |
//! | `put_from` | as `put` | as `put` |
//! | `get`, `get_if_changed` | 1 GET | + 1 GET |
//! | `head`, `read` | 1 HEAD, 1 GET | + 1 of the same; `read` continues where it was |
//! | `page` | 1 LIST | + 1 LIST |
//! | `delete_many` | 1 DELETE per 1,000 keys on S3 | + 1 for the remaining keys |
//!
//! `page` reads at most 1,000 keys of a stream that requests pages of 1,000 keys, and drops the stream before it requests
//! another page. (Azure cannot start a listing at a key: the pages before `after` are listed and skipped.)

mod authorship;
mod classify;
mod delete;
mod folders;
mod multipart;
mod page;
mod retry;
mod settle;
mod stream;
mod tag;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt, PutPayload};
use qo_core::limits::STORED_PAYLOAD_MAX_BYTES;
use qo_core::{OpId, Timestamp};

use crate::clock::StoreClock;
use crate::error::StoreError;
use crate::runtime::{Runtime, RuntimeExt};

pub use authorship::{Authorship, carries_operation};
pub use delete::DeleteFailures;
pub use multipart::PartSource;
pub use page::{Entry, PAGE_LIMIT_MAX, Page};
pub use retry::RetryConfig;
pub use settle::Written;
pub use stream::{ObjectInfo, ObjectStream};
pub use tag::Tag;

pub(crate) use classify::Failure;
pub(crate) use retry::Budget;
use settle::WriteCondition;

/// Looks for an operation id in a stored body.
pub type Recognise = fn(body: &[u8], op: &OpId) -> Option<Authorship>;

/// Configuration of a [`StoreClient`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Retry settings.
    pub retry: RetryConfig,
    /// How the client recognises its own write in a stored body.
    pub recognise: Recognise,
    /// Larger objects are not read.
    pub object_bytes_max: u64,
    /// Whether a refusal of the first attempt is final. If a proxy between the client and the store resends
    /// requests, the refusal may be the response to a second copy. In that case set this to false; each refusal
    /// then costs one more read.
    pub trust_first_refusal: bool,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            retry: RetryConfig::default(),
            recognise: carries_operation,
            object_bytes_max: STORED_PAYLOAD_MAX_BYTES,
            trust_first_refusal: true,
        }
    }
}

/// An object as read from the store.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its bytes.
    pub body: Bytes,
    /// Identifies this state of the object.
    pub tag: Tag,
    /// When it was written, by the store's clock.
    pub last_modified: Timestamp,
}

/// After this many consecutive short bodies, the object counts as damaged.
const TORN_READS_MAX: u32 = 3;

/// How long [`StoreClient::trying_once`] waits for a response.
const HINT_TIMEOUT: Duration = Duration::from_secs(5);

/// A store client. Clones share all state.
#[derive(Debug, Clone)]
pub struct StoreClient {
    shared: Arc<ClientShared>,
}

#[derive(Debug)]
struct ClientShared {
    objects: Arc<dyn ObjectStore>,
    clock: Arc<StoreClock>,
    runtime: Arc<dyn Runtime>,
    config: ClientConfig,
}

impl StoreClient {
    /// A client of `objects`, whose own retries must be off. `clock` is the clock that the layer below updates
    /// from responses.
    pub fn new(
        objects: Arc<dyn ObjectStore>,
        clock: Arc<StoreClock>,
        runtime: Arc<dyn Runtime>,
        config: ClientConfig,
    ) -> Self {
        Self {
            shared: Arc::new(ClientShared {
                objects,
                clock,
                runtime,
                config,
            }),
        }
    }

    /// A client of the same store for hints: it sends each request once and does not wait long for the response.
    #[must_use]
    pub fn trying_once(&self) -> Self {
        let mut config = self.shared.config.clone();
        config.retry.attempts_max = 1;
        config.retry.request_timeout = config.retry.request_timeout.min(HINT_TIMEOUT);
        config.retry.settle = config.retry.settle.min(HINT_TIMEOUT);
        Self::new(
            Arc::clone(&self.shared.objects),
            Arc::clone(&self.shared.clock),
            Arc::clone(&self.shared.runtime),
            config,
        )
    }

    /// A client of the same store that waits at most `timeout` for each response, for callers that need an answer soon.
    #[must_use]
    pub fn with_request_timeout(&self, timeout: Duration) -> Self {
        let shared = &self.shared;
        let mut config = shared.config.clone();
        config.retry.request_timeout = config.retry.request_timeout.min(timeout);
        Self::new(
            Arc::clone(&shared.objects),
            Arc::clone(&shared.clock),
            Arc::clone(&shared.runtime),
            config,
        )
    }

    /// The store's time: [`StoreClock::now`]. It does not go back when the estimate improves.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now(self.shared.runtime.moment())
    }

    /// The earliest possible store time. A deadline before it has certainly passed.
    pub fn earliest_now(&self) -> Timestamp {
        self.shared.clock.earliest(self.shared.runtime.moment())
    }

    /// Creates an object. Fails if one exists. `body` must contain `op`.
    pub async fn create(&self, key: &str, body: Bytes, op: &OpId) -> Result<Written, StoreError> {
        settle::write(self, "create", key, body, WriteCondition::Absent, op).await
    }

    /// Replaces an object if it is still in the state that `tag` identifies. `body` must contain `op`.
    pub async fn swap(
        &self,
        key: &str,
        body: Bytes,
        tag: &Tag,
        op: &OpId,
    ) -> Result<Written, StoreError> {
        settle::write(self, "swap", key, body, WriteCondition::Unchanged(tag), op).await
    }

    /// Writes an object unconditionally. A write that was given up on may still arrive after later ones, so use
    /// this only where that is harmless.
    pub async fn put(&self, key: &str, body: Bytes) -> Result<Tag, StoreError> {
        let path = key_path(key)?;
        if body.len() > multipart::SINGLE_MAX_BYTES {
            let result = multipart::put(self, key, &path, &body).await?;
            return Tag::of_put(result).ok_or_else(|| no_tag("put"));
        }
        let payload = PutPayload::from(body);
        let result = self
            .retrying("put", key, true, |timeout| {
                let payload = payload.clone();
                let path = &path;
                async move {
                    let request = self.objects().put(path, payload);
                    match self.with_timeout(timeout, request).await? {
                        Ok(result) => Ok(result),
                        Err(error) => Err(without_bucket(Failure::of(&error))),
                    }
                }
            })
            .await?;
        Tag::of_put(result).ok_or_else(|| no_tag("put"))
    }

    /// Writes an object unconditionally, from a source that is read part by part. At most 32 MiB of it are in memory at a time.
    pub async fn put_from(&self, key: &str, source: &dyn PartSource) -> Result<Tag, StoreError> {
        let size = source.size();
        if size <= multipart::SINGLE_MAX_BYTES as u64 {
            let body = source.part(0..size).await;
            let body = body.map_err(|error| multipart::unreadable(&error))?;
            return self.put(key, body).await;
        }
        let path = key_path(key)?;
        let result = multipart::put(self, key, &path, source).await?;
        Tag::of_put(result).ok_or_else(|| no_tag("put"))
    }

    /// Reads the size, the tag and the time of an object.
    pub async fn head(&self, key: &str) -> Result<ObjectInfo, StoreError> {
        stream::head(self, key).await
    }

    /// Reads an object, or a range of its bytes, as a stream. The range must lie within the object. If the connection breaks, the stream
    /// continues where it was, with another request.
    pub async fn read(
        &self,
        key: &str,
        range: Option<Range<u64>>,
    ) -> Result<ObjectStream, StoreError> {
        stream::read(self, key, range).await
    }

    /// Reads an object.
    pub async fn get(&self, key: &str) -> Result<Object, StoreError> {
        let path = key_path(key)?;
        self.retrying("get", key, false, |timeout| {
            self.get_once(timeout, &path, GetOptions::default())
        })
        .await
    }

    /// Reads an object unless it is still in the state that `tag` identifies.
    pub async fn get_if_changed(&self, key: &str, tag: &Tag) -> Result<Option<Object>, StoreError> {
        let path = key_path(key)?;
        let options = GetOptions::new().with_if_none_match(tag.e_tag());
        self.retrying("get_if_changed", key, false, |timeout| {
            let options = options.clone();
            let path = &path;
            async move {
                match self.get_once(timeout, path, options).await {
                    // A store that ignores the condition returns the object that the caller already has.
                    Ok(object) => Ok((!object.tag.matches(tag)).then_some(object)),
                    Err(Failure::NotModified) => Ok(None),
                    Err(failure) => Err(failure),
                }
            }
        })
        .await
    }

    /// Up to `limit` objects under `prefix`, in key order, starting after the key `after`.
    ///
    /// The prefix consists of whole path segments: `a/b` includes `a/b/c` but neither `a/b` nor `a/bc`. The empty
    /// prefix includes everything. The limit is clamped to 1..=[`PAGE_LIMIT_MAX`].
    ///
    /// Some stores keep folders separately and list folder `a` before its siblings `a-b` and `a.b`, although `a/`
    /// sorts after them (SeaweedFS 4.47 does). Such a page is rejected as unsupported, because continuing after
    /// its last key could skip keys. Keys that are listed together must therefore not include a folder whose
    /// name, followed by a character that sorts before `/` (such as `-` or `.`), is a prefix of a sibling's name.
    pub async fn page(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        page::page(self, prefix, after, limit).await
    }

    /// The names directly below `prefix` that have objects below them. One LIST request, if there are few.
    pub async fn folders(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        folders::folders(self, prefix).await
    }

    /// Deletes objects. Missing objects count as deleted. The error lists each object that could not be deleted.
    pub async fn delete_many(&self, keys: &[String]) -> Result<(), DeleteFailures> {
        delete::delete_many(self, keys).await
    }

    fn objects(&self) -> &dyn ObjectStore {
        self.shared.objects.as_ref()
    }

    fn config(&self) -> &ClientConfig {
        &self.shared.config
    }

    fn budget(&self) -> Budget<'_> {
        Budget::new(self.shared.runtime.as_ref(), &self.shared.config.retry)
    }

    /// Sends an idempotent request until it succeeds, fails permanently, or exhausts the budget.
    async fn retrying<T, Sent>(
        &self,
        operation: &'static str,
        key: &str,
        is_write: bool,
        send: impl Fn(Duration) -> Sent,
    ) -> Result<T, StoreError>
    where
        Sent: Future<Output = Result<T, Failure>>,
    {
        let mut budget = self.budget();
        let mut torn_reads = 0;
        let mut in_doubt = false;
        loop {
            let failure = match send(budget.next_timeout()).await {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            in_doubt |= is_write && failure.may_have_applied();
            torn_reads += u32::from(matches!(failure, Failure::Torn(_)));
            let again = failure.is_transient()
                && torn_reads < TORN_READS_MAX
                && budget.pause(failure.is_throttled()).await;
            if !again {
                return Err(failure.give_up(operation, key, &budget, in_doubt));
            }
            tracing::debug!(operation, key, ?failure, "retrying");
        }
    }

    /// One read attempt. Returns the complete object or fails.
    async fn get_once(
        &self,
        timeout: Duration,
        path: &Path,
        options: GetOptions,
    ) -> Result<Object, Failure> {
        let read = async {
            let result = self
                .objects()
                .get_opts(path, options)
                .await
                .map_err(|error| Failure::of(&error))?;
            let meta = result.meta.clone();
            let max = self.config().object_bytes_max;
            if meta.size > max {
                return Err(Failure::Unsupported(format!(
                    "{path} has {} bytes, more than the limit of {max}",
                    meta.size
                )));
            }
            let tag = Tag::of_meta(&meta)
                .ok_or_else(|| Failure::Unsupported("the store returns no ETag".to_owned()))?;
            Ok(Object {
                body: whole_body(result.into_stream(), meta.size).await?,
                tag,
                last_modified: Timestamp::from_millis(meta.last_modified.timestamp_millis()),
            })
        };
        self.with_timeout(timeout, read).await?
    }

    /// Waits for a response, but not forever: after `timeout` the request is in doubt.
    async fn with_timeout<T>(
        &self,
        timeout: Duration,
        request: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            response = request => Ok(response),
            () = self.shared.runtime.sleep(timeout) => Err(Failure::Doubtful(format!(
                "no response within {timeout:?}"
            ))),
        }
    }
}

/// Reads the body and checks its length. A single chunk is returned without copying.
async fn whole_body(
    mut stream: impl futures_util::Stream<Item = object_store::Result<Bytes>> + Unpin,
    size: u64,
) -> Result<Bytes, Failure> {
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    let mut length = 0_u64;
    while let Some(chunk) = stream
        .try_next()
        .await
        .map_err(|error| Failure::of(&error))?
    {
        length += chunk.len() as u64;
        if length > size {
            break;
        }
        if joined.is_empty() && first.is_empty() {
            first = chunk;
        } else {
            joined.extend_from_slice(&std::mem::take(&mut first));
            joined.extend_from_slice(&chunk);
        }
    }
    if length != size {
        return Err(Failure::Torn(format!("read {length} of {size} bytes")));
    }
    Ok(if joined.is_empty() {
        first
    } else {
        joined.freeze()
    })
}

/// Converts a key to a path. Keys are used verbatim, so a key that would need normalizing is rejected.
fn key_path(key: &str) -> Result<Path, StoreError> {
    match Path::parse(key) {
        Ok(path) if path.as_ref() == key && !key.is_empty() => Ok(path),
        Ok(_) => Err(bad_key(key, "it is empty, or starts or ends with a slash")),
        Err(error) => Err(bad_key(key, &error.to_string())),
    }
}

fn bad_key(key: &str, reason: &str) -> StoreError {
    let key: String = key.chars().take(200).collect();
    let reason: String = reason.chars().take(200).collect();
    StoreError::Unsupported {
        operation: "this key",
        detail: format!("{key:?}: {reason}"),
    }
}

fn no_tag(operation: &'static str) -> StoreError {
    StoreError::Unsupported {
        operation,
        detail: "the store returns neither an ETag nor a version for writes".to_owned(),
    }
}

/// For a write, "not found" means that the bucket does not exist.
fn without_bucket(failure: Failure) -> Failure {
    match failure {
        Failure::NotFound => Failure::Denied("the bucket does not exist".to_owned()),
        other => other,
    }
}
