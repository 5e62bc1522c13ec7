//! A memory store whose memory was touched before the clock started.
//!
//! A store that is elsewhere takes what it stores out of this process. A memory store keeps it, so that the allocator asks the
//! kernel for new pages all the time, and a page that is touched for the first time costs about as much as all that the queue does
//! with it: a third of the time and more, on a virtual machine. Here objects are copied into pages that are there already, and what
//! the process had them in is free to be used again, as it would be if they had been sent away.

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

/// How much is touched at a time when there is no more.
const MORE_BYTES: usize = 256 * 1024 * 1024;

/// What is stored, and the room for more.
#[derive(Debug, Clone)]
pub(crate) struct TouchedStore {
    objects: Arc<InMemory>,
    room: Arc<Mutex<BytesMut>>,
}

impl TouchedStore {
    /// A store with room for so much. It grows if that is too little, and is slow then.
    pub(crate) fn with_gib(gib: usize) -> Self {
        Self {
            objects: Arc::default(),
            room: Arc::new(Mutex::new(touched(gib << 30))),
        }
    }

    /// A copy in memory that was touched.
    fn keep(&self, payload: &[PutPayload]) -> Bytes {
        let bytes = payload.iter().map(PutPayload::content_length).sum();
        let mut kept = {
            let mut room = self.room.lock().unwrap();
            if room.len() < bytes {
                eprintln!("the memory store was given too little: it is slower from here on");
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

impl fmt::Display for TouchedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Touched")
    }
}

#[async_trait]
impl ObjectStore for TouchedStore {
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
        _opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(Upload {
            store: self.clone(),
            location: location.clone(),
            parts: Vec::new(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.objects.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct Upload {
    store: TouchedStore,
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
