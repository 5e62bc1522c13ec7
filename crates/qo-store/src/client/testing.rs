//! What the client's tests stand on: a store whose answers are scripted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::response::ResponseError;
use crate::runtime::{Runtime, RuntimeExt};

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing: it is applied and answered.
    None,
    /// It never arrives, and no answer comes.
    LostRequest,
    /// It is applied, and no answer comes.
    LostAnswer,
    /// No answer comes, and it is applied so much later.
    Late(Duration),
    /// It is applied and answered, and a second copy arrives so much later.
    Twice(Duration),
    /// It is answered with this status and code, after it was applied or instead.
    Status(u16, &'static str, bool),
    /// No answer ever comes, though it may be applied.
    Hang(bool),
    /// A read ends early.
    Torn,
}

/// What somebody else does right after a request was dealt with.
#[derive(Debug, Clone)]
pub(super) enum Meddling {
    /// Writes these bytes there.
    Writes(Bytes),
    /// Deletes what is there.
    Deletes,
}

type Chooser = Box<dyn Fn(&'static str) -> Fault + Send + Sync>;

/// A store in memory whose next answers are scripted, or chosen by a function, and which remembers what it was asked.
pub(super) struct ScriptedStore {
    pub(super) inner: InMemory,
    script: Mutex<VecDeque<(Fault, Option<Meddling>)>>,
    choose: Option<Chooser>,
    calls: Mutex<Vec<&'static str>>,
    runtime: Arc<dyn Runtime>,
    latency: Option<Duration>,
    pub(super) names_no_tags: bool,
}

impl ScriptedStore {
    pub(super) fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self {
            inner: InMemory::new(),
            script: Mutex::default(),
            choose: None,
            calls: Mutex::default(),
            runtime,
            latency: None,
            names_no_tags: false,
        }
    }

    /// A store that asks `choose` what to do with each request, and takes up to `latency` before and after applying it.
    pub(super) fn choosing(runtime: Arc<dyn Runtime>, latency: Duration, choose: Chooser) -> Self {
        Self {
            choose: Some(choose),
            latency: Some(latency),
            ..Self::new(runtime)
        }
    }

    /// Adds to the script.
    pub(super) fn then(&self, fault: Fault) -> &Self {
        self.script.lock().unwrap().push_back((fault, None));
        self
    }

    /// Adds to the script what happens to a request, and what somebody else does right after it.
    pub(super) fn then_meddled(&self, fault: Fault, meddling: Meddling) -> &Self {
        self.script
            .lock()
            .unwrap()
            .push_back((fault, Some(meddling)));
        self
    }

    /// What was asked since this was last called.
    pub(super) fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    async fn begin(&self, call: &'static str) -> (Fault, Option<Meddling>) {
        self.calls.lock().unwrap().push(call);
        let scripted = self.script.lock().unwrap().pop_front();
        let chosen = scripted.unwrap_or_else(|| {
            let fault = self
                .choose
                .as_ref()
                .map_or(Fault::None, |choose| choose(call));
            (fault, None)
        });
        self.dawdle().await;
        chosen
    }

    async fn dawdle(&self) {
        if let Some(latency) = self.latency {
            let most_us = u64::try_from(latency.as_micros()).unwrap();
            let pause = Duration::from_micros(self.runtime.random_below(most_us));
            self.runtime.sleep(pause).await;
        }
    }

    async fn meddle(&self, location: &Path, meddling: Option<Meddling>) {
        match meddling {
            Some(Meddling::Writes(body)) => {
                self.inner.put(location, body.into()).await.unwrap();
            }
            Some(Meddling::Deletes) => self.inner.delete(location).await.unwrap(),
            None => {}
        }
    }
}

/// An answer with this status, as the layer below would make it.
pub(super) fn status(status: u16, code: &str) -> object_store::Error {
    object_store::Error::Generic {
        store: "scripted",
        source: Box::new(ResponseError::Status {
            status,
            code: (!code.is_empty()).then(|| code.to_owned()),
            message: "scripted".to_owned(),
        }),
    }
}

