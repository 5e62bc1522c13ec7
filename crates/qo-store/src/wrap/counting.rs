//! A wrapper that counts requests and bytes.
//!
//! A request is counted when it is sent, and its result when the response arrives: a request is billed even if its
//! caller gave up. A list counts one request per started page of 1,000 entries, and a delete one per started 1,000
//! keys, matching how stores bill them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

use super::PAGE;
use super::counts::{Counts, Tally};
use super::operation::{Operation, first_segment};

/// A store that counts its requests.
#[derive(Debug)]
pub struct CountingStore {
    inner: Arc<dyn ObjectStore>,
    counter: RequestCounter,
}

/// A counter of the requests of one or more stores. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct RequestCounter(Arc<Mutex<Counts>>);

impl RequestCounter {
    /// A snapshot of the counts.
    pub fn counts(&self) -> Counts {
        let counts = self.0.lock();
        counts.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, prefix: &str, operation: Operation, change: impl FnOnce(&mut Tally)) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(counts.tally(prefix, operation));
    }

    fn sent(&self, prefix: &str, operation: Operation, bytes: usize) {
        self.note(prefix, operation, |tally| {
            tally.requests += 1;
            tally.bytes_up += bytes as u64;
        });
    }

    fn finished<T>(&self, prefix: &str, operation: Operation, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.note(prefix, operation, |tally| tally.fail(error));
        }
        result
    }

    fn count_pages(
        &self,
        prefix: &str,
        mut entries: BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let counter = self.clone();
        let prefix = prefix.to_owned();
        let mut started = false;
        let mut seen = 0_usize;
        stream::poll_fn(move |context| {
            if !started {
                started = true;
                counter.sent(&prefix, Operation::List, 0);
            }
            let next = entries.poll_next_unpin(context);
            match &next {
                Poll::Ready(Some(Ok(_))) => {
                    if seen > 0 && seen.is_multiple_of(PAGE) {
                        counter.sent(&prefix, Operation::List, 0);
                    }
                    seen += 1;
                    counter.note(&prefix, Operation::List, |tally| tally.keys += 1);
                }
                Poll::Ready(Some(Err(error))) => {
                    counter.note(&prefix, Operation::List, |tally| tally.fail(error));
                }
                Poll::Ready(None) | Poll::Pending => {}
            }
            next
        })
        .boxed()
    }
}

impl CountingStore {
    /// Counts every request to `inner`.
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self::with_counter(inner, RequestCounter::default())
    }

    /// Counts every request to `inner` in a shared counter.
    pub fn with_counter(inner: Arc<dyn ObjectStore>, counter: RequestCounter) -> Self {
        Self { inner, counter }
    }

    /// A snapshot of the counts.
    pub fn counts(&self) -> Counts {
        self.counter.counts()
    }
}

impl fmt::Display for CountingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counting({})", self.inner)
    }
}

fn list_prefix(prefix: Option<&Path>) -> &str {
    prefix.map_or("/", first_segment)
}

