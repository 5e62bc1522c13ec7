//! One request, repeated under one name until it is answered, at the servers in their order.
//!
//! | answer | action |
//! | --- | --- |
//! | success | done |
//! | a problem | the error that the server's engine gave; nothing is repeated, because the server has tried |
//! | a problem that says that another server, or the same one later, can do it | the next server, after a pause |
//! | no answer, or one that a proxy made up (500, 502, 503, 504) | the next server, after a pause |
//! | none of that within the time for retries | `Unavailable`, in doubt if a write may have arrived |

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use qo_core::Timestamp;
use qo_store::StoreError;
use qo_store::world::{World, WorldExt};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Certificate, Client, Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::batch::Answers;
use super::clock::ServerClock;
use super::config::{InvalidServer, RemoteConfig};
use crate::error::EngineError;
use crate::wire::problem::PROBLEM_TYPE;
use crate::wire::{Problem, REQUEST_ID_HEADER, TIME_HEADER};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(15);
const POOL_MAX_IDLE: usize = 64;
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// A larger answer is not read.
const ANSWER_MAX_BYTES: usize = 512 * 1024 * 1024;

/// What is asked of a server.
pub(super) struct Ask {
    method: Method,
    /// The path below the server's own, with its query.
    path: String,
    body: Option<Bytes>,
    /// How long the server may take on purpose.
    pub(super) wait: Duration,
}

impl Ask {
    fn new(method: Method, path: String, body: Option<Bytes>) -> Self {
        Self {
            method,
            path,
            body,
            wait: Duration::ZERO,
        }
    }

    pub(super) fn get(path: String) -> Self {
        Self::new(Method::GET, path, None)
    }

    pub(super) fn delete(path: String) -> Self {
        Self::new(Method::DELETE, path, None)
    }

    pub(super) fn post(path: String, body: &impl Serialize) -> Result<Self, EngineError> {
        Ok(Self::new(Method::POST, path, Some(json(body)?)))
    }

    pub(super) fn put(path: String, body: &impl Serialize) -> Result<Self, EngineError> {
        Ok(Self::new(Method::PUT, path, Some(json(body)?)))
    }
}

fn json(body: &impl Serialize) -> Result<Bytes, EngineError> {
    serde_json::to_vec(body).map(Bytes::from).map_err(|error| {
        EngineError::BadRequest(format!("this cannot be written as JSON: {error}"))
    })
}

/// Why a try came to nothing.
enum Failure {
    /// It is over: the server has decided.
    Final(EngineError),
    /// Another server, or another try, may do it.
    Elsewhere {
        detail: String,
        may_have_arrived: bool,
    },
}

pub(super) struct Connection {
    http: Client,
    servers: Vec<Url>,
    /// The server that answered last.
    current: AtomicUsize,
    world: Arc<dyn World>,
    clock: ServerClock,
    request_timeout: Duration,
    retry_for: Duration,
}

