//! Large payloads and worker records as objects in the rows, replicated like everything else.
//!
//! | key | value |
//! | --- | --- |
//! | `o`, path | the size, the time of the write, the number of parts, and their id |
//! | `x`, id, position | a part of an object |
//! | `u`, id | the number of parts of an object that is being written |
//!
//! | step of a write | effect of a crash right after it |
//! | --- | --- |
//! | 1. for an object of several parts: a `u` row, and one entry for each part | parts without an object, which the next leader deletes |
//! | 2. the `o` row, without the `u` row and the parts of the object before it: **written** | none |
//!
//! All writes replace what is there. The engine needs no other kind: a payload has a key of its own, and a worker writes its own record.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use chrono::DateTime;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, Extensions, GetOptions, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result,
};
use qo_broker::rows::RowWrite;
use qo_core::Timestamp;
use qo_engine::EngineError;
use qo_store::runtime::{Runtime, RuntimeExt};

use super::database::{ClusterRows, RowList};
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::config::{CHUNK_BYTES, PAYLOAD_MAX_BYTES};

const OBJECT: u8 = b'o';
const PART: u8 = b'x';
const UPLOAD: u8 = b'u';

/// Objects in the rows.
#[derive(Clone)]
pub(super) struct ClusterObjects {
    pub(super) rows: ClusterRows,
    pub(super) runtime: Arc<dyn Runtime>,
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

/// What is known about an object.
struct Manifest {
    size: u64,
    modified: Timestamp,
    parts: u32,
    id: [u8; 16],
}

impl Manifest {
    fn encode(&self) -> Bytes {
        let mut out = Encoder::default();
        out.u64(self.size)
            .i64(self.modified.as_millis())
            .u32(self.parts)
            .raw(&self.id);
        out.finish()
    }

    fn decode(bytes: Bytes) -> std::result::Result<Self, DecodeError> {
        let mut input = Decoder::new(bytes);
        let manifest = Self {
            size: input.u64()?,
            modified: Timestamp::from_millis(input.i64()?),
            parts: input.u32()?,
            id: input.array()?,
        };
        input.end()?;
        Ok(manifest)
    }

    fn tag(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.id))
    }

    fn part_keys(&self) -> impl Iterator<Item = Bytes> + '_ {
        (0..self.parts).map(|part| part_key(&self.id, part))
    }

    fn meta(&self, location: Path) -> ObjectMeta {
        let modified = DateTime::from_timestamp_millis(self.modified.as_millis());
        ObjectMeta {
            location,
            last_modified: modified.unwrap_or_default(),
            size: self.size,
            e_tag: Some(self.tag()),
            version: None,
        }
    }
}

fn object_key(path: &str) -> Bytes {
    let mut key = Vec::with_capacity(path.len() + 1);
    key.push(OBJECT);
    key.extend_from_slice(path.as_bytes());
    Bytes::from(key)
}

fn part_key(id: &[u8; 16], part: u32) -> Bytes {
    let mut key = Vec::with_capacity(21);
    key.push(PART);
    key.extend_from_slice(id);
    key.extend_from_slice(&part.to_be_bytes());
    Bytes::from(key)
}

fn upload_key(id: &[u8; 16]) -> Bytes {
    let mut key = Vec::with_capacity(17);
    key.push(UPLOAD);
    key.extend_from_slice(id);
    Bytes::from(key)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Generic {
        store: "cluster",
        source: Box::new(error),
    }
}

fn unsupported(operation: &str) -> Error {
    Error::NotImplemented {
        operation: operation.to_owned(),
        implementer: "cluster".to_owned(),
    }
}

impl ClusterObjects {
    async fn manifest(&self, path: &str) -> Result<Option<Manifest>> {
        let row = self.rows.row(object_key(path)).await.map_err(failed)?;
        row.map(|row| Manifest::decode(row.value).map_err(failed))
            .transpose()
    }

