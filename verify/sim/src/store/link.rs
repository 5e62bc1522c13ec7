//! One process's connection to the store, on which requests and replies are delayed, duplicated and lost.
//!
//! A request is handed to the network, which outlives the process: requests in flight arrive. The reply carries the store's time in whole
//! seconds, as the `Date` of an HTTP response does: the time of the gateway that the request passed through.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use qo_core::Timestamp;
use qo_store::clock::StoreClock;
use qo_store::runtime::RuntimeExt;
use tokio::sync::oneshot;

use super::answers::{no_answer, status};
use super::bucket::{Bucket, result_of};
use super::gate::Gate;
use super::request::{Request, StoreReply, outcome};
use crate::faults::{SentRequest, Strike, Trouble};
use crate::random::Random;
use crate::sched::{HARNESS, ProcessId, Scheduler, SimRuntime};

/// A process's connection to the store. Clones share everything.
#[derive(Clone)]
pub struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    scheduler: Scheduler,
    process: ProcessId,
    /// The name of this life in the list of faults.
    life: String,
    life_number: u64,
    runtime: Arc<SimRuntime>,
    bucket: Arc<Bucket>,
    clock: Arc<StoreClock>,
    trouble: Arc<Trouble>,
    requests: AtomicU64,
    /// The gate that holds requests back, if there is one.
    gate: Option<Arc<Gate>>,
    /// Whether there is an HTTP client in between, which times out and notices a truncated body.
    has_client: bool,
}

/// The timeout of the HTTP client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// The reply from the network.
type Returned = (Result<StoreReply>, Option<Timestamp>);

impl Link {
    /// The connection of one life of a process.
    pub fn new(
        scheduler: &Scheduler,
        process: ProcessId,
        life: (String, u64),
        bucket: &Arc<Bucket>,
        clock: &Arc<StoreClock>,
        trouble: &Arc<Trouble>,
        gate: Option<Arc<Gate>>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                scheduler: scheduler.clone(),
                process,
                life: life.0,
                life_number: life.1,
                runtime: SimRuntime::of(scheduler, process),
                bucket: Arc::clone(bucket),
                clock: Arc::clone(clock),
                trouble: Arc::clone(trouble),
                requests: AtomicU64::new(0),
                gate,
                has_client: false,
            }),
        }
    }

    /// Adds an HTTP client, which times out and notices a truncated body, for engines that rely on one. Engines with timeouts and checks of
    /// their own are tested better without.
    #[must_use]
    pub fn with_client(mut self) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.has_client = true;
        }
        self
    }

    /// The number of requests of this life.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    async fn send(&self, request: Request) -> Result<StoreReply> {
        let shared = &self.shared;
        let number = shared.requests.fetch_add(1, Ordering::Relaxed);
        let sent = SentRequest {
            process: shared.process,
            life: &shared.life,
            life_number: shared.life_number,
            number,
            request: &request,
        };
        if let Some(is_sent) = shared.trouble.death_at(sent) {
            shared.scheduler.doom(shared.process, 1);
            if !is_sent {
                return std::future::pending().await;
            }
        }
        let pause = shared.trouble.pause_at(sent);
        let dice = shared.trouble.dice(&[0x11f7, shared.life_number, number]);
        let strike = shared.trouble.strike(sent);
        let sent_at = shared.runtime.moment();
        let (answer, returned) = oneshot::channel();
        let journey = Journey {
            link: self.clone(),
            number,
            request,
            strike,
            dice,
            answer: Some(answer),
        };
        shared.scheduler.spawn(HARNESS, Box::pin(journey.go()));
        if let Some(lasts) = pause {
            shared.scheduler.pause(shared.process, lasts);
        }
        let Ok((result, date)): Result<Returned, _> = returned.await else {
            // The network has dropped it: there will be no reply.
            return std::future::pending().await;
        };
        if let Some(date) = date {
            shared.clock.observe(sent_at, shared.runtime.moment(), date);
        }
        result
    }
}

/// A request in flight.
struct Journey {
    link: Link,
    number: u64,
    request: Request,
    strike: Option<Strike>,
    dice: Random,
    answer: Option<oneshot::Sender<Returned>>,
}

impl Journey {
    async fn go(mut self) {
        let shared = Arc::clone(&self.link.shared);
        let latency = shared.trouble.latency(&mut self.dice);
        shared.scheduler.sleep(latency).await;
        if let Some(gate) = &shared.gate {
            gate.pass(shared.process, self.request.describe()).await;
        }
        match self.strike {
            None => {
                let result = self.apply();
                self.bring_back(result).await;
            }
            Some(Strike::LostRequest { hangs }) => self.lose(hangs, "the request was lost").await,
            Some(Strike::LostResponse { hangs }) => {
                drop(self.apply());
                self.lose(hangs, "the answer was lost").await;
            }
            Some(Strike::LateApply { delay, hangs }) => {
                self.lose(hangs, "the request is delayed").await;
                shared.scheduler.sleep(delay).await;
                drop(self.apply());
            }
            Some(Strike::DuplicateApply {
                delay,
                answers_second,
            }) => {
                let first = self.apply();
                if answers_second {
                    let second = self.apply();
                    self.bring_back(second).await;
                } else {
                    self.bring_back(first).await;
                    shared.scheduler.sleep(delay).await;
                    drop(self.apply());
                }
            }
            Some(Strike::Conflict) => {
                self.bring_back(Err(status(409, "ConditionalRequestConflict")))
                    .await;
            }
            Some(Strike::ErrorAfterApply) => {
                drop(self.apply());
                self.bring_back(Err(status(500, "InternalError"))).await;
            }
            Some(Strike::Unavailable) => self.bring_back(Err(status(503, "SlowDown"))).await,
            Some(Strike::StaleList { by }) => {
                let answer = shared.bucket.stale_list(&self.request, by);
                self.note(&Ok("old keys"));
                self.bring_back(Ok(answer)).await;
            }
            Some(Strike::TornRead { kept }) => {
                let result = match self.apply() {
                    Ok(StoreReply::Get(_)) if shared.has_client => {
                        Err(no_answer("the body has ended early"))
                    }
                    Ok(StoreReply::Get(get)) => torn(get, kept).await.map(StoreReply::Get),
                    other => other,
                };
                self.bring_back(result).await;
            }
        }
    }

