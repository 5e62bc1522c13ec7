//! The bucket of a run: in memory, in paused time, with every version of every task that was ever stored.
//!
//! Each process reaches the one [`Bucket`] through a [`ProcessLayer`] of its own. It tells the process the store's time with every reply, as
//! the `Date` of an HTTP reply does. A bucket that keeps versions shows them as objects, see [`version_keys`](qo_store::wrap::version_keys).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    ObjectMeta, ObjectStore, ObjectStoreExt, PutOptions, PutPayload, PutResult, Result,
};
use qo_check::{CallClock, StoredVersion};
use qo_core::Timestamp;
use qo_fixtures::{ClockedLayer, ClockedStore, LayeredStore, PausableRuntime, StoreLayer};
use qo_store::clock::StoreClock;
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::wrap::version_keys::{VERSIONS_PREFIX, VersionKey};

/// Numbers the events of a run.
#[derive(Debug, Default)]
pub(super) struct Ticks(AtomicU64);

impl CallClock for Ticks {
    fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(super) struct Bucket {
    objects: ClockedStore,
    runtime: Arc<PausableRuntime>,
    pub(super) ticks: Arc<Ticks>,
    versions: Mutex<BTreeMap<String, Vec<StoredVersion>>>,
    /// The stored versions of each object, oldest first, if the bucket keeps versions.
    kept: Option<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    last_number: u64,
    by_key: BTreeMap<String, Vec<KeptVersion>>,
}

/// A stored version.
#[derive(Debug, Clone)]
struct KeptVersion {
    number: u64,
    /// Its bytes; none for a delete marker.
    body: Option<Bytes>,
    meta: ObjectMeta,
}

impl Kept {
    fn add(&mut self, key: &Path, body: Option<Bytes>, at: Timestamp) {
        self.last_number += 1;
        let number = self.last_number;
        let version = VersionKey {
            key: key.to_string(),
            number,
            is_delete_marker: body.is_none(),
        };
        let meta = ObjectMeta {
            location: Path::from(version.to_key()),
            last_modified: (UNIX_EPOCH + Duration::from_millis(at.as_millis().unsigned_abs()))
                .into(),
            size: body.as_ref().map_or(0, |body| body.len() as u64),
            e_tag: Some(number.to_string()),
            version: None,
        };
        let versions = self.by_key.entry(key.to_string()).or_default();
        versions.push(KeptVersion { number, body, meta });
    }
}

impl Bucket {
    /// An empty bucket, whose time begins now.
    pub(super) fn shared() -> Arc<Self> {
        Self::new(None)
    }

    /// An empty bucket that keeps versions.
    pub(super) fn versioned() -> Arc<Self> {
        Self::new(Some(Mutex::default()))
    }

    fn new(kept: Option<Mutex<Kept>>) -> Arc<Self> {
        let runtime = Arc::new(PausableRuntime::new(0));
        Arc::new(Self {
            kept,
            objects: ClockedLayer::store(runtime.clone()),
            runtime,
            ticks: Arc::default(),
            versions: Mutex::default(),
        })
    }

    /// The runtime of another process, whose wall clock is ahead by `skew_ms`.
    pub(super) fn runtime(&self, seed: u64, skew_ms: i64) -> Arc<PausableRuntime> {
        self.runtime.beside(seed, skew_ms)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.runtime.monotonic()
    }

    /// Everything that was ever written under the keys of tasks.
    pub(super) fn versions(&self) -> BTreeMap<String, Vec<StoredVersion>> {
        self.versions.lock().unwrap().clone()
    }

    pub(super) fn keeps_versions(&self) -> bool {
        self.kept.is_some()
    }

    /// The keys of all kept versions of tasks that do not exist, and of their payloads.
    pub(super) async fn versions_left(&self) -> Vec<String> {
        let Some(kept) = &self.kept else {
            return Vec::new();
        };
        let existing = self.keys().await;
        let kept = kept.lock().unwrap();
        let purged: Vec<String> = kept
            .by_key
            .iter()
            .filter(|(key, versions)| {
                let is_task = key.starts_with("tasks/") || key.starts_with("data/");
                is_task && !versions.is_empty() && !existing.contains(key)
            })
            .map(|(key, _)| key.clone())
            .collect();
        purged
    }

    /// Removes a version. The version before it becomes current if it was the newest.
    async fn remove_version(&self, version: &VersionKey) {
        let Some(kept) = &self.kept else { return };
        let uncovered = {
            let mut kept = kept.lock().unwrap();
            let versions = kept.by_key.entry(version.key.clone()).or_default();
            let newest = versions.last().map(|version| version.number);
            versions.retain(|kept| kept.number != version.number);
            (newest == Some(version.number)).then(|| versions.last().cloned())
        };
        let path = Path::from(version.key.as_str());
        match uncovered {
            None => {}
            Some(Some(KeptVersion {
                body: Some(body), ..
            })) => {
                let put = self.objects.put(&path, body.clone().into()).await;
                put.unwrap();
                self.record(&path, Some(body));
            }
            Some(_) => {
                self.objects.delete(&path).await.unwrap();
                self.record(&path, None);
            }
        }
    }

