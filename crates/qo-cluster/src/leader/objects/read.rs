//! Reads objects from the rows of this node.

use std::collections::VecDeque;
use std::ops::{Bound, Range};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    Attributes, Extensions, GetOptions, GetResult, GetResultPayload, ObjectMeta, Result,
};

use super::manifest::{Manifest, OBJECT, object_key};
use super::{failed, not_found};
use crate::config::CHUNK_BYTES;
use crate::leader::database::{RowList, RowReader};

/// How often a read begins again because a write replaced the object meanwhile.
const READS_MAX: usize = 100;

/// Reads objects from the rows of this node.
#[derive(Clone)]
pub(in crate::leader) struct ObjectReader(pub(in crate::leader) RowReader);

impl ObjectReader {
    pub(super) async fn manifest(&self, path: &str) -> Result<Option<Manifest>> {
        let row = self.0.row(object_key(path)).await.map_err(failed)?;
        row.map(|row| Manifest::decode(row.value).map_err(failed))
            .transpose()
    }

    pub(super) async fn get(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        for _ in 0..READS_MAX {
            let Some(manifest) = self.manifest(location.as_ref()).await? else {
                return Err(not_found(location));
            };
            let meta = manifest.meta(location.clone());
            options.check_preconditions(&meta)?;
            let range = match &options.range {
                Some(range) => range.as_range(manifest.size).map_err(failed)?,
                None => 0..manifest.size,
            };
            let wanted = if options.head { 0..0 } else { range.clone() };
            let Some(body) = self.parts(&manifest, wanted).await? else {
                // Another write has replaced the object meanwhile.
                continue;
            };
            return Ok(GetResult {
                payload: GetResultPayload::Stream(stream::once(async move { Ok(body) }).boxed()),
                meta,
                range,
                attributes: Attributes::new(),
                extensions: Extensions::new(),
            });
        }
        Err(failed(std::io::Error::other(
            "the object changes faster than it can be read",
        )))
    }

    /// A range of the bytes of an object. None if a part is not there any more.
    async fn parts(&self, manifest: &Manifest, range: Range<u64>) -> Result<Option<Bytes>> {
        let mut body = BytesMut::new();
        for (key, start) in manifest.part_keys().zip((0_u64..).step_by(CHUNK_BYTES)) {
            if start + CHUNK_BYTES as u64 <= range.start || range.end <= start {
                continue;
            }
            let Some(row) = self.0.row(key).await.map_err(failed)? else {
                return Ok(None);
            };
            let within = |at: u64| {
                let at = usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
                at.min(row.value.len())
            };
            body.extend_from_slice(&row.value[within(range.start)..within(range.end)]);
        }
        Ok(Some(body.freeze()))
    }

    /// Rows of a kind whose keys begin with a prefix, after a key.
    pub(super) fn rows_of(&self, kind: u8, prefix: &[u8], after: Option<&[u8]>) -> RowList {
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
            source: self.0.clone(),
            start,
            end: Bound::Excluded(Bytes::copy_from_slice(&[kind + 1])),
            buffer: VecDeque::new(),
            is_done: false,
        }
    }

    pub(super) fn list(
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
