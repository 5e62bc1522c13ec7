//! A memory store whose pages are touched before the measurement.
//!
//! A remote store takes objects out of this process. A memory store keeps them, so the allocator requests new pages all the time, and the
//! first access to a page costs about as much as all work of the queue on its content: a third of the time and more on a virtual machine. This
//! store copies objects into pages that were touched before and frees the original memory, as if the objects had been sent away.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    MultipartUpload, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart,
};
use qo_fixtures::{LayeredStore, StoreLayer};

/// The growth step once the touched memory is used up.
const MORE_BYTES: usize = 256 * 1024 * 1024;

/// The stored objects, and touched memory for more.
#[derive(Debug, Clone)]
pub(crate) struct TouchedLayer {
    objects: Arc<InMemory>,
    room: Arc<Mutex<BytesMut>>,
}

impl TouchedLayer {
    /// A store with this much memory. It grows beyond that, and is slow then.
    pub(crate) fn store_with_gib(gib: usize) -> LayeredStore<Self> {
        LayeredStore(Self {
            objects: Arc::default(),
            room: Arc::new(Mutex::new(touched(gib << 30))),
        })
    }

    /// A copy in touched memory.
    fn keep(&self, payload: &[PutPayload]) -> Bytes {
        let bytes = payload.iter().map(PutPayload::content_length).sum();
        let mut kept = {
            let mut room = self.room.lock().unwrap();
            if room.len() < bytes {
                eprintln!("the memory store has too little memory and is slower from here on");
                *room = touched(bytes.max(MORE_BYTES));
            }
            room.split_to(bytes)
        };
        let mut filled = 0;
        for chunk in payload.iter().flatten() {
            kept[filled..filled + chunk.len()].copy_from_slice(chunk);
            filled += chunk.len();
        }
        kept.freeze()
    }
}

fn touched(bytes: usize) -> BytesMut {
    BytesMut::from(Bytes::from(vec![1; bytes]))
}

#[async_trait]
impl StoreLayer for TouchedLayer {
    fn inner(&self) -> &dyn ObjectStore {
        self.objects.as_ref()
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let kept = self.keep(&[payload]);
        self.objects.put_opts(location, kept.into(), opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(Upload {
            store: self.clone(),
            location: location.clone(),
            parts: Vec::new(),
        }))
    }
}

#[derive(Debug)]
struct Upload {
    store: TouchedLayer,
    location: Path,
    parts: Vec<PutPayload>,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.parts.push(data);
        Box::pin(std::future::ready(Ok(())))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let parts = std::mem::take(&mut self.parts);
        let whole = self.store.keep(&parts).into();
        let objects = &self.store.objects;
        objects
            .put_opts(&self.location, whole, PutOptions::default())
            .await
    }

    async fn abort(&mut self) -> Result<()> {
        self.parts.clear();
        Ok(())
    }
}
