//! A store with scripted responses for the client's tests.

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
    /// It is applied and answered normally.
    None,
    /// It never arrives, and no response comes.
    LostRequest,
    /// It is applied, and the response is lost.
    LostResponse,
    /// No response comes, and it is applied after this delay.
    Late(Duration),
    /// It is applied and answered, and a second copy arrives after this delay.
    Twice(Duration),
    /// It returns this status and code, after being applied if the flag is set.
    Status(u16, &'static str, bool),
    /// No response ever comes. It is applied if the flag is set.
    Hang(bool),
    /// The body of a read is truncated.
    Torn,
}

/// What another writer does right after a request.
#[derive(Debug, Clone)]
pub(super) enum OtherWriter {
    /// Writes these bytes.
    Writes(Bytes),
    /// Deletes the object.
    Deletes,
}

type Chooser = Box<dyn Fn(&'static str) -> Fault + Send + Sync>;

/// An in-memory store whose next responses are scripted or chosen by a function. It records its requests.
pub(super) struct ScriptedStore {
    pub(super) inner: InMemory,
    script: Mutex<VecDeque<(Fault, Option<OtherWriter>)>>,
    choose: Option<Chooser>,
    calls: Mutex<Vec<&'static str>>,
    runtime: Arc<dyn Runtime>,
    latency: Option<Duration>,
    pub(super) omits_tags: bool,
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
            omits_tags: false,
        }
    }

    /// A store that calls `choose` for each request, and takes up to `latency` before and after applying it.
    pub(super) fn choosing(runtime: Arc<dyn Runtime>, latency: Duration, choose: Chooser) -> Self {
        Self {
            choose: Some(choose),
            latency: Some(latency),
            ..Self::new(runtime)
        }
    }

    /// Appends to the script.
    pub(super) fn then(&self, fault: Fault) -> &Self {
        self.script.lock().unwrap().push_back((fault, None));
        self
    }

    /// Appends a fault, and what another writer does right after the request.
    pub(super) fn then_with_other_writer(&self, fault: Fault, other_writer: OtherWriter) -> &Self {
        self.script
            .lock()
            .unwrap()
            .push_back((fault, Some(other_writer)));
        self
    }

    /// The requests since the last call.
    pub(super) fn calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    async fn begin(&self, call: &'static str) -> (Fault, Option<OtherWriter>) {
        self.calls.lock().unwrap().push(call);
        let scripted = self.script.lock().unwrap().pop_front();
        let chosen = scripted.unwrap_or_else(|| {
            let fault = self
                .choose
                .as_ref()
                .map_or(Fault::None, |choose| choose(call));
            (fault, None)
        });
        self.delay().await;
        chosen
    }

    async fn delay(&self) {
        if let Some(latency) = self.latency {
            let most_us = u64::try_from(latency.as_micros()).unwrap();
            let pause = Duration::from_micros(self.runtime.random_below(most_us));
            self.runtime.sleep(pause).await;
        }
    }

    async fn run_other_writer(&self, location: &Path, other_writer: Option<OtherWriter>) {
        match other_writer {
            Some(OtherWriter::Writes(body)) => {
                self.inner.put(location, body.into()).await.unwrap();
            }
            Some(OtherWriter::Deletes) => self.inner.delete(location).await.unwrap(),
            None => {}
        }
    }
}

/// An error response with this status, as the HTTP layer would return it.
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

fn no_response() -> object_store::Error {
    object_store::Error::Generic {
        store: "scripted",
        source: Box::new(ResponseError::NoResponse {
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
    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let (fault, other_writer) = self.begin("PUT").await;
        let late = {
            let (inner, runtime) = (self.inner.clone(), Arc::clone(&self.runtime));
            let (path, body, opts) = (path.clone(), body.clone(), opts.clone());
            move |delay: Duration| {
                let sleep = runtime.sleep(delay);
                runtime.spawn(Box::pin(async move {
                    sleep.await;
                    // The response is discarded.
                    let _ = inner.put_opts(&path, body, opts).await;
                }));
            }
        };
        let apply = || self.inner.put_opts(path, body.clone(), opts.clone());
        let result = match fault {
            Fault::None => apply().await,
            Fault::LostRequest | Fault::Torn => Err(no_response()),
            Fault::LostResponse => apply().await.and(Err(no_response())),
            Fault::Late(delay) => {
                late(delay);
                Err(no_response())
            }
            Fault::Twice(delay) => {
                let result = apply().await;
                late(delay);
                result
            }
            Fault::Status(code, text, applied) => {
                if applied {
                    // Like a server that fails after doing the work, it reports a failed
                    // condition first.
                    apply().await?;
                }
                Err(status(code, text))
            }
            Fault::Hang(applied) => {
                if applied {
                    let _ = apply().await;
                }
                self.run_other_writer(path, other_writer).await;
                return std::future::pending().await;
            }
        };
        self.run_other_writer(path, other_writer).await;
        self.delay().await;
        let mut result = result?;
        if self.omits_tags {
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
        let (fault, other_writer) = self.begin("GET").await;
        let result = self.inner.get_opts(location, options).await;
        self.run_other_writer(location, other_writer).await;
        self.delay().await;
        match fault {
            Fault::LostRequest | Fault::LostResponse | Fault::Late(_) => Err(no_response()),
            Fault::Status(code, text, _) => Err(status(code, text)),
            Fault::Hang(_) => std::future::pending().await,
            Fault::None | Fault::Twice(_) | Fault::Torn => {
                let mut result = result?;
                if self.omits_tags {
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
        // One scripted fault per key, like a store that deletes keys one by one.
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
