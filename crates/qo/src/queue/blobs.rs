//! The blobs of a queue, and the tasks that refer to them.

use std::sync::Arc;

use qo_blob::{BlobAddress, BlobError, BlobStore, GcOptions, GcReport};
use qo_engine::api::{SubmitRequest, Submitted};

use super::Queue;
use crate::encryption::EncryptionError;
use crate::error::Error;

impl Queue {
    /// The same queue with these blobs.
    #[must_use]
    pub fn with_blobs(mut self, blobs: Arc<dyn BlobStore>) -> Self {
        self.blobs = Some(blobs);
        self
    }

    /// The blobs of the queue: bytes that are stored by content, next to the tasks that refer to them. Fails if the queue is on an
    /// engine that was given none.
    pub fn blobs(&self) -> Result<Arc<dyn BlobStore>, Error> {
        self.blobs.clone().ok_or(Error::NoBlobs)
    }

    /// Submits a task that refers to these blobs, so that no garbage collection takes one of them before it sees the task. Fails if a
    /// blob is missing, and on a queue with encryption.
    pub async fn submit_with_blobs(
        &self,
        request: SubmitRequest,
        addresses: &[BlobAddress],
    ) -> Result<Submitted, Error> {
        let blobs = self.blobs()?;
        if !self.encryption_keys().is_empty() {
            return Err(EncryptionError::RefersToBlobs.into());
        }
        let engine = self.engine.as_ref();
        let runtime = self.runtime.as_ref();
        let submitted =
            qo_blob::submit_with_blobs(engine, blobs.as_ref(), runtime, request, addresses);
        match submitted.await {
            Ok(submitted) => Ok(submitted),
            Err(BlobError::Engine(error)) => Err(error.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Collects the blobs to which no task refers ([`crate::blob::gc`]).
    pub async fn gc_blobs(&self, options: &GcOptions) -> Result<GcReport, Error> {
        Ok(self.blobs()?.gc(self.engine.as_ref(), options).await?)
    }
}
