//! Writes objects while this node leads.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, Extensions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use qo_broker::rows::RowWrite;
use qo_engine::EngineError;
use qo_store::runtime::{Runtime, RuntimeExt};
use tokio::sync::{Mutex, oneshot, watch};

use super::manifest::{Manifest, UPLOAD, object_key, part_key, upload_key};
use super::read::ObjectReader;
use super::{failed, not_found, unsupported};
use crate::config::{CHUNK_BYTES, PAYLOAD_MAX_BYTES};
use crate::leader::database::{ClusterRows, disk};

/// How many writes to different paths can be under way at once.
const LOCKS: usize = 64;

/// Objects in the rows, of one epoch. Clones share everything.
#[derive(Clone)]
pub(crate) struct ClusterObjects {
    rows: ClusterRows,
    runtime: Arc<dyn Runtime>,
    pub(super) reader: ObjectReader,
    /// Each path has one of these.
    locks: Arc<[Mutex<()>]>,
    /// True once it is unknown whether an entry will be applied.
    doubtful: Arc<watch::Sender<bool>>,
}

impl fmt::Debug for ClusterObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterObjects")
    }
}

impl fmt::Display for ClusterObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the rows of the cluster")
    }
}

/// Whether the condition of a write holds.
fn check(mode: &PutMode, path: &Path, before: Option<&Manifest>) -> Result<()> {
    match (mode, before) {
        (PutMode::Overwrite, _) | (PutMode::Create, None) => Ok(()),
        (PutMode::Create, Some(_)) => Err(Error::AlreadyExists {
            path: path.to_string(),
            source: "there is such an object".into(),
        }),
        (PutMode::Update(expected), Some(before))
            if expected.e_tag.as_deref() == Some(&before.tag()) =>
        {
            Ok(())
        }
        (PutMode::Update(_), _) => Err(Error::Precondition {
            path: path.to_string(),
            source: "the object has changed".into(),
        }),
    }
}

impl ClusterObjects {
    pub(in crate::leader) fn new(rows: ClusterRows, runtime: Arc<dyn Runtime>) -> Self {
        Self {
            reader: ObjectReader(rows.reader.clone()),
            rows,
            runtime,
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
            doubtful: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Resolves when it is unknown whether an entry will be applied, so that the epoch must end.
    pub(in crate::leader) async fn in_doubt(&self) {
        let mut doubtful = self.doubtful.subscribe();
        // `self` owns the sender.
        let _ = doubtful.wait_for(|is_doubtful| *is_doubtful).await;
    }

    /// Proves that no other leader had taken over when this call began.
    pub(crate) async fn confirm(&self) -> std::result::Result<(), EngineError> {
        self.rows.proposer.confirm().await
    }

    fn lock_of(&self, path: &Path) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        path.as_ref().hash(&mut hasher);
        let place = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or_default();
        &self.locks[place]
    }

    async fn propose(&self, writes: &[RowWrite]) -> Result<()> {
        let proposed = self.rows.propose(writes).await;
        proposed.map_err(|error| {
            self.doubtful.send_replace(true);
            failed(error)
        })
    }

    /// Runs a step to its end, even if the caller gives up.
    async fn to_its_end<T: Send + 'static>(
        &self,
        step: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (reply, response) = oneshot::channel();
        self.runtime.spawn(Box::pin(async move {
            // The caller may have gone.
            let _ = reply.send(step.await);
        }));
        let response = response.await;
        response.unwrap_or_else(|_| Err(failed(EngineError::Closed)))
    }