    /// All keys that exist now.
    pub(super) async fn keys(&self) -> Vec<String> {
        let all: Vec<ObjectMeta> = self.objects.list(None).try_collect().await.unwrap();
        all.into_iter()
            .map(|meta| meta.location.to_string())
            .collect()
    }

    pub(super) async fn body(&self, key: &str) -> Option<Bytes> {
        let object = self.objects.get(&Path::from(key)).await.ok()?;
        Some(object.bytes().await.unwrap())
    }

    /// Removes an object without any process knowing.
    pub(super) async fn remove(&self, key: &str) {
        let path = Path::from(key);
        self.objects.delete(&path).await.unwrap();
        self.record(&path, None);
    }

    /// Keeps a version of what was written.
    fn keep(&self, key: &Path, body: Option<Bytes>) {
        if let Some(kept) = &self.kept {
            kept.lock().unwrap().add(key, body, self.runtime.now());
        }
    }

    fn record(&self, key: &Path, body: Option<Bytes>) {
        if !key.as_ref().starts_with("tasks/") {
            return;
        }
        let mut versions = self.versions.lock().unwrap();
        let versions = versions.entry(key.to_string()).or_default();
        let exists = versions.last().is_some_and(|last| last.body.is_some());
        if body.is_some() || exists {
            versions.push(StoredVersion {
                at: self.runtime.now(),
                tick: self.ticks.tick(),
                body,
                damaged: false,
            });
        }
    }
}

/// One process's access to the bucket.
#[derive(Debug)]
pub(super) struct ProcessLayer {
    bucket: Arc<Bucket>,
    clock: Arc<StoreClock>,
    runtime: Arc<PausableRuntime>,
}

impl ProcessLayer {
    pub(super) fn store(
        bucket: Arc<Bucket>,
        clock: Arc<StoreClock>,
        runtime: Arc<PausableRuntime>,
    ) -> LayeredStore<Self> {
        LayeredStore(Self {
            bucket,
            clock,
            runtime,
        })
    }
}

#[async_trait]
impl StoreLayer for ProcessLayer {
    fn inner(&self) -> &dyn ObjectStore {
        &self.bucket.objects
    }

    /// Reports the store's time to the process in whole seconds, as HTTP does.
    fn on_request(&self) {
        let local = self.runtime.moment();
        let date_ms = self.bucket.runtime.now().as_millis();
        let date = Timestamp::from_millis(date_ms - date_ms.rem_euclid(1_000));
        self.clock.observe(local, local, date);
    }

    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let bytes = Bytes::from(body.clone());
        let objects = &self.bucket.objects;
        let result = objects.put_opts(path, body, opts).await?;
        self.bucket.keep(path, Some(bytes.clone()));
        self.bucket.record(path, Some(bytes));
        Ok(result)
    }

    fn list(
        &self,
        prefix: Option<&Path>,
        offset: Option<&Path>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let Some(kept) = (self.bucket.kept.as_ref())
            .filter(|_| prefix.is_some_and(|prefix| prefix.as_ref().starts_with(VERSIONS_PREFIX)))
        else {
            return match offset {
                Some(offset) => self.inner().list_with_offset(prefix, offset),
                None => self.inner().list(prefix),
            };
        };
        let folder = prefix
            .map(|prefix| format!("{prefix}/"))
            .unwrap_or_default();
        let kept = kept.lock().unwrap();
        let mut found: Vec<ObjectMeta> = (kept.by_key.values().flatten())
            .map(|version| version.meta.clone())
            .filter(|meta| meta.location.as_ref().starts_with(&folder))
            .filter(|meta| offset.is_none_or(|offset| meta.location > *offset))
            .collect();
        found.sort_by(|one, other| one.location.cmp(&other.location));
        stream::iter(found.into_iter().map(Ok)).boxed()
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let bucket = Arc::clone(&self.bucket);
        locations
            .and_then(move |path| {
                let bucket = Arc::clone(&bucket);
                async move {
                    if let Some(version) = VersionKey::parse(path.as_ref()) {
                        bucket.remove_version(&version).await;
                        return Ok(path);
                    }
                    let one = stream::once(std::future::ready(Ok(path.clone()))).boxed();
                    let deleted: Vec<Path> =
                        bucket.objects.delete_stream(one).try_collect().await?;
                    if !deleted.is_empty() {
                        bucket.keep(&path, None);
                        bucket.record(&path, None);
                    }
                    Ok(path)
                }
            })
            .boxed()
    }
}
