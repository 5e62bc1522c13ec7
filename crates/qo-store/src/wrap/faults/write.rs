//! Writes that can be done late, twice, or without their condition.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult,
    Result,
};

use super::Shared;
use super::answers;
use super::kind::FaultKind;
use super::state::Fault;

/// A write with all that it needs, so that it can be done at any time.
#[async_trait]
pub(super) trait Write: Send + Sync + 'static {
    type Answer: Send;

    /// The keys that it changes.
    fn keys(&self) -> &[Path];

    async fn apply(&self, inner: &dyn ObjectStore) -> Result<Self::Answer>;
}

pub(super) struct Put {
    pub(super) location: Path,
    pub(super) payload: PutPayload,
    pub(super) options: PutOptions,
}

#[async_trait]
impl Write for Put {
    type Answer = PutResult;

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
    type Answer = ();

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
    type Answer = Vec<Result<Path>>;

    fn keys(&self) -> &[Path] {
        &self.keys
    }

    async fn apply(&self, inner: &dyn ObjectStore) -> Result<Self::Answer> {
        let keys = stream::iter(self.keys.clone()).map(Ok).boxed();
        Ok(inner.delete_stream(keys).collect().await)
    }
}

impl Shared {
    /// Does a write, or what the fault leaves of it.
    pub(super) async fn write<W: Write>(
        self: &Arc<Self>,
        write: W,
        fault: Option<Fault>,
    ) -> Result<W::Answer> {
        let Some(fault) = fault else {
            return self.apply(&write).await;
        };
        match fault.kind {
            FaultKind::LostAnswer | FaultKind::ErrorAfterApply => {
                // What the store answered is exactly what nobody gets to know.
                let _ = self.apply(&write).await;
                Err(answers::failure(fault.kind))
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
                Err(answers::failure(fault.kind))
            }
            FaultKind::DuplicateApply => {
                let _ = self.apply(&write).await;
                self.apply(&write).await
            }
            FaultKind::LostRequest
            | FaultKind::Conflict
            | FaultKind::Unavailable
            | FaultKind::Crash => Err(answers::failure(fault.kind)),
            // `put` handles ignored conditions. The other kinds do not strike writes.
            _ => self.apply(&write).await,
        }
    }

    /// A put, which alone can also lose its condition.
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

    /// Whether a put's condition holds at this moment.
    async fn check(&self, put: &Put) -> Result<()> {
        let path = put.location.to_string();
        let found = match self.inner.head(&put.location).await {
            Ok(meta) => Some(meta),
            Err(Error::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        match (&put.options.mode, found) {
            (PutMode::Overwrite, _) | (PutMode::Create, None) => Ok(()),
            (PutMode::Create, Some(_)) => Err(Error::AlreadyExists {
                path,
                source: "there is an object already".into(),
            }),
            (PutMode::Update(expected), Some(found))
                if expected.e_tag == found.e_tag
                    && (expected.version.is_none() || expected.version == found.version) =>
            {
                Ok(())
            }
            (PutMode::Update(_), _) => Err(Error::Precondition {
                path,
                source: "the object is not the expected one".into(),
            }),
        }
    }
}