impl Connection {
    pub(super) fn new(config: RemoteConfig, world: Arc<dyn World>) -> Result<Self, InvalidServer> {
        // reqwest takes its cryptography from the process. An error means that somebody has set one already: keep theirs.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut headers = HeaderMap::new();
        if let Some(token) = &config.token {
            let value = format!("Bearer {}", token.as_str());
            let mut value = HeaderValue::from_str(&value).map_err(|_| InvalidServer::Token)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let https = config.servers.iter().any(|url| url.scheme() == "https");
        let mut builder = Client::builder()
            .user_agent(concat!("qo/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_max_idle_per_host(POOL_MAX_IDLE)
            .tcp_nodelay(true);
        if let Some(pem) = &config.ca_pem {
            let bad = |error: reqwest::Error| InvalidServer::Certificates(error.to_string());
            let certificates = Certificate::from_pem_bundle(pem).map_err(bad)?;
            if certificates.is_empty() {
                let empty = "there is none in the file".to_owned();
                return Err(InvalidServer::Certificates(empty));
            }
            builder = builder.tls_certs_merge(certificates);
        } else if !https {
            // A bare container has no certificates, and plain HTTP needs none.
            builder = builder.tls_certs_only(Vec::new());
        }
        let http = builder
            .build()
            .map_err(|error| InvalidServer::Client(causes(&error)))?;
        Ok(Self {
            http,
            servers: config.servers,
            current: AtomicUsize::new(0),
            world,
            clock: ServerClock::default(),
            request_timeout: config.request_timeout,
            retry_for: config.retry_for,
        })
    }

    /// The queue's time.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now(self.world.now())
    }

    /// The server that is asked now, for messages.
    pub(super) fn place(&self) -> String {
        self.server().1.as_str().trim_end_matches('/').to_owned()
    }

    fn server(&self) -> (usize, &Url) {
        let current = self.current.load(Ordering::Relaxed) % self.servers.len();
        (current, &self.servers[current])
    }

    /// A server that says what it cannot mean.
    pub(super) fn nonsense(&self, what: &str) -> EngineError {
        EngineError::Store(StoreError::Corrupt {
            key: self.place(),
            detail: format!("the server sent {what}; is it a qo server of another version?"),
        })
    }

    /// Asks, and reads the answer as JSON.
    pub(super) async fn ask<T: DeserializeOwned>(&self, ask: Ask) -> Result<T, EngineError> {
        let (body, _) = self.send(ask).await?;
        self.read_json(&body)
    }

    /// Asks for something that changes nothing.
    pub(super) async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, EngineError> {
        self.ask(Ask::get(path.to_owned())).await
    }

    /// Asks, and takes the answer as it is.
    pub(super) async fn bytes(&self, ask: Ask) -> Result<Bytes, EngineError> {
        Ok(self.send(ask).await?.0)
    }

    /// Sends many parts, and takes one answer for each.
    pub(super) async fn send_batch<O: DeserializeOwned>(
        &self,
        path: &str,
        parts: &[impl Serialize + Sync],
    ) -> Answers<O> {
        let (body, repeated) = self.send(Ask::post(path.to_owned(), &parts)?).await?;
        let answers: Vec<O> = self.read_json(&body)?;
        if answers.len() == parts.len() {
            Ok((answers, repeated))
        } else {
            Err(self.nonsense("another number of answers than it was asked for"))
        }
    }

    fn read_json<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, EngineError> {
        serde_json::from_slice(body)
            .map_err(|error| self.nonsense(&format!("an answer that cannot be read ({error})")))
    }

    /// Sends a request until it is answered. Tells also whether it was sent more than once.
    async fn send(&self, ask: Ask) -> Result<(Bytes, bool), EngineError> {
        let name = self.world.new_op_id().to_string();
        let started = self.world.monotonic();
        let writes = ask.method != Method::GET;
        let (mut attempts, mut in_doubt, mut pause) = (0_u32, false, PAUSE_MIN);
        loop {
            attempts += 1;
            let (index, server) = self.server();
            let place = server.as_str();
            let failure = match self.try_once(server, &ask, &name).await {
                Ok(body) => return Ok((body, in_doubt)),
                Err(failure) => failure,
            };
            let detail = match failure {
                Failure::Final(error) => return Err(error),
                Failure::Elsewhere {
                    detail,
                    may_have_arrived,
                } => {
                    in_doubt |= writes && may_have_arrived;
                    detail
                }
            };
            // Whoever sees the failure first moves all to the next server.
            let next = (index + 1) % self.servers.len();
            let _ =
                self.current
                    .compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
            let elapsed = self.world.monotonic().saturating_sub(started);
            if elapsed >= self.retry_for.saturating_add(ask.wait) {
                return Err(EngineError::Store(StoreError::Unavailable {
                    key: place.trim_end_matches('/').to_owned(),
                    detail,
                    attempts,
                    elapsed,
                    in_doubt,
                }));
            }
            tracing::debug!(
                server = place,
                path = ask.path,
                request_id = name,
                detail,
                "trying again"
            );
            self.world
                .sleep(pause.mul_f64(0.5 + self.world.random_unit()))
                .await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn try_once(&self, server: &Url, ask: &Ask, name: &str) -> Result<Bytes, Failure> {
        let timeout = self.request_timeout.saturating_add(ask.wait);
        let started = self.world.monotonic();
        let answer = tokio::select! {
            biased;
            answer = self.exchange(server, ask, name) => answer,
            () = self.world.sleep(timeout) => Err(Failure::Elsewhere {
                detail: format!("no answer within {timeout:?}"),
                may_have_arrived: true,
            }),
        };
        let elapsed_ms = self.world.monotonic().saturating_sub(started).as_millis();
        let outcome = match &answer {
            Ok(_) => "answer",
            Err(Failure::Final(_)) => "refusal",
            Err(Failure::Elsewhere { .. }) => "no answer",
        };
        tracing::debug!(method = %ask.method, path = ask.path, request_id = name, elapsed_ms, outcome, "request");
        answer
    }

    async fn exchange(&self, server: &Url, ask: &Ask, name: &str) -> Result<Bytes, Failure> {
        let url = server
            .join(ask.path.trim_start_matches('/'))
            .map_err(|error| Failure::Final(EngineError::BadRequest(error.to_string())))?;
        let mut request = self
            .http
            .request(ask.method.clone(), url)
            .header(REQUEST_ID_HEADER, name);
        if let Some(body) = &ask.body {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone());
        }
        let sent = self.world.now();
        let response = request.send().await.map_err(|error| Failure::Elsewhere {
            may_have_arrived: !error.is_connect(),
            detail: causes(&error.without_url()),
        })?;
        let received = self.world.now();
        let status = response.status();
        let time = header(&response, TIME_HEADER).and_then(|text| text.parse().ok());
        if let Some(time) = time
            && ask.wait.is_zero()
        {
            self.clock.observe(sent, received, time);
        }
        let is_problem = header(&response, CONTENT_TYPE.as_str())
            .is_some_and(|text| text.starts_with(PROBLEM_TYPE));
        let body = whole(response).await?;
        if status.is_success() {
            return Ok(body);
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) if is_problem => Err(judge(problem, server)),
            _ => Err(self.judge_stranger(status, server)),
        }
    }

    /// An answer that no qo server gives: a proxy, or another service.
    fn judge_stranger(&self, status: StatusCode, server: &Url) -> Failure {
        let detail = format!("it answered {status}");
        let key = server.as_str().trim_end_matches('/').to_owned();
        match status.as_u16() {
            // A proxy's 500 says as little of what the server did as a lost answer does.
            500 | 502..=504 => Failure::Elsewhere {
                detail,
                may_have_arrived: true,
            },
            401 | 403 => Failure::Final(EngineError::Store(StoreError::Denied { key, detail })),
            _ => Failure::Final(self.nonsense(&format!("{status}"))),
        }
    }
}

/// What a problem means for the request.
fn judge(problem: Problem, server: &Url) -> Failure {
    if problem.condition.is_of_this_server() {
        return Failure::Elsewhere {
            detail: problem.detail,
            may_have_arrived: problem.condition.may_have_begun(),
        };
    }
    Failure::Final(problem.into_error(server.as_str().trim_end_matches('/')))
}

fn header<'a>(response: &'a reqwest::Response, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// The whole body, if it is not too large.
async fn whole(mut response: reqwest::Response) -> Result<Bytes, Failure> {
    let cut = |error: reqwest::Error| Failure::Elsewhere {
        detail: causes(&error.without_url()),
        may_have_arrived: true,
    };
    let Some(first) = response.chunk().await.map_err(cut)? else {
        return Ok(Bytes::new());
    };
    let Some(second) = response.chunk().await.map_err(cut)? else {
        return Ok(first);
    };
    let mut body = BytesMut::with_capacity(first.len() + second.len());
    body.extend_from_slice(&first);
    body.extend_from_slice(&second);
    while let Some(chunk) = response.chunk().await.map_err(cut)? {
        if body.len() + chunk.len() > ANSWER_MAX_BYTES {
            return Err(Failure::Final(EngineError::Store(
                StoreError::Unsupported {
                    operation: "this answer",
                    detail: format!(
                        "the server's answer is larger than {ANSWER_MAX_BYTES} bytes; ask for less at once"
                    ),
                },
            )));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// What happened, and what below it made it happen.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers.iter().map(Url::as_str).collect();
        f.debug_struct("Connection")
            .field("servers", &servers)
            .finish_non_exhaustive()
    }
}
