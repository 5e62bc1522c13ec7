//! The requests of one probe: counted, time-limited, and retried only if a retry cannot hide an incorrect response.
//!
//! Reads, lists and deletes are retried after a 5xx or a missing response. Writes are not: after a retry, the first
//! attempt could cause the refusal, and a late first attempt could undo later writes. The caller gets the unclear
//! response and starts over with a new key.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, ObjectMeta, ObjectStore, PutMode, PutResult, Result, UpdateVersion,
};

use super::{PROBE_PREFIX, ProbeError};
use crate::admin::BucketAdmin;
use crate::response::{self, ResponseError};
use crate::runtime::{BoxFuture, Runtime, RuntimeExt};

/// The maximum number of attempts of a retried request.
const ATTEMPTS_MAX: u32 = 5;

/// The delay before the second attempt. It doubles with each attempt.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The maximum number of entries read from a list.
const LIST_MAX: usize = 1_000;

/// The maximum length of a store's message.
const DETAIL_CHARS_MAX: usize = 200;

/// The response to a write.
#[derive(Debug)]
pub(super) enum WriteReply {
    /// It was applied; this is the new tag.
    Done(UpdateVersion),
    /// Its condition did not hold.
    Refused,
    /// The object or the bucket does not exist.
    Missing,
    /// It may have been applied or not: no response, a server error, or "try again".
    Unclear(String),
    /// The store does not support such writes.
    Unsupported(String),
}

/// An object as read.
pub(super) struct ProbedObject {
    pub(super) body: Bytes,
    pub(super) meta: ObjectMeta,
}