    async fn put(&self, path: &Path, body: Bytes) -> Result<PutResult> {
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
                self.rows.propose(&writes).await.map_err(failed)?;
            }
            last.push(RowWrite::Delete(upload_key(&id)));
        }
        if let Some(before) = self.manifest(path.as_ref()).await? {
            last.extend(before.part_keys().map(RowWrite::Delete));
        }
        last.push(RowWrite::put(object_key(path.as_ref()), manifest.encode()));
        self.rows.propose(&last).await.map_err(failed)?;
        Ok(PutResult {
            e_tag: Some(manifest.tag()),
            version: None,
            extensions: Extensions::new(),
        })
    }

    async fn delete(&self, path: Path) -> Result<Path> {
        let Some(manifest) = self.manifest(path.as_ref()).await? else {
            return Err(not_found(&path));
        };
        let mut writes: Vec<RowWrite> = manifest.part_keys().map(RowWrite::Delete).collect();
        writes.push(RowWrite::Delete(object_key(path.as_ref())));
        self.rows.propose(&writes).await.map_err(failed)?;
        Ok(path)
    }

    /// Deletes the parts of objects that an earlier leader did not finish.
    pub(super) async fn remove_unfinished(&self) -> std::result::Result<(), EngineError> {
        let mut uploads = self.rows_of(UPLOAD, &[], None);
        while let Some(row) = uploads
            .next()
            .await
            .map_err(|error| super::database::disk(&error))?
        {
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

    /// Rows of a kind whose keys begin with a prefix, after a key.
    fn rows_of(&self, kind: u8, prefix: &[u8], after: Option<&[u8]>) -> RowList {
        let mut first = vec![kind];
        first.extend_from_slice(prefix);
        let start = match after {
            Some(after) => {
                let mut key = vec![kind];
                key.extend_from_slice(after);
                Bound::Excluded(Bytes::from(key.max(first)))
            }
            None => Bound::Included(Bytes::from(first)),
        };
        RowList {
            source: self.rows.clone(),
            start,
            end: Bound::Excluded(Bytes::copy_from_slice(&[kind + 1])),
            buffer: VecDeque::new(),
            is_done: false,
        }
    }

    fn list_after(
        &self,
        prefix: Option<&Path>,
        after: Option<&Path>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let folder = prefix
            .filter(|prefix| !prefix.as_ref().is_empty())
            .map(|prefix| format!("{prefix}/"))
            .unwrap_or_default();
        let after = after.map(|after| after.as_ref().as_bytes());
        let rows = self.rows_of(OBJECT, folder.as_bytes(), after);
        let listed = stream::try_unfold((rows, folder), |(mut rows, folder)| async move {
            let Some(row) = rows.next().await.map_err(failed)? else {
                return Ok(None);
            };
            let path = row
                .key
                .get(1..)
                .and_then(|key| std::str::from_utf8(key).ok());
            let Some(path) = path.filter(|path| path.starts_with(&folder)) else {
                return Ok(None);
            };
            let location = Path::parse(path).map_err(failed)?;
            let manifest = Manifest::decode(row.value).map_err(failed)?;
            Ok(Some((manifest.meta(location), (rows, folder))))
        });
        listed.boxed()
    }
}

fn not_found(path: &Path) -> Error {
    Error::NotFound {
        path: path.to_string(),
        source: "there is no such object".into(),
    }
}

#[async_trait]
impl ObjectStore for ClusterObjects {
    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        if !matches!(opts.mode, PutMode::Overwrite) {
            return Err(unsupported("a conditional write"));
        }
        self.put(path, body.into()).await
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(unsupported("an upload in parts"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(manifest) = self.manifest(location.as_ref()).await? else {
            return Err(not_found(location));
        };
        let meta = manifest.meta(location.clone());
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => range.as_range(manifest.size).map_err(failed)?,
            None => 0..manifest.size,
        };
        let mut body = BytesMut::new();
        if !options.head {
            for key in manifest.part_keys() {
                let part = self.rows.row(key).await.map_err(failed)?;
                // Another write may have replaced the object meanwhile.
                body.extend_from_slice(&part.ok_or_else(|| not_found(location))?.value);
            }
        }
        let bounds = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(body.len());
        let (start, end) = (bounds(range.start), bounds(range.end));
        let body = body.freeze().slice(start..end);
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::once(async move { Ok(body) }).boxed()),
            meta,
            range,
            attributes: Attributes::new(),
            extensions: Extensions::new(),
        })
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
        self.list_after(prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_after(prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        Err(unsupported("a list of folders"))
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(unsupported("a copy"))
    }
}