#[async_trait]
impl ObjectStore for CountingStore {
    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let prefix = first_segment(path);
        let operation = Operation::of_put(&opts.mode);
        self.counter.sent(prefix, operation, body.content_length());
        let result = self.inner.put_opts(path, body, opts).await;
        self.counter.finished(prefix, operation, result)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let prefix = first_segment(location);
        self.counter.sent(prefix, Operation::MultipartStart, 0);
        let result = self.inner.put_multipart_opts(location, opts).await;
        let inner = self
            .counter
            .finished(prefix, Operation::MultipartStart, result)?;
        Ok(Box::new(CountingUpload {
            inner,
            counter: self.counter.clone(),
            prefix: prefix.to_owned(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let prefix = first_segment(location);
        let operation = Operation::of_get(&options);
        self.counter.sent(prefix, operation, 0);
        let result = self.inner.get_opts(location, options).await;
        let result = self.counter.finished(prefix, operation, result)?;
        if operation == Operation::Head {
            return Ok(result);
        }
        let meta = result.meta.clone();
        let range = result.range.clone();
        let attributes = result.attributes.clone();
        let extensions = result.extensions.clone();
        let counter = self.counter.clone();
        let prefix = prefix.to_owned();
        // A body is counted as it arrives, so that a dropped or truncated one counts only the bytes received.
        let body = result.into_stream().inspect(move |chunk| {
            counter.note(&prefix, operation, |tally| match chunk {
                Ok(bytes) => tally.bytes_down += bytes.len() as u64,
                Err(error) => tally.fail(error),
            });
        });
        Ok(GetResult {
            payload: GetResultPayload::Stream(body.boxed()),
            meta,
            range,
            attributes,
            extensions,
        })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let counter = self.counter.clone();
        let mut seen = 0_usize;
        // A failed result has no key, so it is counted under the prefix of the latest request.
        let requested = Arc::new(Mutex::new("/".to_owned()));
        let latest = Arc::clone(&requested);
        let locations = locations.inspect_ok(move |location| {
            let prefix = first_segment(location);
            if seen.is_multiple_of(PAGE) {
                counter.sent(prefix, Operation::Delete, 0);
                prefix.clone_into(&mut latest.lock().unwrap_or_else(PoisonError::into_inner));
            }
            seen += 1;
            counter.note(prefix, Operation::Delete, |tally| tally.keys += 1);
        });
        let counter = self.counter.clone();
        self.inner
            .delete_stream(locations.boxed())
            .inspect_err(move |error| {
                let prefix = requested.lock().unwrap_or_else(PoisonError::into_inner);
                counter.note(&prefix, Operation::Delete, |tally| tally.fail(error));
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let entries = self.inner.list(prefix);
        self.counter.count_pages(list_prefix(prefix), entries)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let entries = self.inner.list_with_offset(prefix, offset);
        self.counter.count_pages(list_prefix(prefix), entries)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let name = list_prefix(prefix);
        self.counter.sent(name, Operation::List, 0);
        let result = self.inner.list_with_delimiter(prefix).await;
        let result = self.counter.finished(name, Operation::List, result)?;
        let entries = result.objects.len() + result.common_prefixes.len();
        self.counter.note(name, Operation::List, |tally| {
            tally.keys += entries as u64;
            tally.requests += entries.div_ceil(PAGE).saturating_sub(1) as u64;
        });
        Ok(result)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let prefix = first_segment(to);
        self.counter.sent(prefix, Operation::Copy, 0);
        let result = self.inner.copy_opts(from, to, options).await;
        self.counter.finished(prefix, Operation::Copy, result)
    }
}

#[derive(Debug)]
struct CountingUpload {
    inner: Box<dyn MultipartUpload>,
    counter: RequestCounter,
    prefix: String,
}

#[async_trait]
impl MultipartUpload for CountingUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let operation = Operation::MultipartPart;
        self.counter
            .sent(&self.prefix, operation, data.content_length());
        let part = self.inner.put_part(data);
        let counter = self.counter.clone();
        let prefix = self.prefix.clone();
        Box::pin(async move { counter.finished(&prefix, operation, part.await) })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let operation = Operation::MultipartComplete;
        self.counter.sent(&self.prefix, operation, 0);
        let result = self.inner.complete().await;
        self.counter.finished(&self.prefix, operation, result)
    }

    async fn abort(&mut self) -> Result<()> {
        let operation = Operation::MultipartAbort;
        self.counter.sent(&self.prefix, operation, 0);
        let result = self.inner.abort().await;
        self.counter.finished(&self.prefix, operation, result)
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use object_store::{ObjectStoreExt, PutMode, UpdateVersion};

    use super::*;
    use crate::wrap::Prices;
    use crate::wrap::counts::OTHER_PREFIXES;

    fn counting() -> CountingStore {
        CountingStore::new(Arc::new(InMemory::new()))
    }

    async fn fill(store: &CountingStore, count: usize) -> Vec<Path> {
        let keys: Vec<_> = (0..count)
            .map(|n| Path::from(format!("tasks/{n:05}")))
            .collect();
        for key in &keys {
            store.put(key, "x".into()).await.unwrap();
        }
        keys
    }

    #[tokio::test]
    async fn counts_each_kind_and_result_separately() {
        let store = counting();
        let key = Path::from("tasks/1");
        let create = || PutOptions::from(PutMode::Create);
        let first = store
            .put_opts(&key, "12345".into(), create())
            .await
            .unwrap();
        let tag = first.e_tag.clone();
        store
            .put_opts(&key, "12345".into(), create())
            .await
            .unwrap_err();
        let stale = UpdateVersion::from(first);
        let swap = || PutOptions::from(PutMode::Update(stale.clone()));
        store
            .put_opts(&key, "1234567".into(), swap())
            .await
            .unwrap();
        store.put_opts(&key, "1".into(), swap()).await.unwrap_err();
        store.get(&key).await.unwrap().bytes().await.unwrap();
        store.head(&key).await.unwrap();
        let current = store.head(&key).await.unwrap().e_tag;
        assert_ne!(current, tag);
        let unchanged = GetOptions::new().with_if_none_match(current);
        store.get_opts(&key, unchanged).await.unwrap_err();
        store.get(&Path::from("ready/none")).await.unwrap_err();
        store.copy(&key, &Path::from("data/copy")).await.unwrap();
        let mut upload = store.put_multipart(&Path::from("data/big")).await.unwrap();
        upload.put_part("123".into()).await.unwrap();
        upload.put_part("4567".into()).await.unwrap();
        upload.complete().await.unwrap();

        let counts = store.counts();
        let tally = |requests| Tally {
            requests,
            ..Tally::default()
        };
        assert_eq!(
            counts.of("tasks", Operation::Create),
            Tally {
                bytes_up: 10,
                refused: 1,
                ..tally(2)
            }
        );
        assert_eq!(
            counts.of("tasks", Operation::Swap),
            Tally {
                bytes_up: 8,
                refused: 1,
                ..tally(2)
            }
        );
        assert_eq!(
            counts.of("tasks", Operation::Get),
            Tally {
                bytes_down: 7,
                not_modified: 1,
                ..tally(2)
            }
        );
        assert_eq!(counts.of("tasks", Operation::Head), tally(2));
        assert_eq!(
            counts.of("ready", Operation::Get),
            Tally {
                not_found: 1,
                ..tally(1)
            }
        );
        assert_eq!(counts.of("data", Operation::Copy), tally(1));
        assert_eq!(counts.of("data", Operation::MultipartStart), tally(1));
        assert_eq!(
            counts.of("data", Operation::MultipartPart),
            Tally {
                bytes_up: 7,
                ..tally(2)
            }
        );
        assert_eq!(counts.of("data", Operation::MultipartComplete), tally(1));
        assert_eq!(counts.requests(), 14);
    }

    #[tokio::test]
    async fn lists_count_by_page_and_deletes_by_batch() {
        let store = counting();
        let keys = fill(&store, 1_001).await;
        let before = store.counts();
        let listed: Vec<_> = store
            .list(Some(&Path::from("tasks")))
            .try_collect()
            .await
            .unwrap();
        assert_eq!(listed.len(), 1_001);
        let list = store.counts().since(&before).of("tasks", Operation::List);
        assert_eq!((list.requests, list.keys), (2, 1_001));

        let before = store.counts();
        store.list_with_offset(None, &keys[0]).take(5).count().await;
        assert!(store.list(Some(&Path::from("none"))).next().await.is_none());
        // A list that is never polled sends no request.
        drop(store.list(None));
        store
            .list_with_delimiter(Some(&Path::from("tasks")))
            .await
            .unwrap();
        let since = store.counts().since(&before);
        assert_eq!(since.of("/", Operation::List).requests, 1);
        assert_eq!(since.of("none", Operation::List).requests, 1);
        assert_eq!(since.of("tasks", Operation::List).requests, 2);

        let before = store.counts();
        let doomed = stream::iter(keys).map(Ok).boxed();
        assert_eq!(store.delete_stream(doomed).count().await, 1_001);
        let delete = store.counts().since(&before).of("tasks", Operation::Delete);
        assert_eq!((delete.requests, delete.keys), (2, 1_001));
    }

    #[tokio::test]
    async fn remembers_a_bounded_number_of_prefixes() {
        let store = counting();
        for n in 0..100 {
            store
                .put(&Path::from(format!("p{n:03}/k")), "x".into())
                .await
                .unwrap();
        }
        let counts = store.counts();
        assert_eq!(counts.of(OTHER_PREFIXES, Operation::Put).requests, 36);
        assert_eq!(counts.total(Operation::Put).requests, 100);
    }

    #[tokio::test]
    async fn computes_the_cost() {
        let store = counting();
        let keys = fill(&store, 1_000).await;
        for key in &keys {
            store.get(key).await.unwrap();
        }
        store.list(None).count().await;
        store
            .delete_stream(stream::iter(keys).map(Ok).boxed())
            .count()
            .await;
        let counts = store.counts();
        let near = |dollars: f64, expected: f64| (dollars - expected).abs() < 1e-12;
        assert!(near(
            counts.dollars(&Prices::default()),
            0.005 + 0.0004 + 0.000_005
        ));
        let dear = Prices {
            delete_per_1000: 1.0,
            ..Prices::default()
        };
        assert!(near(
            counts.dollars(&dear),
            0.005 + 0.0004 + 0.000_005 + 0.001
        ));
    }

    #[tokio::test]
    async fn the_table_is_aligned_and_json_round_trips() {
        let store = counting();
        fill(&store, 3).await;
        store.get(&Path::from("ready/none")).await.unwrap_err();
        let counts = store.counts();
        let table = counts.to_string();
        let expected = "\
prefix  request  requests  keys  bytes up  bytes down  refused  unmodified  not found  errors
ready   get             1     0         0           0        0           0          1       0
tasks   put             3     0         3           0        0           0          0       0
total                   4     0         3           0        0           0          1       0
";
        assert_eq!(table, expected);
        let json = serde_json::to_string(&counts).unwrap();
        assert_eq!(serde_json::from_str::<Counts>(&json).unwrap(), counts);
    }
}
