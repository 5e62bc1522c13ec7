//! The bucket of a run: in memory, in paused time, with every version of every task that was ever stored.
//!
//! Each process reaches the one [`Bucket`] through a [`ProcessLayer`] of its own. It tells the process the store's time with every reply, as
//! the `Date` of an HTTP reply does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    ObjectMeta, ObjectStore, ObjectStoreExt, PutOptions, PutPayload, PutResult, Result,
};
use qo_check::{CallClock, StoredVersion};
use qo_core::Timestamp;
use qo_fixtures::{ClockedLayer, ClockedStore, LayeredStore, PausableRuntime, StoreLayer};
use qo_store::clock::StoreClock;
use qo_store::runtime::{Runtime, RuntimeExt};

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
}

impl Bucket {
    /// An empty bucket, whose time begins now.
    pub(super) fn shared() -> Arc<Self> {
        let runtime = Arc::new(PausableRuntime::new(0));
        Arc::new(Self {
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
        self.bucket.record(path, Some(bytes));
        Ok(result)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let bucket = Arc::clone(&self.bucket);
        self.bucket
            .objects
            .delete_stream(locations)
            .inspect_ok(move |path| bucket.record(path, None))
            .boxed()
    }
}
