//! A wrapper that injects faults from a seeded, repeatable plan.
//!
//! A [`FaultPlan`] specifies the rate of each fault, or the fault of a particular request. `state` makes the
//! decisions, `write` applies faults to writes, `stale` produces old lists, and `failures` builds the errors that the
//! caller receives.
//!
//! A list is one request, whatever its length. A delete is one request per 1,000 keys. Multipart uploads can be lost,
//! fail and crash, but not be late or duplicated.

mod failures;
mod kind;
mod plan;
mod stale;
mod state;
mod upload;
mod write;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};

pub use kind::FaultKind;
pub use plan::{FaultPlan, FaultRule};
pub use state::InjectedFault;

use self::stale::{Changes, one_level};
use self::state::{Fault, FaultState};
use self::upload::FaultUpload;
use self::write::{Copy, Delete, Put, Write};
use super::batches::batches;
use super::operation::Operation;
use crate::runtime::Runtime;

/// A store that fails according to a plan.
#[derive(Debug)]
pub struct FaultStore {
    shared: Arc<FaultShared>,
}

#[derive(Debug)]
struct FaultShared {
    inner: Arc<dyn ObjectStore>,
    runtime: Arc<dyn Runtime>,
    state: Mutex<FaultState>,
    changes: Mutex<Changes>,
}

impl FaultStore {
    /// Injects faults into requests to `inner`. The same seed, plan and order of requests give the same faults.
    pub fn new(
        inner: Arc<dyn ObjectStore>,
        runtime: Arc<dyn Runtime>,
        plan: FaultPlan,
        seed: u64,
    ) -> Self {
        Self {
            shared: Arc::new(FaultShared {
                inner,
                runtime,
                state: Mutex::new(FaultState::new(plan, seed)),
                changes: Mutex::default(),
            }),
        }
    }

    /// Replaces the plan, ends a burst, and restarts the request numbers at 1. The log, the counters and a crash
    /// remain.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.shared.state().set_plan(plan);
    }

    /// The number of requests since the plan was set.
    pub fn requests(&self) -> u64 {
        self.shared.state().requests()
    }

    /// The first 10,000 injected faults, in order.
    pub fn log(&self) -> Vec<InjectedFault> {
        self.shared.state().log().to_vec()
    }

    /// The number of times each fault was injected.
    pub fn injected(&self) -> BTreeMap<FaultKind, u64> {
        self.shared.state().injected().clone()
    }

    /// Crashes the store: from now on nothing is applied and nothing gets a response.
    pub fn crash(&self) {
        self.shared.state().set_crashed(true);
    }

    /// Whether the store is crashed.
    pub fn is_crashed(&self) -> bool {
        self.shared.state().is_crashed()
    }

    /// Ends a crash.
    pub fn revive(&self) {
        self.shared.state().set_crashed(false);
    }
}

impl FaultShared {
    fn state(&self) -> MutexGuard<'_, FaultState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan<T>(&self, read: impl FnOnce(&FaultPlan) -> T) -> T {
        read(self.state().plan())
    }

    fn decide(&self, operation: Operation, key: &str) -> Option<Fault> {
        let now = self.runtime.monotonic();
        self.state().decide(operation, key, now)
    }

    /// Decides the fault of a request that changes nothing, and therefore either fails or succeeds.
    fn pass(&self, operation: Operation, key: &str) -> Result<Option<Fault>> {
        match self.decide(operation, key) {
            None => Ok(None),
            Some(fault) => match fault.kind {
                FaultKind::StaleList | FaultKind::TornRead => Ok(Some(fault)),
                kind => Err(failures::failure(kind)),
            },
        }
    }

    async fn apply<W: Write>(&self, write: &W) -> Result<W::Output> {
        self.tracked(write.keys(), write.apply(self.inner.as_ref()))
            .await
    }

    /// Records the state before a write, if the plan needs it.
    async fn tracked<T>(
        &self,
        keys: &[Path],
        write: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        if !self.plan(|plan| plan.includes(FaultKind::StaleList)) {
            return write.await;
        }
        let mut before = Vec::with_capacity(keys.len());
        for key in keys {
            match self.inner.head(key).await {
                Ok(meta) => before.push((key.clone(), Some(meta))),
                Err(Error::NotFound { .. }) => before.push((key.clone(), None)),
                Err(error) => return Err(error),
            }
        }
        let response = write.await?;
        let now = self.runtime.monotonic();
        let mut changes = self.changes();
        for (key, meta) in before {
            changes.note(now, key, meta);
        }
        Ok(response)
    }

    async fn list(
        self: Arc<Self>,
        prefix: Option<Path>,
        offset: Option<Path>,
    ) -> Result<BoxStream<'static, Result<ObjectMeta>>> {
        let key = prefix.as_ref().map_or("", AsRef::as_ref);
        let fault = self.pass(Operation::List, key)?;
        let fresh = match &offset {
            Some(offset) => self.inner.list_with_offset(prefix.as_ref(), offset),
            None => self.inner.list(prefix.as_ref()),
        };
        if fault.is_none() {
            return Ok(fresh);
        }
        let fresh = fresh.try_collect().await?;
        let then = self.undo(fresh, prefix.as_ref(), offset.as_ref());
        Ok(stream::iter(then).map(Ok).boxed())
    }

    fn undo(
        &self,
        fresh: Vec<ObjectMeta>,
        prefix: Option<&Path>,
        offset: Option<&Path>,
    ) -> Vec<ObjectMeta> {
        let now = self.runtime.monotonic();
        let stale_by = self.plan(|plan| plan.stale_by);
        let cutoff = now.checked_sub(stale_by);
        self.changes().undo(fresh, cutoff, prefix, offset)
    }
}

