//! Writes that can be applied late, twice, or without their condition.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult,
    Result,
};

use super::FaultShared;
use super::failures;
use super::kind::FaultKind;
use super::state::Fault;

/// An owned write that can be applied at any time.
#[async_trait]
pub(super) trait Write: Send + Sync + 'static {
    type Output: Send;

    /// The keys that it changes.
    fn keys(&self) -> &[Path];

    async fn apply(&self, inner: &dyn ObjectStore) -> Result<Self::Output>;
}

pub(super) struct Put {
    pub(super) location: Path,
    pub(super) payload: PutPayload,
    pub(super) options: PutOptions,
}

#[async_trait]
impl Write for Put {
    type Output = PutResult;

    fn keys(&self) -> &[Path] {
        std::slice::from_ref(&self.location)
    }

    async fn apply(&self, inner: &dyn ObjectStore) -> Result<PutResult> {
        let payload = self.payload.clone();
        let options = self.options.clone();
        inner.put_opts(&self.location, payload, options).await
    }
}

pub(super) struct Copy {
    pub(super) from: Path,
    pub(super) to: Path,
    pub(super) options: CopyOptions,
}

#[async_trait]
impl Write for Copy {
    type Output = ();

    fn keys(&self) -> &[Path] {
        std::slice::from_ref(&self.to)
    }

    async fn apply(&self, inner: &dyn ObjectStore) -> Result<()> {
        inner
            .copy_opts(&self.from, &self.to, self.options.clone())
            .await
    }
}

pub(super) struct Delete {
    pub(super) keys: Vec<Path>,
}

#[async_trait]
impl Write for Delete {
    type Output = Vec<Result<Path>>;

    fn keys(&self) -> &[Path] {
        &self.keys
    }

    async fn apply(&self, inner: &dyn ObjectStore) -> Result<Self::Output> {
        let keys = stream::iter(self.keys.clone()).map(Ok).boxed();
        Ok(inner.delete_stream(keys).collect().await)
    }
}

impl FaultShared {
    /// Applies a write as its fault allows.
    pub(super) async fn write<W: Write>(
        self: &Arc<Self>,
        write: W,
        fault: Option<Fault>,
    ) -> Result<W::Output> {
        let Some(fault) = fault else {
            return self.apply(&write).await;
        };
        match fault.kind {
            FaultKind::LostResponse | FaultKind::ErrorAfterApply => {
                // The response is lost.
                let _ = self.apply(&write).await;
                Err(failures::failure(fault.kind))
            }
            FaultKind::LateApply => {
                let delay = self
                    .plan(|plan| plan.late_apply_max)
                    .mul_f64(fault.fraction);
                let shared = Arc::clone(self);
                self.runtime.spawn(Box::pin(async move {
                    shared.runtime.sleep(delay).await;
                    let _ = shared.apply(&write).await;
                }));
                Err(failures::failure(fault.kind))
            }
            FaultKind::DuplicateApply => {
                let _ = self.apply(&write).await;
                self.apply(&write).await
            }
            FaultKind::LostRequest
            | FaultKind::Conflict
            | FaultKind::Unavailable
            | FaultKind::Crash => Err(failures::failure(fault.kind)),
            // `put` handles ignored conditions. The other kinds do not strike writes.
            _ => self.apply(&write).await,
        }
    }

    /// Applies a put. Only puts have conditions that a fault can drop.
    pub(super) async fn put(
        self: &Arc<Self>,
        mut put: Put,
        fault: Option<Fault>,
    ) -> Result<PutResult> {
        match fault.map(|fault| fault.kind) {
            Some(FaultKind::IgnoredCondition) => put.options.mode = PutMode::Overwrite,
            Some(FaultKind::NonAtomicCondition) => {
                self.check(&put).await?;
                self.runtime.sleep(self.plan(|plan| plan.check_pause)).await;
                put.options.mode = PutMode::Overwrite;
            }
            _ => {}
        }
        self.write(put, fault).await
    }

    /// Checks a put's condition at this moment.
    async fn check(&self, put: &Put) -> Result<()> {
        let path = put.location.to_string();
        let stored = match self.inner.head(&put.location).await {
            Ok(meta) => Some(meta),
            Err(Error::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        match (&put.options.mode, stored) {
            (PutMode::Overwrite, _) | (PutMode::Create, None) => Ok(()),
            (PutMode::Create, Some(_)) => Err(Error::AlreadyExists {
                path,
                source: "the object already exists".into(),
            }),
            (PutMode::Update(expected), Some(stored))
                if expected.e_tag == stored.e_tag
                    && (expected.version.is_none() || expected.version == stored.version) =>
            {
                Ok(())
            }
            (PutMode::Update(_), _) => Err(Error::Precondition {
                path,
                source: "the object has changed".into(),
            }),
        }
    }
}