fn no_answer() -> object_store::Error {
    object_store::Error::Generic {
        store: "scripted",
        source: Box::new(ResponseError::NoAnswer {
            detail: "scripted".to_owned(),
        }),
    }
}

impl std::fmt::Debug for ScriptedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScriptedStore")
    }
}

impl std::fmt::Display for ScriptedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScriptedStore")
    }
}

#[async_trait]
impl ObjectStore for ScriptedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let (fault, meddling) = self.begin("PUT").await;
        let late = {
            let (inner, runtime) = (self.inner.clone(), Arc::clone(&self.runtime));
            let (location, payload, opts) = (location.clone(), payload.clone(), opts.clone());
            move |delay: Duration| {
                let sleep = runtime.sleep(delay);
                runtime.spawn(Box::pin(async move {
                    sleep.await;
                    // Nobody waits for this answer.
                    let _ = inner.put_opts(&location, payload, opts).await;
                }));
            }
        };
        let apply = || self.inner.put_opts(location, payload.clone(), opts.clone());
        let result = match fault {
            Fault::None => apply().await,
            Fault::LostRequest | Fault::Torn => Err(no_answer()),
            Fault::LostAnswer => apply().await.and(Err(no_answer())),
            Fault::Late(delay) => {
                late(delay);
                Err(no_answer())
            }
            Fault::Twice(delay) => {
                let answer = apply().await;
                late(delay);
                answer
            }
            Fault::Status(code, text, applied) => {
                if applied {
                    // Like a server that fails after the work: a failed condition is what it reports first.
                    apply().await?;
                }
                Err(status(code, text))
            }
            Fault::Hang(applied) => {
                if applied {
                    let _ = apply().await;
                }
                self.meddle(location, meddling).await;
                return std::future::pending().await;
            }
        };
        self.meddle(location, meddling).await;
        self.dawdle().await;
        let mut result = result?;
        if self.names_no_tags {
            result.e_tag = None;
        }
        Ok(result)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (fault, meddling) = self.begin("GET").await;
        let result = self.inner.get_opts(location, options).await;
        self.meddle(location, meddling).await;
        self.dawdle().await;
        match fault {
            Fault::LostRequest | Fault::LostAnswer | Fault::Late(_) => Err(no_answer()),
            Fault::Status(code, text, _) => Err(status(code, text)),
            Fault::Hang(_) => std::future::pending().await,
            Fault::None | Fault::Twice(_) | Fault::Torn => {
                let mut result = result?;
                if self.names_no_tags {
                    result.meta.e_tag = None;
                }
                if fault == Fault::Torn {
                    let mut meta = result.meta.clone();
                    meta.size += 1;
                    result.meta = meta;
                }
                Ok(result)
            }
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        // One scripted fault per key, as a store answers that deletes key by key.
        let script = std::mem::take(&mut *self.script.lock().unwrap());
        self.calls.lock().unwrap().push("DELETE");
        let inner = self.inner.clone();
        let script = Arc::new(Mutex::new(script));
        locations
            .then(move |location| {
                let (inner, script) = (inner.clone(), Arc::clone(&script));
                async move {
                    let location = location?;
                    let next = script.lock().unwrap().pop_front();
                    match next.map_or(Fault::None, |(fault, _)| fault) {
                        Fault::Status(code, text, _) => Err(status(code, text)),
                        Fault::Hang(_) => std::future::pending().await,
                        _ => inner.delete(&location).await.map(|()| location),
                    }
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.calls.lock().unwrap().push("LIST");
        let fault = self.script.lock().unwrap().pop_front();
        match fault {
            Some((Fault::Status(code, text, _), _)) => {
                futures_util::stream::iter([Err(status(code, text))]).boxed()
            }
            Some((Fault::Hang(_), _)) => futures_util::stream::pending().boxed(),
            _ => self.inner.list(prefix),
        }
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.calls.lock().unwrap().push("LIST AFTER");
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