    async fn put(&self, path: &Path, body: Bytes, mode: PutMode) -> Result<PutResult> {
        if body.len() as u64 > PAYLOAD_MAX_BYTES {
            return Err(failed(EngineError::PayloadTooLarge {
                field: "payload",
                size: body.len() as u64,
                limit: PAYLOAD_MAX_BYTES,
            }));
        }
        let id = self.runtime.random_u128().to_be_bytes();
        let parts: Vec<Bytes> = (0..body.len())
            .step_by(CHUNK_BYTES)
            .map(|start| body.slice(start..body.len().min(start + CHUNK_BYTES)))
            .collect();
        let manifest = Manifest {
            size: body.len() as u64,
            modified: (self.rows.now)(),
            parts: u32::try_from(parts.len()).map_err(failed)?,
            id,
        };
        let mut last = Vec::new();
        if let [part] = parts.as_slice() {
            last.push(RowWrite::put(part_key(&id, 0), part.clone()));
        } else {
            for (part, number) in parts.iter().zip(0..) {
                let mut writes = vec![RowWrite::put(part_key(&id, number), part.clone())];
                if number == 0 {
                    let count = Bytes::copy_from_slice(&manifest.parts.to_be_bytes());
                    writes.push(RowWrite::put(upload_key(&id), count));
                }
                // Nobody has compared anything yet.
                self.rows.propose(&writes).await.map_err(failed)?;
            }
            last.push(RowWrite::Delete(upload_key(&id)));
        }
        let (objects, path) = (self.clone(), path.clone());
        self.to_its_end(async move { objects.finish(&path, manifest, last, &mode).await })
            .await
    }

    /// Makes an object visible whose parts are written, if its condition holds.
    async fn finish(
        &self,
        path: &Path,
        manifest: Manifest,
        mut last: Vec<RowWrite>,
        mode: &PutMode,
    ) -> Result<PutResult> {
        let _turn = self.lock_of(path).lock().await;
        let before = self.reader.manifest(path.as_ref()).await?;
        if let Err(refused) = check(mode, path, before.as_ref()) {
            if manifest.parts > 1 {
                let mut parts: Vec<_> = manifest.part_keys().map(RowWrite::Delete).collect();
                parts.push(RowWrite::Delete(upload_key(&manifest.id)));
                self.propose(&parts).await?;
            }
            return Err(refused);
        }
        if let Some(before) = before {
            last.extend(before.part_keys().map(RowWrite::Delete));
        }
        last.push(RowWrite::put(object_key(path.as_ref()), manifest.encode()));
        self.propose(&last).await?;
        Ok(PutResult {
            e_tag: Some(manifest.tag()),
            version: None,
            extensions: Extensions::new(),
        })
    }

    pub(super) async fn delete(&self, path: Path) -> Result<Path> {
        let objects = self.clone();
        self.to_its_end(async move {
            let _turn = objects.lock_of(&path).lock().await;
            let Some(manifest) = objects.reader.manifest(path.as_ref()).await? else {
                return Err(not_found(&path));
            };
            let mut writes: Vec<RowWrite> = manifest.part_keys().map(RowWrite::Delete).collect();
            writes.push(RowWrite::Delete(object_key(path.as_ref())));
            objects.propose(&writes).await?;
            Ok(path)
        })
        .await
    }

    /// Deletes the parts of objects that an earlier leader did not finish.
    pub(in crate::leader) async fn remove_unfinished(
        &self,
    ) -> std::result::Result<(), EngineError> {
        let mut uploads = self.reader.rows_of(UPLOAD, &[], None);
        // The objects that this leader writes meanwhile are not among them.
        let mut found = Vec::new();
        while let Some(row) = uploads.next().await.map_err(|error| disk(&error))? {
            found.push(row);
        }
        for row in found {
            let mut writes = Vec::new();
            let id: Option<[u8; 16]> = row.key.get(1..).and_then(|id| id.try_into().ok());
            let count: Option<[u8; 4]> = row.value.as_ref().try_into().ok();
            if let (Some(id), Some(count)) = (id, count) {
                let parts = 0..u32::from_be_bytes(count);
                writes.extend(parts.map(|part| RowWrite::Delete(part_key(&id, part))));
            }
            writes.push(RowWrite::Delete(row.key));
            self.rows.propose(&writes).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl ObjectStore for ClusterObjects {
    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.put(path, body.into(), opts.mode).await
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(unsupported("an upload in parts"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.reader.get(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .and_then(move |path| {
                let store = store.clone();
                async move { store.delete(path).await }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.reader.list(prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.reader.list(prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        Err(unsupported("a list of folders"))
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(unsupported("a copy"))
    }
}
