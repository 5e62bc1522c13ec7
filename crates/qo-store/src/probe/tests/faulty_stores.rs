//! Stores and buckets with misbehaviour that the fault wrapper does not cover.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use qo_core::Timestamp;

use super::super::*;
use crate::StoreError;
use crate::admin::{
    CorsRule, KeyedVersionList, LifecycleRule, ObjectVersion, VersionList, Versioning,
};
use crate::wrap::{FaultKind, FaultPlan, FaultStore};

/// A bucket that ignores conditions once versioning is enabled, like some servers.
#[derive(Debug)]
pub(super) struct FragileBucket {
    pub(super) store: Arc<FaultStore>,
    pub(super) versioning: Mutex<Versioning>,
    pub(super) removed: Mutex<BTreeMap<String, usize>>,
}

impl FragileBucket {
    pub(super) fn new(store: Arc<FaultStore>) -> Self {
        Self {
            store,
            versioning: Mutex::new(Versioning::Off),
            removed: Mutex::default(),
        }
    }
}

#[async_trait]
impl BucketAdmin for FragileBucket {
    async fn list_versions(&self, _key: &str, limit: usize) -> Result<VersionList, StoreError> {
        let version = |name: &str| ObjectVersion {
            version: name.to_owned(),
            last_modified: Timestamp::MIN,
            is_latest: name == "marker",
            is_delete_marker: name == "marker",
            size: 1,
            e_tag: None,
        };
        let versions = ["marker", "first"]
            .into_iter()
            .take(limit)
            .map(version)
            .collect();
        Ok(VersionList {
            versions,
            truncated: false,
        })
    }

    async fn list_versions_below(
        &self,
        _prefix: &str,
        _limit: usize,
    ) -> Result<KeyedVersionList, StoreError> {
        Ok(KeyedVersionList::default())
    }

    async fn get_version(&self, key: &str, _version: &str) -> Result<Bytes, StoreError> {
        let key = key.to_owned();
        Err(StoreError::NotFound { key })
    }

    async fn delete_version(&self, key: &str, _version: &str) -> Result<(), StoreError> {
        *self
            .removed
            .lock()
            .unwrap()
            .entry(key.to_owned())
            .or_default() += 1;
        Ok(())
    }

    async fn versioning(&self) -> Result<Versioning, StoreError> {
        Ok(*self.versioning.lock().unwrap())
    }

    async fn set_versioning(&self, versioning: Versioning) -> Result<(), StoreError> {
        let plan = match versioning {
            Versioning::On => FaultPlan::always(FaultKind::NonAtomicCondition),
            Versioning::Off | Versioning::Suspended => FaultPlan::none(),
        };
        self.store.set_plan(plan);
        *self.versioning.lock().unwrap() = versioning;
        Ok(())
    }

    async fn cors(&self) -> Result<Vec<CorsRule>, StoreError> {
        Ok(Vec::new())
    }

    async fn set_cors(&self, _rules: &[CorsRule]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn lifecycle(&self) -> Result<Vec<LifecycleRule>, StoreError> {
        Ok(Vec::new())
    }

    async fn set_lifecycle(&self, _rules: &[LifecycleRule]) -> Result<(), StoreError> {
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct SlowLock {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) latest: tokio::sync::Mutex<Option<Path>>,
    pub(super) wait: Duration,
    /// The number of contended writes that still succeed immediately.
    pub(super) lucky: AtomicU32,
}

/// An in-memory store with misbehaviour that the fault wrapper does not cover.
#[derive(Debug)]
pub(super) struct OddStore {
    pub(super) inner: Arc<InMemory>,
    /// Writes to the most recently written key wait for a lock, one after the other.
    pub(super) lock: Option<SlowLock>,
    /// Keys that contain this text appear two hours old.
    pub(super) backdated: Option<&'static str>,
    /// Ignores the conditions of reads.
    pub(super) sends_unchanged: bool,
}

impl OddStore {
    pub(super) fn new(inner: Arc<InMemory>) -> Self {
        Self {
            inner,
            lock: None,
            backdated: None,
            sends_unchanged: false,
        }
    }
}

impl fmt::Display for OddStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Odd({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for OddStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> object_store::Result<PutResult> {
        if let Some(lock) = &self.lock {
            let mut latest = lock.latest.lock().await;
            let spend = |left: u32| left.checked_sub(1);
            if latest.as_ref() == Some(location)
                && lock
                    .lucky
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend)
                    .is_err()
            {
                lock.runtime.sleep(lock.wait).await;
            }
            *latest = Some(location.clone());
        }
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(
        &self,
        location: &Path,
        mut options: GetOptions,
    ) -> object_store::Result<GetResult> {
        if self.sends_unchanged {
            options.if_none_match = None;
        }
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        let backdated = self.backdated;
        let entries = self.inner.list(prefix).map_ok(move |mut meta| {
            if backdated.is_some_and(|part| meta.location.as_ref().contains(part)) {
                meta.last_modified -= Duration::from_hours(2);
            }
            meta
        });
        entries.boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
