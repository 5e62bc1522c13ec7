//! The bucket of a run: the memory store, in virtual time, with a perfect memory of every record that was ever in it.
//!
//! Each process has a [`Front`] of its own to the one [`Bucket`]. It tells the process the store's time with every answer, as
//! the `Date` of an HTTP answer does.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use qo_core::Timestamp;
use qo_store::clock::StoreClock;
use qo_store::runtime::RuntimeExt;

use super::runtime::{TrueClock, VirtualRuntime};

/// What was done to one key at one time.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) at: Timestamp,
    /// Nothing, for a deletion.
    pub(super) body: Option<Bytes>,
}

#[derive(Debug)]
pub(super) struct Bucket {
    memory: InMemory,
    clock: TrueClock,
    written_at: Mutex<BTreeMap<Path, Timestamp>>,
    records: Mutex<BTreeMap<String, Vec<Written>>>,
}

impl Bucket {
    pub(super) fn shared(clock: TrueClock) -> Arc<Self> {
        Arc::new(Self {
            memory: InMemory::new(),
            clock,
            written_at: Mutex::default(),
            records: Mutex::default(),
        })
    }

    pub(super) fn clock(&self) -> TrueClock {
        self.clock
    }

    /// Everything that ever happened to the records of tasks.
    pub(super) fn records(&self) -> BTreeMap<String, Vec<Written>> {
        self.records.lock().unwrap().clone()
    }

    /// All keys that are there now.
    pub(super) async fn keys(&self) -> Vec<String> {
        let all: Vec<ObjectMeta> = self.memory.list(None).try_collect().await.unwrap();
        all.into_iter()
            .map(|meta| meta.location.to_string())
            .collect()
    }

    pub(super) async fn body(&self, key: &str) -> Option<Bytes> {
        let found = self.memory.get(&Path::from(key)).await.ok()?;
        Some(found.bytes().await.unwrap())
    }

    /// Removes an object behind everybody's back.
    pub(super) async fn remove(&self, key: &str) {
        let path = Path::from(key);
        self.memory.delete(&path).await.unwrap();
        self.note(&path, None);
    }

    fn note(&self, key: &Path, body: Option<Bytes>) {
        let at = self.clock.now();
        let mut written_at = self.written_at.lock().unwrap();
        if body.is_some() {
            written_at.insert(key.clone(), at);
        } else if written_at.remove(key).is_none() {
            // Nothing was there.
            return;
        }
        if key.as_ref().starts_with("tasks/") {
            let mut records = self.records.lock().unwrap();
            let versions = records.entry(key.to_string()).or_default();
            versions.push(Written { at, body });
        }
    }

    fn dated(&self, mut meta: ObjectMeta) -> ObjectMeta {
        if let Some(at) = self.written_at.lock().unwrap().get(&meta.location) {
            let since_1970 = Duration::from_millis(at.as_millis().unsigned_abs());
            meta.last_modified = (UNIX_EPOCH + since_1970).into();
        }
        meta
    }
}

/// One process's way to the bucket.
#[derive(Debug)]
pub(super) struct Front {
    bucket: Arc<Bucket>,
    clock: Arc<StoreClock>,
    runtime: Arc<VirtualRuntime>,
}

impl Front {
    pub(super) fn new(
        bucket: Arc<Bucket>,
        clock: Arc<StoreClock>,
        runtime: Arc<VirtualRuntime>,
    ) -> Self {
        Self {
            bucket,
            clock,
            runtime,
        }
    }

    /// Tells the process what time it is at the store, in whole seconds, as HTTP does.
    fn observe(&self) {
        let local = self.runtime.moment();
        let date_ms = self.bucket.clock.now().as_millis();
        let date = Timestamp::from_millis(date_ms - date_ms.rem_euclid(1_000));
        self.clock.observe(local, local, date);
    }
}

impl fmt::Display for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Front")
    }
}

#[async_trait]
impl ObjectStore for Front {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.observe();
        let body = Bytes::from(payload.clone());
        let result = self.bucket.memory.put_opts(location, payload, opts).await?;
        self.bucket.note(location, Some(body));
        Ok(result)
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(Error::NotImplemented {
            operation: "put_multipart".to_owned(),
            implementer: self.to_string(),
        })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.observe();
        let mut result = self.bucket.memory.get_opts(location, options).await?;
        result.meta = self.bucket.dated(result.meta);
        Ok(result)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.observe();
        let bucket = Arc::clone(&self.bucket);
        self.bucket
            .memory
            .delete_stream(locations)
            .inspect_ok(move |path| bucket.note(path, None))
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.observe();
        let bucket = Arc::clone(&self.bucket);
        self.bucket
            .memory
            .list(prefix)
            .map_ok(move |meta| bucket.dated(meta))
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.observe();
        let mut result = self.bucket.memory.list_with_delimiter(prefix).await?;
        let objects = std::mem::take(&mut result.objects);
        result.objects = objects
            .into_iter()
            .map(|meta| self.bucket.dated(meta))
            .collect();
        Ok(result)
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(Error::NotImplemented {
            operation: "copy".to_owned(),
            implementer: self.to_string(),
        })
    }
}
