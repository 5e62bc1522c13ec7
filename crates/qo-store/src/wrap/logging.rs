//! A wrapper that logs each request and its duration, for stores without an HTTP layer.
//!
//! A request is logged at debug level when it completes, with its kind, key, result and duration, never its content.
//! If debug logging is disabled, nothing is measured.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tracing::{Level, debug, enabled};

use super::Operation;
use crate::runtime::Runtime;

/// A store that logs its requests.
#[derive(Debug)]
pub struct LoggingStore {
    inner: Arc<dyn ObjectStore>,
    runtime: Arc<dyn Runtime>,
}

impl LoggingStore {
    /// Logs every request to `inner`.
    pub fn new(inner: Arc<dyn ObjectStore>, runtime: Arc<dyn Runtime>) -> Self {
        Self { inner, runtime }
    }

    /// Starts measuring a request; `None` if debug logging is disabled.
    fn begin(&self, operation: Operation, path: &str) -> Option<LoggedRequest> {
        enabled!(Level::DEBUG).then(|| LoggedRequest {
            operation,
            path: path.to_owned(),
            started: self.runtime.monotonic(),
            runtime: Arc::clone(&self.runtime),
        })
    }

    fn listed(
        &self,
        prefix: Option<&Path>,
        entries: BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = prefix.map_or("", Path::as_ref);
        let Some(request) = self.begin(Operation::List, &format!("{prefix}/")) else {
            return entries;
        };
        let mut page = ListedPage {
            request,
            entries: 0,
        };
        // The page is logged when the stream is dropped, because a reader of a few entries does not read to
        // the end.
        entries
            .inspect(move |entry| page.count(entry.is_ok()))
            .boxed()
    }
}

/// A request in flight.
struct LoggedRequest {
    operation: Operation,
    path: String,
    started: Duration,
    runtime: Arc<dyn Runtime>,
}

impl LoggedRequest {
    fn end(&self, status: &str) {
        let elapsed = self.runtime.monotonic().saturating_sub(self.started);
        let elapsed_ms = format!("{:.1}", elapsed.as_secs_f64() * 1_000.0);
        let method = self.operation.name().to_ascii_uppercase();
        debug!(method, path = self.path, status, elapsed_ms, "response");
    }

    fn finished<T>(request: Option<Self>, result: Result<T>) -> Result<T> {
        if let Some(request) = request {
            request.end(status(&result));
        }
        result
    }
}

fn status<T>(result: &Result<T>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(object_store::Error::NotFound { .. }) => "not found",
        Err(object_store::Error::NotModified { .. }) => "not modified",
        Err(object_store::Error::Precondition { .. }) => "changed meanwhile",
        Err(object_store::Error::AlreadyExists { .. }) => "exists",
        Err(_) => "failed",
    }
}

/// A list that is being read.
struct ListedPage {
    request: LoggedRequest,
    entries: u64,
}

impl ListedPage {
    fn count(&mut self, is_entry: bool) {
        self.entries += u64::from(is_entry);
    }
}

impl Drop for ListedPage {
    fn drop(&mut self) {
        self.request.end(&format!("ok, {} entries", self.entries));
    }
}

impl fmt::Display for LoggingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for LoggingStore {
    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let request = self.begin(Operation::of_put(&opts.mode), path.as_ref());
        LoggedRequest::finished(request, self.inner.put_opts(path, body, opts).await)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let request = self.begin(Operation::MultipartStart, location.as_ref());
        LoggedRequest::finished(request, self.inner.put_multipart_opts(location, opts).await)
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let request = self.begin(Operation::of_get(&options), location.as_ref());
        LoggedRequest::finished(request, self.inner.get_opts(location, options).await)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let deleted = self.inner.delete_stream(locations);
        let Some(request) = self.begin(Operation::Delete, "") else {
            return deleted;
        };
        deleted
            .inspect(move |result| {
                let path = result.as_ref().map_or("", Path::as_ref);
                let each = LoggedRequest {
                    operation: Operation::Delete,
                    path: path.to_owned(),
                    started: request.started,
                    runtime: Arc::clone(&request.runtime),
                };
                each.end(status(result));
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(prefix, self.inner.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(prefix, self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let request = self.begin(Operation::List, prefix.map_or("/", Path::as_ref));
        LoggedRequest::finished(request, self.inner.list_with_delimiter(prefix).await)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let request = self.begin(Operation::Copy, to.as_ref());
        LoggedRequest::finished(request, self.inner.copy_opts(from, to, options).await)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::sync::Mutex;

    use futures_util::stream;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;
    use crate::runtime::TokioRuntime;

    /// Collects log events as text.
    #[derive(Default, Clone)]
    struct LogCollector(Arc<Mutex<Vec<String>>>);

    impl Subscriber for LogCollector {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target().ends_with("wrap::logging")
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            struct Text(String);
            impl Visit for Text {
                fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                    if field.name() != "elapsed_ms" {
                        write!(self.0, "{value:?} ").unwrap();
                    }
                }
            }
            let mut text = Text(String::new());
            event.record(&mut text);
            self.0.lock().unwrap().push(text.0);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[tokio::test]
    async fn every_request_is_logged_with_its_result_and_without_its_content() {
        let logs = LogCollector::default();
        let guard = tracing::subscriber::set_default(logs.clone());
        // Other tests may have cached the callsite as disabled.
        tracing::callsite::rebuild_interest_cache();
        let store = LoggingStore::new(Arc::new(InMemory::new()), TokioRuntime::shared());
        let key = Path::from("tasks/1");
        store.put(&key, "hidden".into()).await.unwrap();
        store.get(&key).await.unwrap();
        store.get(&Path::from("tasks/2")).await.unwrap_err();
        let found: Vec<_> = store.list(Some(&Path::from("tasks"))).collect().await;
        assert_eq!(found.len(), 1);
        let gone = stream::iter([Ok(key.clone())]).boxed();
        let _: Vec<_> = store.delete_stream(gone).collect().await;
        drop(guard);
        let logs = logs.0.lock().unwrap().clone();
        for (line, words) in logs.iter().zip([
            ["\"PUT\"", "\"tasks/1\"", "\"ok\""],
            ["\"GET\"", "\"tasks/1\"", "\"ok\""],
            ["\"GET\"", "\"tasks/2\"", "\"not found\""],
            ["\"LIST\"", "\"tasks/\"", "\"ok, 1 entries\""],
            ["\"DELETE\"", "\"tasks/1\"", "\"ok\""],
        ]) {
            assert!(words.iter().all(|word| line.contains(word)), "{line}");
            assert!(!line.contains("hidden"));
        }
        assert_eq!(logs.len(), 5, "{logs:?}");
    }
}
