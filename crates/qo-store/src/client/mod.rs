//! The store, in exactly the words that qo needs: create, swap, put, get, page, delete.
//!
//! # Why a client of its own
//!
//! A queue stands on one question: did my conditional write happen? Between the question and the answer are networks,
//! proxies and servers that lose requests, lose answers, deliver late, deliver twice, and fail after they did the work. The
//! client turns all of that into three honest outcomes: it happened, it did not and will not, or nobody can tell yet
//! ([`StoreError::Unavailable`] with `in_doubt`). It can do so because every record carries the id of the operation that
//! wrote it (see [`authorship`]), so that the store itself is the witness.
//!
//! # From answer to action
//!
//! For [`create`](StoreClient::create) (`If-None-Match: *`) and [`swap`](StoreClient::swap) (`If-Match`). "Unsure" means
//! that an earlier try of the same operation got no definite answer.
//!
//! | answer | action | why that is right |
//! | --- | --- | --- |
//! | success | done | the condition held when the store applied it |
//! | 412, or "exists", at once | `Conflict` / `AlreadyExists`, no read | no try of ours can have made the condition fail |
//! | 404 to a swap, at once | `Conflict` | AWS says 404 where others say 412: what was expected is gone |
//! | 412, "exists" or 404 when unsure | read back | the condition may have failed because of our own first write |
//! | no answer, timeout, 5xx | read back | applied, not applied, or still on its way |
//! | 409 | read back | another write was in flight; it is neither "exists" nor a failure |
//! | 429, 503 | wait longer, send again, now unsure | by contract nothing was applied, so a read would only double the load of a store that asks for less; if the contract was broken, the condition fails and the 412 is read back |
//! | 400, 401, 403, unsupported | that error, never again | it would be the same; when unsure, it is read back first |
//!
//! Then, from what the read found:
//!
//! | stored | action | why that is right |
//! | --- | --- | --- |
//! | our operation id, as the newest | success, with the tag read | it was applied, once: a second copy of a conditional write fails its condition |
//! | our operation id, in the history | success, without a tag | it was applied, and somebody built upon it |
//! | a swap finds the expected tag, a create finds nothing | send the same bytes with the same id again | nothing was applied so far. If the first copy arrives late, it makes the second fail with 412, or fails itself; either way one is applied, and the id in it is ours |
//! | something else | `Conflict` / `AlreadyExists` | the condition can never hold again, so a late copy fails too |
//! | a swap finds nothing | `Conflict`, or in doubt where a try may have been applied | whoever deleted it may have seen our write |
//! | the read fails | read again within the budget, then in doubt | |
//!
//! The whole takes at most `budget + settle` of [`RetryConfig`] (40 s); what is still open then is reported as in doubt, and
//! the caller, who knows the operation id, can look for it later.
//!
//! Four things are asked of the callers:
//! - The body of a conditional write carries its operation id, and keeps those of earlier ones for longer than writes stay
//!   unsettled. A body that does not is never reported as lost or won by guesswork: it is in doubt.
//! - Bytes differ from one write to the next, which the record's revision sees to. Entity tags are hashes of the content, so
//!   a record that returned to its old bytes would let a late write pass `If-Match`.
//! - A key that is made by `create` is not deleted while its creation may be in flight, or the creation may be repeated.
//! - Dropping the future of a write leaves that write in doubt.
//!
//! The transport below must not repeat a conditional write by itself, or a first 412 could be the answer to its own second
//! copy. qo's does not; a proxy on the way may (nginx repeats a PUT when one of its upstreams breaks off). For such places,
//! [`ClientConfig::trust_first_refusal`] makes every refusal be read back.
//!
//! # Requests
//!
//! | operation | requests | when its answer is lost |
//! | --- | --- | --- |
//! | `create`, `swap` | 1 PUT | + 1 GET, and + 1 PUT if it had not been applied |
//! | `create`, `swap`, throttled | 1 PUT per try | + 1 GET only if a condition then fails |
//! | `put` | 1 PUT | + 1 PUT |
//! | `get`, `get_if_changed` | 1 GET | + 1 GET |
//! | `page` | 1 LIST | + 1 LIST |
//! | `delete_many` | 1 DELETE per 1,000 keys on S3 | + 1 for the keys that are left |
//!
//! `page` takes at most 1,000 keys of a stream that asks the store for pages of 1,000, and drops the stream without asking
//! for more. (Azure cannot start a listing at a key: there the pages before `after` are listed and skipped.)

