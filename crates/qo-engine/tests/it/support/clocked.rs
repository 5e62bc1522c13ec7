//! A store in memory whose objects carry virtual times.
//!
//! The memory store stamps objects with the machine's own clock, which stands still while virtual hours pass.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use qo_core::Timestamp;
use qo_store::world::World;

/// A store in memory, in a world.
#[derive(Debug)]
pub(crate) struct ClockedStore {
    inner: InMemory,
    world: Arc<dyn World>,
    written: Arc<Mutex<BTreeMap<Path, Timestamp>>>,
}

impl ClockedStore {
    pub(crate) fn new(world: Arc<dyn World>) -> Self {
        Self {
            inner: InMemory::new(),
            world,
            written: Arc::default(),
        }
    }

    fn stamp(written: &Mutex<BTreeMap<Path, Timestamp>>, mut meta: ObjectMeta) -> ObjectMeta {
        if let Some(at) = written.lock().unwrap().get(&meta.location) {
            let off_ms = at.as_millis() - meta.last_modified.timestamp_millis();
            let off = Duration::from_millis(off_ms.unsigned_abs());
            if off_ms >= 0 {
                meta.last_modified += off;
            } else {
                meta.last_modified -= off;
            }
        }
        meta
    }

    fn stamped(
        &self,
        metas: BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let written = Arc::clone(&self.written);
        metas
            .map(move |meta| meta.map(|meta| Self::stamp(&written, meta)))
            .boxed()
    }
}

impl fmt::Display for ClockedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClockedStore")
    }
}

#[async_trait::async_trait]
impl ObjectStore for ClockedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let result = self.inner.put_opts(location, payload, opts).await?;
        let now = self.world.now();
        self.written.lock().unwrap().insert(location.clone(), now);
        Ok(result)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let mut result = self.inner.get_opts(location, options).await?;
        result.meta = Self::stamp(&self.written, result.meta);
        Ok(result)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.stamped(self.inner.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.stamped(self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
