//! Faults of writes in parts.

use std::sync::Arc;

use async_trait::async_trait;
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use super::kind::FaultKind;
use super::{Shared, answers};
use crate::wrap::operation::Operation;

#[derive(Debug)]
pub(super) struct FaultUpload {
    inner: Box<dyn MultipartUpload>,
    shared: Arc<Shared>,
    location: Path,
}

impl FaultUpload {
    pub(super) fn new(
        inner: Box<dyn MultipartUpload>,
        shared: Arc<Shared>,
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

/// Whether the request is applied although its caller is told otherwise.
fn is_applied(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::LostAnswer | FaultKind::ErrorAfterApply)
}

#[async_trait]
impl MultipartUpload for FaultUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let fault = self.decide(Operation::MultipartPart);
        if let Some(kind) = fault.filter(|kind| !is_applied(*kind)) {
            return Box::pin(std::future::ready(Err(answers::failure(kind))));
        }
        let part = self.inner.put_part(data);
        Box::pin(async move {
            let answer = part.await;
            fault.map_or(answer, |kind| Err(answers::failure(kind)))
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let fault = self.decide(Operation::MultipartComplete);
        if let Some(kind) = fault.filter(|kind| !is_applied(*kind)) {
            return Err(answers::failure(kind));
        }
        let keys = std::slice::from_ref(&self.location);
        let answer = self.shared.tracked(keys, self.inner.complete()).await;
        fault.map_or(answer, |kind| Err(answers::failure(kind)))
    }

    async fn abort(&mut self) -> Result<()> {
        let fault = self.decide(Operation::MultipartAbort);
        if let Some(kind) = fault.filter(|kind| !is_applied(*kind)) {
            return Err(answers::failure(kind));
        }
        let answer = self.inner.abort().await;
        fault.map_or(answer, |kind| Err(answers::failure(kind)))
    }
}
