//! Uploads in parts.
//!
//! The parts stay in memory, which costs no more than a put of the same object would, and completing is that put: atomic,
//! and one transaction. Nothing is stored before, so an upload that was aborted, forgotten or cut short by a crash leaves
//! nothing to clean up.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::BytesMut;
use object_store::path::Path;
use object_store::{
    Attributes, MultipartUpload, PutMode, PutPayload, PutResult, Result, UploadPart,
};

use super::error::SqliteError;
use super::{OBJECT_SIZE_LIMIT, SqliteStore};

/// How many parts an upload may have, as in S3.
const PARTS_MAX: usize = 10_000;

/// An upload that is under way.
#[derive(Debug)]
pub(super) struct Upload {
    store: SqliteStore,
    location: Path,
    attributes: Attributes,
    parts: Arc<Mutex<Parts>>,
}

#[derive(Debug, Default)]
struct Parts {
    /// In the order in which they were started; empty until they are awaited.
    arrived: Vec<Option<PutPayload>>,
    size: usize,
    is_over: bool,
}

impl Upload {
    pub(super) fn new(store: SqliteStore, location: Path, attributes: Attributes) -> Self {
        Self {
            store,
            location,
            attributes,
            parts: Arc::default(),
        }
    }
}

fn lock(parts: &Mutex<Parts>) -> MutexGuard<'_, Parts> {
    parts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        // The place is taken now and filled when the part is awaited, in whatever order that happens.
        let place = {
            let mut parts = lock(&self.parts);
            parts.arrived.push(None);
            parts.arrived.len() - 1
        };
        let parts = Arc::clone(&self.parts);
        Box::pin(async move {
            let mut parts = lock(&parts);
            if parts.is_over {
                return Err(SqliteError::UploadOver.into());
            }
            let size = parts.size.saturating_add(data.content_length());
            if size > OBJECT_SIZE_LIMIT {
                return Err(SqliteError::TooLarge { size }.into());
            }
            if place >= PARTS_MAX {
                return Err(SqliteError::Other {
                    detail: format!("an upload has at most {PARTS_MAX} parts"),
                }
                .into());
            }
            parts.size = size;
            if let Some(slot) = parts.arrived.get_mut(place) {
                *slot = Some(data);
            }
            Ok(())
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let body = {
            let mut parts = lock(&self.parts);
            if parts.is_over {
                return Err(SqliteError::UploadOver.into());
            }
            let mut body = BytesMut::with_capacity(parts.size);
            for (index, part) in parts.arrived.iter().enumerate() {
                let Some(part) = part else {
                    return Err(SqliteError::Other {
                        detail: format!("part {index} of the upload has not arrived"),
                    }
                    .into());
                };
                for piece in part {
                    body.extend_from_slice(piece);
                }
            }
            // The parts are kept until the write is durable, so that a failed completion can be tried again.
            parts.is_over = true;
            body.freeze()
        };
        let put = self
            .store
            .put_checked(&self.location, body, &self.attributes, PutMode::Overwrite)
            .await;
        let mut parts = lock(&self.parts);
        if put.is_ok() {
            parts.arrived = Vec::new();
        } else {
            parts.is_over = false;
        }
        put
    }

    async fn abort(&mut self) -> Result<()> {
        *lock(&self.parts) = Parts {
            is_over: true,
            ..Parts::default()
        };
        Ok(())
    }
}
