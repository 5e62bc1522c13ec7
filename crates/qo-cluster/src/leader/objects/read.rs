//! Reads objects from the rows of this node.

use std::collections::VecDeque;
use std::ops::Bound;

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
            for (key, start) in manifest.part_keys().zip((0_u64..).step_by(CHUNK_BYTES)) {
                let part = start..start + CHUNK_BYTES as u64;
                if part.end <= range.start || range.end <= part.start {
                    continue;
                }
                let row = self.0.row(key).await.map_err(failed)?;
                // Another write may have replaced the object meanwhile.
                let bytes = row.ok_or_else(|| not_found(location))?.value;
                let within = |at: u64| {
                    let at = usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
                    at.min(bytes.len())
                };
                body.extend_from_slice(&bytes[within(range.start)..within(range.end)]);
            }
        }
        let body = body.freeze();
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::once(async move { Ok(body) }).boxed()),
            meta,
            range,
            attributes: Attributes::new(),
            extensions: Extensions::new(),
        })
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