pub(super) struct Session<'a> {
    objects: &'a Arc<dyn ObjectStore>,
    pub(super) admin: Option<&'a dyn BucketAdmin>,
    pub(super) runtime: &'a dyn Runtime,
    pub(super) directory: Path,
    pub(super) budget: Duration,
    started: Duration,
    requests: Arc<AtomicU64>,
    timed: AtomicU64,
    timed_micros: AtomicU64,
    keys: Mutex<BTreeSet<Path>>,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        objects: &'a Arc<dyn ObjectStore>,
        admin: Option<&'a dyn BucketAdmin>,
        runtime: &'a dyn Runtime,
        budget: Duration,
    ) -> Self {
        let name = format!("{:032x}", runtime.random_u128());
        Self {
            objects,
            admin,
            runtime,
            directory: Path::from_iter([PROBE_PREFIX, &name]),
            budget,
            started: runtime.monotonic(),
            requests: Arc::default(),
            timed: AtomicU64::new(0),
            timed_micros: AtomicU64::new(0),
            keys: Mutex::default(),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.runtime.monotonic().saturating_sub(self.started)
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The average duration of a request outside of races.
    pub(super) fn typical(&self) -> Duration {
        let timed = self.timed.load(Ordering::Relaxed).max(1);
        Duration::from_micros(self.timed_micros.load(Ordering::Relaxed) / timed)
    }

    /// A key of this probe, recorded for the cleanup.
    pub(super) fn key(&self, name: &str) -> Path {
        let key = Path::from(format!("{}/{name}", self.directory));
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.insert(key.clone());
        key
    }

    /// Every key that this probe may have written.
    pub(super) fn keys(&self) -> Vec<Path> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.iter().cloned().collect()
    }

    /// Sends one write without retries.
    pub(super) async fn write(
        &self,
        key: &Path,
        body: Bytes,
        mode: PutMode,
    ) -> Result<WriteReply, ProbeError> {
        let request = self.objects.put_opts(key, body.into(), mode.into());
        classify(self.once(request).await)
    }

    /// The same write as an owned future that can run concurrently, with a time limit.
    pub(super) fn detached_write(
        &self,
        key: Path,
        body: Bytes,
        mode: PutMode,
        limit: Duration,
    ) -> impl Future<Output = Result<PutResult>> + Send + 'static {
        let objects = Arc::clone(self.objects);
        let requests = Arc::clone(&self.requests);
        let limit = self.runtime.sleep(limit);
        async move {
            requests.fetch_add(1, Ordering::Relaxed);
            within(limit, objects.put_opts(&key, body.into(), mode.into())).await
        }
    }

    /// An unconditional write that is safe to apply twice or late.
    pub(super) async fn put(&self, key: &Path, body: Bytes) -> Result<(), ProbeError> {
        let put = || {
            let body = body.clone().into();
            self.objects.put_opts(key, body, PutMode::Overwrite.into())
        };
        let result = self.retried(put).await;
        result.map_err(|error| ProbeError::store("writing an object", &error))?;
        Ok(())
    }

    /// Reads an object; `None` if it does not exist.
    pub(super) async fn read(&self, key: &Path) -> Result<Option<ProbedObject>, ProbeError> {
        match self.read_if(key, &GetOptions::default()).await {
            Ok(stored) => Ok(Some(stored)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(ProbeError::store("reading an object", &error)),
        }
    }

    pub(super) async fn read_if(&self, key: &Path, options: &GetOptions) -> Result<ProbedObject> {
        let get = || async {
            let response = self.objects.get_opts(key, options.clone()).await?;
            let meta = response.meta.clone();
            if meta.size > super::stored_report::REPORT_BYTES_MAX {
                // The probe writes nothing this large, so the object is wrong and need not be read.
                let body = Bytes::new();
                return Ok(ProbedObject { body, meta });
            }
            let body = response.bytes().await?;
            if body.len() as u64 != meta.size {
                // The connection failed, which says nothing about the stored object.
                return Err(no_response("the body ended early"));
            }
            Ok(ProbedObject { body, meta })
        };
        self.retried(get).await
    }

    /// Lists a prefix, up to 1,000 entries.
    pub(super) async fn list(&self, prefix: &Path) -> Result<Vec<ObjectMeta>, ProbeError> {
        let list = || self.objects.list(Some(prefix)).take(LIST_MAX).try_collect();
        let listed = self.retried(list).await;
        listed.map_err(|error| ProbeError::store("listing objects", &error))
    }

    /// Deletes keys in one batch. Missing keys are not an error, although some stores report them as one.
    pub(super) async fn delete(&self, keys: &[Path]) -> Result<()> {
        let delete = || async {
            let keys = stream::iter(keys.to_vec()).map(Ok).boxed();
            let mut results = self.objects.delete_stream(keys);
            while let Some(result) = results.next().await {
                match result {
                    Ok(_) | Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        self.retried(delete).await
    }

    async fn once<T>(&self, request: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let sent = self.runtime.monotonic();
        let response = within(self.runtime.sleep(self.budget), request).await;
        let took = self.runtime.monotonic().saturating_sub(sent);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.timed.fetch_add(1, Ordering::Relaxed);
        self.timed_micros.fetch_add(micros, Ordering::Relaxed);
        response
    }

    async fn retried<T, R>(&self, request: impl Fn() -> R + Send + Sync) -> Result<T>
    where
        T: Send,
        R: Future<Output = Result<T>> + Send,
    {
        let mut delay = RETRY_DELAY;
        for _ in 1..ATTEMPTS_MAX {
            match self.once(request()).await {
                Err(error) if is_transient(&error) => {}
                settled => return settled,
            }
            self.runtime.sleep(delay).await;
            delay *= 2;
        }
        self.once(request()).await
    }
}

/// The response, or an error after the time limit.
async fn within<T>(
    limit: BoxFuture<()>,
    request: impl Future<Output = Result<T>> + Send,
) -> Result<T> {
    match select(pin!(request), limit).await {
        Either::Left((response, _)) => response,
        Either::Right(((), _)) => Err(no_response("the time limit was exceeded")),
    }
}

fn no_response(detail: &str) -> Error {
    let detail = detail.to_owned();
    Error::Generic {
        store: "probe",
        source: Box::new(ResponseError::NoResponse { detail }),
    }
}

/// Whether a retry may succeed.
fn is_transient(error: &Error) -> bool {
    match response::find(error) {
        Some(ResponseError::NoResponse { .. }) => true,
        Some(ResponseError::Status { status, .. }) => is_transient_status(*status),
        None => matches!(error, Error::Generic { .. } | Error::JoinError { .. }),
    }
}

/// Whether the credentials lack a permission.
pub(super) fn is_denied(error: &Error) -> bool {
    if let Some(ResponseError::Status { status, .. }) = response::find(error) {
        return matches!(status, 401 | 403);
    }
    match error {
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => true,
        // A batch delete succeeds as a whole and reports the failure of each key in its body.
        Error::Generic { .. } => describe(error).contains("AccessDenied"),
        _ => false,
    }
}

fn is_transient_status(status: u16) -> bool {
    matches!(status, 408 | 409 | 429 | 500 | 502..=599)
}

/// Classifies the response to a write.
pub(super) fn classify(result: Result<PutResult>) -> Result<WriteReply, ProbeError> {
    let error = match result {
        Ok(done) => return Ok(WriteReply::Done(done.into())),
        Err(error) => error,
    };
    let denied = || ProbeError::store("writing an object", &error);
    if let Some(failed) = response::find(&error) {
        return match failed {
            ResponseError::NoResponse { .. } => Ok(WriteReply::Unclear(describe(&error))),
            ResponseError::Status { status: 412, .. } => Ok(WriteReply::Refused),
            // Azure returns 409 for a create of an existing blob, others for a lost race. Their codes
            // differ.
            ResponseError::Status {
                status: 409, code, ..
            } if matches!(error, Error::AlreadyExists { .. })
                && !matches!(
                    code.as_deref(),
                    Some("ConditionalRequestConflict" | "OperationAborted")
                ) =>
            {
                Ok(WriteReply::Refused)
            }
            ResponseError::Status { status: 404, .. } => Ok(WriteReply::Missing),
            ResponseError::Status {
                status: 401 | 403, ..
            } => Err(denied()),
            ResponseError::Status { status, .. } if is_transient_status(*status) => {
                Ok(WriteReply::Unclear(describe(&error)))
            }
            ResponseError::Status { .. } => Ok(WriteReply::Unsupported(describe(&error))),
        };
    }
    match error {
        Error::AlreadyExists { .. } | Error::Precondition { .. } => Ok(WriteReply::Refused),
        Error::NotFound { .. } => Ok(WriteReply::Missing),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Err(denied()),
        Error::Generic { .. } | Error::JoinError { .. } => {
            Ok(WriteReply::Unclear(describe(&error)))
        }
        _ => Ok(WriteReply::Unsupported(describe(&error))),
    }
}

/// The store's message, without the query of a URL, which may contain a signature.
pub(super) fn describe(error: &Error) -> String {
    let words = match response::find(error) {
        Some(failed) => failed.to_string(),
        None => error.to_string(),
    };
    let unsigned = words.split('?').next().unwrap_or_default();
    unsigned.chars().take(DETAIL_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, code: &str) -> ResponseError {
        ResponseError::Status {
            status,
            code: Some(code.to_owned()),
            message: "words".to_owned(),
        }
    }

    fn generic(source: ResponseError) -> Error {
        Error::Generic {
            store: "test",
            source: Box::new(source),
        }
    }

    #[test]
    fn responses_are_classified() {
        let unclear = |error| matches!(classify(Err(error)), Ok(WriteReply::Unclear(_)));
        for (number, code) in [
            (409, "ConditionalRequestConflict"),
            (429, "SlowDown"),
            (500, "InternalError"),
            (503, "SlowDown"),
        ] {
            assert!(unclear(generic(status(number, code))), "{number}");
        }
        let exists = |code| Error::AlreadyExists {
            path: "k".to_owned(),
            source: Box::new(status(409, code)),
        };
        assert!(unclear(exists("ConditionalRequestConflict")));
        let blob = classify(Err(exists("BlobAlreadyExists")));
        assert!(matches!(blob, Ok(WriteReply::Refused)));
        let refused = classify(Err(generic(status(412, "PreconditionFailed"))));
        assert!(matches!(refused, Ok(WriteReply::Refused)));
        let unsupported = classify(Err(generic(status(501, "NotImplemented"))));
        assert!(matches!(unsupported, Ok(WriteReply::Unsupported(_))));
        assert!(classify(Err(generic(status(403, "AccessDenied")))).is_err());
    }

    #[test]
    fn a_signature_in_a_url_is_removed() {
        let error = Error::Generic {
            store: "test",
            source: "cannot reach https://host/key?sig=secret".into(),
        };
        assert!(!describe(&error).contains("secret"));
    }
}