    /// Applies the request, and traces it.
    fn apply(&self) -> Result<StoreReply> {
        let result = self.link.shared.bucket.apply(&self.request);
        let shared = &self.link.shared;
        if let Some(gate) = &shared.gate {
            let outcome = outcome(&result);
            gate.answered(shared.process, &self.request.describe(), &outcome);
        }
        shared.scheduler.note(shared.process, || {
            format!(
                "#{} {} -> {}{}",
                self.number,
                self.request.describe(),
                outcome(&result),
                self.strike
                    .map(|strike| format!(" [{strike}]"))
                    .unwrap_or_default()
            )
        });
        result
    }

    fn note(&self, what: &Result<&str, &str>) {
        let shared = &self.link.shared;
        shared.scheduler.note(shared.process, || {
            let (Ok(text) | Err(text)) = what;
            format!("#{} {} -> {text}", self.number, self.request.describe())
        });
    }

    async fn bring_back(&mut self, result: Result<StoreReply>) {
        let shared = Arc::clone(&self.link.shared);
        if let Err(error) = &result
            && self.strike.is_some_and(Strike::answers_by_itself)
        {
            self.note(&Err(&error.to_string()));
        }
        let ahead_ms = (shared.trouble).gateway_ahead_ms(shared.life_number, self.number);
        let date_ms = shared.scheduler.true_now().as_millis() + ahead_ms;
        let date = Timestamp::from_millis(date_ms - date_ms.rem_euclid(1_000));
        let latency = shared.trouble.latency(&mut self.dice);
        shared.scheduler.sleep(latency).await;
        self.deliver((result, Some(date)));
    }

    async fn lose(&mut self, hangs: bool, why: &str) {
        self.note(&Err(why));
        let shared = Arc::clone(&self.link.shared);
        if hangs && shared.has_client {
            shared.scheduler.sleep(CLIENT_TIMEOUT).await;
        } else if hangs {
            // The caller times out by itself.
            self.answer = None;
            return;
        }
        let latency = shared.trouble.latency(&mut self.dice);
        shared.scheduler.sleep(latency).await;
        self.deliver((Err(no_answer(why)), None));
    }

    fn deliver(&mut self, returned: Returned) {
        if let Some(answer) = self.answer.take() {
            // Nobody waits if the process is dead or has given up.
            let _ = answer.send(returned);
        }
    }
}

/// The reply with a truncated body.
async fn torn(answer: GetResult, kept: f64) -> Result<GetResult> {
    let (meta, range) = (answer.meta.clone(), answer.range.clone());
    let attributes = answer.attributes.clone();
    let body = answer.bytes().await?;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "any length below the full one will do"
    )]
    let length = (body.len() as f64 * kept) as usize;
    Ok(result_of(meta, body.slice(..length), range, attributes))
}

/// A reply of another kind than the request. It cannot happen, and is reported as no reply.
fn mismatch() -> Error {
    no_answer("the simulated store answered something else")
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.shared.life)
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.shared.life)
    }
}

fn not_implemented(operation: &str) -> Error {
    Error::NotImplemented {
        operation: operation.to_owned(),
        implementer: "the simulated store".to_owned(),
    }
}

#[async_trait]
impl ObjectStore for Link {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let request = Request::Put {
            key: location.clone(),
            body: payload.into(),
            mode: opts.mode,
            attributes: opts.attributes,
        };
        match self.send(request).await? {
            StoreReply::Put(result) => Ok(result),
            _ => Err(mismatch()),
        }
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(not_implemented("put_multipart"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let request = Request::Get {
            key: location.clone(),
            options: Box::new(options),
        };
        match self.send(request).await? {
            StoreReply::Get(result) => Ok(result),
            _ => Err(mismatch()),
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let link = self.clone();
        stream::once(async move {
            let keys: Vec<Path> = locations.try_collect().await?;
            link.send(Request::Delete { keys: keys.clone() }).await?;
            Ok::<_, Error>(stream::iter(keys.into_iter().map(Ok)))
        })
        .try_flatten()
        .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.cloned();
        match self.send(Request::Folders { prefix }).await? {
            StoreReply::Folders(result) => Ok(result),
            _ => Err(mismatch()),
        }
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(not_implemented("copy"))
    }
}

impl Link {
    fn listed(
        &self,
        prefix: Option<&Path>,
        offset: Option<&Path>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let link = self.clone();
        let request = Request::List {
            prefix: prefix.cloned(),
            offset: offset.cloned(),
        };
        stream::once(async move {
            match link.send(request).await? {
                StoreReply::List(found) => Ok::<_, Error>(stream::iter(found.into_iter().map(Ok))),
                _ => Err(mismatch()),
            }
        })
        .try_flatten()
        .boxed()
    }
}
