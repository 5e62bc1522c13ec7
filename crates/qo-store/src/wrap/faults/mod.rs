//! A wrapper that breaks requests, as seeded and as repeatable as a test needs it.
//!
//! A [`FaultPlan`] says which faults strike how often, or which request gets which fault. The decisions are in `state`,
//! what a fault leaves of a write in `write`, lists of the past in `stale`, and what the caller sees in `answers`.
//!
//! A list is one request, whatever its length; a delete is one request per 1,000 keys. Writes in parts can be lost, fail
//! and crash, but not be late or doubled.

mod answers;
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
use self::state::{Fault, State};
use self::upload::FaultUpload;
use self::write::{Copy, Delete, Put, Write};
use super::batches::batches;
use super::operation::Operation;
use crate::runtime::Runtime;

/// A store that fails as planned.
#[derive(Debug)]
pub struct FaultStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inner: Arc<dyn ObjectStore>,
    runtime: Arc<dyn Runtime>,
    state: Mutex<State>,
    changes: Mutex<Changes>,
}

impl FaultStore {
    /// Breaks requests to `inner`. The same seed, plan and order of requests give the same faults.
    pub fn new(
        inner: Arc<dyn ObjectStore>,
        runtime: Arc<dyn Runtime>,
        plan: FaultPlan,
        seed: u64,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                inner,
                runtime,
                state: Mutex::new(State::new(plan, seed)),
                changes: Mutex::default(),
            }),
        }
    }

    /// Replaces the plan, ends a burst, and counts requests from 1 again. The log, the counters and a crash stay.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.shared.state().set_plan(plan);
    }

    /// How many requests there were since the plan was given.
    pub fn requests(&self) -> u64 {
        self.shared.state().requests()
    }

    /// The faults that were injected, in order; the first 10,000 of them.
    pub fn log(&self) -> Vec<InjectedFault> {
        self.shared.state().log().to_vec()
    }

    /// How often each fault was injected.
    pub fn injected(&self) -> BTreeMap<FaultKind, u64> {
        self.shared.state().injected().clone()
    }

    /// From now on nothing is applied and nothing answered.
    pub fn crash(&self) {
        self.shared.state().set_crashed(true);
    }

    /// Whether a crash was injected.
    pub fn is_crashed(&self) -> bool {
        self.shared.state().is_crashed()
    }

    /// Ends a crash.
    pub fn revive(&self) {
        self.shared.state().set_crashed(false);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
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

    /// Decides about a request that changes nothing, and so either fails or goes through.
    fn pass(&self, operation: Operation, key: &str) -> Result<Option<Fault>> {
        match self.decide(operation, key) {
            None => Ok(None),
            Some(fault) => match fault.kind {
                FaultKind::StaleList | FaultKind::TornRead => Ok(Some(fault)),
                kind => Err(answers::failure(kind)),
            },
        }
    }

    async fn apply<W: Write>(&self, write: &W) -> Result<W::Answer> {
        self.tracked(write.keys(), write.apply(self.inner.as_ref()))
            .await
    }

    /// Notes what was there before a write, if the plan will ask for it.
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
        let answer = write.await?;
        let now = self.runtime.monotonic();
        let mut changes = self.changes();
        for (key, meta) in before {
            changes.note(now, key, meta);
        }
        Ok(answer)
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

/// The same answer with a body that ends early.
fn torn(answer: GetResult, fraction: f64) -> GetResult {
    let meta = answer.meta.clone();
    let range = answer.range.clone();
    let attributes = answer.attributes.clone();
    let extensions = answer.extensions.clone();
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "any length below the full one will do"
    )]
    let mut left = ((range.end - range.start) as f64 * fraction) as usize;
    let body = answer.into_stream().map_ok(move |chunk: Bytes| {
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
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let operation = Operation::of_put(&opts.mode);
        let fault = self.shared.decide(operation, location.as_ref());
        let put = Put {
            location: location.clone(),
            payload,
            options: opts,
        };
        self.shared.put(put, fault).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        // An upload that was started unseen changes nothing that anybody can see.
        self.shared
            .pass(Operation::MultipartStart, location.as_ref())?;
        let inner = self.shared.inner.put_multipart_opts(location, opts).await?;
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(FaultUpload::new(inner, shared, location.clone())))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let operation = Operation::of_get(&options);
        let fault = self.shared.pass(operation, location.as_ref())?;
        let answer = self.shared.inner.get_opts(location, options).await?;
        Ok(match fault {
            None => answer,
            Some(fault) => torn(answer, fault.fraction),
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
                    let mut answers = Vec::new();
                    if let Some(first) = batch.keys.first() {
                        let fault = shared.decide(Operation::Delete, first.as_ref());
                        let delete = Delete { keys: batch.keys };
                        match shared.write(delete, fault).await {
                            Ok(deleted) => answers = deleted,
                            Err(error) => answers.push(Err(error)),
                        }
                    }
                    answers.extend(batch.error.map(Err));
                    stream::iter(answers)
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
