//! Multipart uploads.
//!
//! The parts stay in memory, which costs no more than a put of the same object. Completing the upload is that put:
//! one atomic transaction. Nothing is stored before, so an upload that is aborted, abandoned or interrupted by a
//! crash needs no cleanup.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::BytesMut;
use object_store::path::Path;
use object_store::{
    Attributes, MultipartUpload, PutMode, PutPayload, PutResult, Result, UploadPart,
};

use super::error::SqliteError;
use super::{OBJECT_SIZE_LIMIT, SqliteStore};

/// The maximum number of parts, as in S3.
const PARTS_MAX: usize = 10_000;

/// An upload in progress.
#[derive(Debug)]
pub(super) struct Upload {
    store: SqliteStore,
    location: Path,
    attributes: Attributes,
    parts: Arc<Mutex<Parts>>,
}

#[derive(Debug, Default)]
struct Parts {
    /// In the order in which they were started; `None` until awaited.
    arrived: Vec<Option<PutPayload>>,
    size: usize,
    is_finished: bool,
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
        // The slot is reserved now and filled when the part is awaited, in any order.
        let index = {
            let mut parts = lock(&self.parts);
            parts.arrived.push(None);
            parts.arrived.len() - 1
        };
        let parts = Arc::clone(&self.parts);
        Box::pin(async move {
            let mut parts = lock(&parts);
            if parts.is_finished {
                return Err(SqliteError::UploadFinished.into());
            }
            let size = parts.size.saturating_add(data.content_length());
            if size > OBJECT_SIZE_LIMIT {
                return Err(SqliteError::TooLarge { size }.into());
            }
            if index >= PARTS_MAX {
                return Err(SqliteError::Other {
                    detail: format!("an upload has at most {PARTS_MAX} parts"),
                }
                .into());
            }
            parts.size = size;
            if let Some(slot) = parts.arrived.get_mut(index) {
                *slot = Some(data);
            }
            Ok(())
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let body = {
            let mut parts = lock(&self.parts);
            if parts.is_finished {
                return Err(SqliteError::UploadFinished.into());
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
            // The parts are kept until the write is durable, so that a failed completion can be retried.
            parts.is_finished = true;
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
            parts.is_finished = false;
        }
        put
    }

    async fn abort(&mut self) -> Result<()> {
        *lock(&self.parts) = Parts {
            is_finished: true,
            ..Parts::default()
        };
        Ok(())
    }
}