mod authorship;
mod classify;
mod delete;
mod folders;
mod page;
mod retry;
mod settle;
mod tag;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt, PutPayload};
use qo_core::{OpId, Timestamp};

use crate::clock::StoreClock;
use crate::error::StoreError;
use crate::runtime::{Runtime, RuntimeExt};

pub use authorship::{Authorship, carries_operation};
pub use delete::DeleteFailures;
pub use page::{Entry, PAGE_LIMIT_MAX, Page};
pub use retry::RetryConfig;
pub use settle::Written;
pub use tag::Tag;

use classify::Failure;
use retry::Budget;
use settle::Condition;

/// Finds an operation in a stored body.
pub type Recognise = fn(body: &[u8], op: &OpId) -> Option<Authorship>;

/// What a client can be told about how to work.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// How to try again.
    pub retry: RetryConfig,
    /// How an own write is recognised in what is stored.
    pub recognise: Recognise,
    /// A larger object is not read.
    pub object_bytes_max: u64,
    /// Whether a refusal of the first try is final. Something between here and the store that repeats requests by itself
    /// can make it the answer to a second copy; where there is such a thing, say no, and each refusal costs one read more.
    pub trust_first_refusal: bool,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            retry: RetryConfig::default(),
            recognise: carries_operation,
            object_bytes_max: 256 * 1024 * 1024,
            trust_first_refusal: true,
        }
    }
}

/// An object as it was read.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its bytes.
    pub body: Bytes,
    /// Names this state of it.
    pub tag: Tag,
    /// When it was written, by the store's clock.
    pub last_modified: Timestamp,
}

/// How many short bodies in a row make an object damaged rather than a connection poor.
const TORN_READS_MAX: u32 = 3;

/// A store with qo's vocabulary. Clones share everything.
#[derive(Debug, Clone)]
pub struct StoreClient {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    objects: Arc<dyn ObjectStore>,
    clock: Arc<StoreClock>,
    runtime: Arc<dyn Runtime>,
    config: ClientConfig,
}

