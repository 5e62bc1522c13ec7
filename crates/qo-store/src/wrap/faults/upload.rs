//! Faults of multipart uploads.

use std::sync::Arc;

use async_trait::async_trait;
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use super::kind::FaultKind;
use super::{FaultShared, failures};
use crate::wrap::operation::Operation;

#[derive(Debug)]
pub(super) struct FaultUpload {
    inner: Box<dyn MultipartUpload>,
    shared: Arc<FaultShared>,
    location: Path,
}

impl FaultUpload {
    pub(super) fn new(
        inner: Box<dyn MultipartUpload>,
        shared: Arc<FaultShared>,
        location: Path,
    ) -> Self {
        Self {
            inner,
            shared,
            location,
        }
    }

    fn decide(&self, operation: Operation) -> Option<FaultKind> {
        let fault = self.shared.decide(operation, self.location.as_ref());
        fault.map(|fault| fault.kind)
    }
}

/// Whether the request is applied although the caller gets an error.
fn is_applied(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::LostResponse | FaultKind::ErrorAfterApply)
}

#[async_trait]
impl MultipartUpload for FaultUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let fault = self.decide(Operation::MultipartPart);
        if let Some(kind) = fault.filter(|kind| !is_applied(*kind)) {
            return Box::pin(std::future::ready(Err(failures::failure(kind))));
        }
        let part = self.inner.put_part(data);
        Box::pin(async move {
            let result = part.await;
            fault.map_or(result, |kind| Err(failures::failure(kind)))
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let fault = self.decide(Operation::MultipartComplete);
        if let Some(kind) = fault.filter(|kind| !is_applied(*kind)) {
            return Err(failures::failure(kind));
        }
        let keys = std::slice::from_ref(&self.location);
        let result = self.shared.tracked(keys, self.inner.complete()).await;
        fault.map_or(result, |kind| Err(failures::failure(kind)))
    }

    async fn abort(&mut self) -> Result<()> {
        let fault = self.decide(Operation::MultipartAbort);
        if let Some(kind) = fault.filter(|kind| !is_applied(*kind)) {
            return Err(failures::failure(kind));
        }
        let result = self.inner.abort().await;
        fault.map_or(result, |kind| Err(failures::failure(kind)))
    }
}