/// The same response with a truncated body.
fn torn(response: GetResult, fraction: f64) -> GetResult {
    let meta = response.meta.clone();
    let range = response.range.clone();
    let attributes = response.attributes.clone();
    let extensions = response.extensions.clone();
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "any shorter length will do"
    )]
    let mut left = ((range.end - range.start) as f64 * fraction) as usize;
    let body = response.into_stream().map_ok(move |chunk: Bytes| {
        let kept = chunk.slice(..chunk.len().min(left));
        left -= kept.len();
        kept
    });
    GetResult {
        payload: GetResultPayload::Stream(body.boxed()),
        meta,
        range,
        attributes,
        extensions,
    }
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faults({})", self.shared.inner)
    }
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let operation = Operation::of_put(&opts.mode);
        let fault = self.shared.decide(operation, path.as_ref());
        let put = Put {
            location: path.clone(),
            payload: body,
            options: opts,
        };
        self.shared.put(put, fault).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        // A started upload is not visible to readers, so this request either fails or succeeds.
        self.shared
            .pass(Operation::MultipartStart, location.as_ref())?;
        let inner = self.shared.inner.put_multipart_opts(location, opts).await?;
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(FaultUpload::new(inner, shared, location.clone())))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let operation = Operation::of_get(&options);
        let fault = self.shared.pass(operation, location.as_ref())?;
        let response = self.shared.inner.get_opts(location, options).await?;
        Ok(match fault {
            None => response,
            Some(fault) => torn(response, fault.fraction),
        })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let shared = Arc::clone(&self.shared);
        batches(locations)
            .then(move |batch| {
                let shared = Arc::clone(&shared);
                async move {
                    let mut results = Vec::new();
                    if let Some(first) = batch.keys.first() {
                        let fault = shared.decide(Operation::Delete, first.as_ref());
                        let delete = Delete { keys: batch.keys };
                        match shared.write(delete, fault).await {
                            Ok(deleted) => results = deleted,
                            Err(error) => results.push(Err(error)),
                        }
                    }
                    results.extend(batch.error.map(Err));
                    stream::iter(results)
                }
            })
            .flatten()
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let list = Arc::clone(&self.shared).list(prefix.cloned(), None);
        stream::once(list).try_flatten().boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let list = Arc::clone(&self.shared).list(prefix.cloned(), Some(offset.clone()));
        stream::once(list).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let key = prefix.map_or("", AsRef::as_ref);
        if self.shared.pass(Operation::List, key)?.is_none() {
            return self.shared.inner.list_with_delimiter(prefix).await;
        }
        let fresh = self.shared.inner.list(prefix).try_collect().await?;
        Ok(one_level(prefix, self.shared.undo(fresh, prefix, None)))
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let fault = self.shared.decide(Operation::Copy, to.as_ref());
        let copy = Copy {
            from: from.clone(),
            to: to.clone(),
            options,
        };
        self.shared.write(copy, fault).await
    }
}