impl StoreClient {
    /// A client of `objects`, whose own retries must be off. `clock` is what the layer below feeds with the store's answers.
    pub fn new(
        objects: Arc<dyn ObjectStore>,
        clock: Arc<StoreClock>,
        runtime: Arc<dyn Runtime>,
        config: ClientConfig,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                objects,
                clock,
                runtime,
                config,
            }),
        }
    }

    /// The store's time, which does not go back because it gets to be known better: [`StoreClock::now`].
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now(self.shared.runtime.moment())
    }

    /// The earliest that the store's time can be: what is past by this has passed, however little is known of the store's clock.
    pub fn earliest_now(&self) -> Timestamp {
        self.shared.clock.earliest(self.shared.runtime.moment())
    }

    /// Writes an object where there is none. `body` carries `op`.
    pub async fn create(&self, key: &str, body: Bytes, op: &OpId) -> Result<Written, StoreError> {
        settle::write(self, "create", key, body, Condition::Absent, op).await
    }

    /// Replaces an object, if it still is what `tag` names. `body` carries `op`.
    pub async fn swap(
        &self,
        key: &str,
        body: Bytes,
        tag: &Tag,
        op: &OpId,
    ) -> Result<Written, StoreError> {
        settle::write(self, "swap", key, body, Condition::Unchanged(tag), op).await
    }

    /// Writes an object whatever is there. A write that was given up on may still arrive, after later ones: use it only
    /// where that does no harm.
    pub async fn put(&self, key: &str, body: Bytes) -> Result<Tag, StoreError> {
        let path = key_path(key)?;
        let payload = PutPayload::from(body);
        let result = self
            .retrying("put", key, true, |timeout| {
                let payload = payload.clone();
                let path = &path;
                async move {
                    let request = self.objects().put(path, payload);
                    match self.answer_within(timeout, request).await? {
                        Ok(result) => Ok(result),
                        Err(error) => Err(without_bucket(Failure::of(&error))),
                    }
                }
            })
            .await?;
        Tag::of_put(result).ok_or_else(|| no_tag("put"))
    }

    /// Reads an object.
    pub async fn get(&self, key: &str) -> Result<Object, StoreError> {
        let path = key_path(key)?;
        self.retrying("get", key, false, |timeout| {
            self.get_once(timeout, &path, GetOptions::default())
        })
        .await
    }

    /// Reads an object unless it still is what `tag` names.
    pub async fn get_if_changed(&self, key: &str, tag: &Tag) -> Result<Option<Object>, StoreError> {
        let path = key_path(key)?;
        let options = GetOptions::new().with_if_none_match(tag.e_tag());
        self.retrying("get_if_changed", key, false, |timeout| {
            let options = options.clone();
            let path = &path;
            async move {
                match self.get_once(timeout, path, options).await {
                    // A store that ignores the condition sends the object that the caller has.
                    Ok(object) => Ok((!object.tag.matches(tag)).then_some(object)),
                    Err(Failure::NotModified) => Ok(None),
                    Err(failure) => Err(failure),
                }
            }
        })
        .await
    }

    /// Up to `limit` objects under `prefix`, in the order of their keys, from the first one after `after`.
    ///
    /// The prefix is whole path segments: `a/b` holds `a/b/c` but neither `a/b` nor `a/bc`; the empty one holds everything.
    /// The limit is taken as at least 1 and at most [`PAGE_LIMIT_MAX`].
    ///
    /// Some stores keep folders apart and list the folder `a` before its neighbours `a-b` and `a.b`, although `a/` sorts
    /// behind them (SeaweedFS 4.47 does). A page that shows this is refused as unsupported, because a listing that goes on
    /// after its last key could miss some. Keys that are listed together must therefore not have a folder whose name, with
    /// a character before `/` behind it (such as `-` or `.`), begins the name of a neighbour.
    pub async fn page(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        page::page(self, prefix, after, limit).await
    }

    /// The names directly below `prefix` that have objects below themselves: one LIST, if there are few.
    pub async fn folders(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        folders::folders(self, prefix).await
    }

    /// Deletes objects. Those that are not there count as deleted; those that could not be deleted are named one by one.
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

    /// Sends a request that may be repeated at will, until it succeeds, cannot succeed, or the budget is used up.
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
            tracing::debug!(operation, key, ?failure, "trying again");
        }
    }

    /// One read, whole or failed.
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
                    "{path} has {} bytes, more than the {max} that a client reads",
                    meta.size
                )));
            }
            let tag = Tag::of_meta(&meta)
                .ok_or_else(|| Failure::Unsupported("the store names no ETag".to_owned()))?;
            Ok(Object {
                body: whole_body(result.into_stream(), meta.size).await?,
                tag,
                last_modified: Timestamp::from_millis(meta.last_modified.timestamp_millis()),
            })
        };
        self.answer_within(timeout, read).await?
    }

    /// Waits for an answer, but not for ever: a store that hangs gives a doubtful one.
    async fn answer_within<T>(
        &self,
        timeout: Duration,
        request: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            answer = request => Ok(answer),
            () = self.shared.runtime.sleep(timeout) => Err(Failure::Doubtful(format!(
                "no answer within {timeout:?}"
            ))),
        }
    }
}

/// The body, if it has the length that its object has. One chunk is passed on as it is, without a copy.
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
        return Err(Failure::Torn(format!(
            "read {length} bytes of an object of {size}"
        )));
    }
    Ok(if joined.is_empty() {
        first
    } else {
        joined.freeze()
    })
}

/// The path of a key. Keys are passed on as they are, so what would have to be changed is refused.
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
        detail: "the store names neither an ETag nor a version of what it wrote".to_owned(),
    }
}

/// A write finds no key to be missing, only its bucket.
fn without_bucket(failure: Failure) -> Failure {
    match failure {
        Failure::NotFound => Failure::Denied("the bucket does not exist".to_owned()),
        other => other,
    }
}
