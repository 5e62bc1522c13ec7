//! Sends a request, and retries it under the same id at the servers in order until it gets a response.
//!
//! | response | action |
//! | --- | --- |
//! | success | done |
//! | a problem | return the error of the server's engine; no retry, because the server has retried already |
//! | a problem of this server that another server, or the same one later, may not have | retry after a pause, at the server that the directory names |
//! | none, or one from a proxy (500, 502, 503, 504) | the same |
//! | none yet, and the server does not respond to pings | the same |
//! | no success within the time for retries | return `Unavailable`, in doubt if a write may have arrived |

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use qo_core::Timestamp;
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::clock::StoreClock;
use qo_store::runtime::{Runtime, RuntimeExt};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::batch::BatchReplies;
use super::config::{InvalidServer, RemoteConfig};
use super::directory::{Directory, Server};
use super::http_request::HttpRequest;
use super::transport::{self, causes};
use crate::ping::shows_life;
use crate::wire::problem::PROBLEM_TYPE;
use crate::wire::{
    ACTOR_HEADER, BROKER_HEADER, Condition, Problem, READ_HEADER, REQUEST_ID_HEADER, STALE,
    TIME_HEADER,
};

const PAUSE_MIN: Duration = Duration::from_millis(50);
/// A takeover takes a few seconds, and a request that waits for it should not wait much longer.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// The largest response that is read.
const RESPONSE_MAX_BYTES: usize = 512 * 1024 * 1024;
/// The most memory that is reserved for a response because of its `Content-Length`.
const RESERVED_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Why an attempt failed.
pub(super) enum AttemptFailure {
    /// The request failed, and is not retried.
    Final(EngineError),
    /// A retry at this server or another one may succeed.
    Retryable {
        detail: String,
        may_have_arrived: bool,
        /// The address of the leader, if the server named it.
        leader: Option<String>,
    },
}

pub(super) struct Connection {
    http: Client,
    directory: Directory,
    runtime: Arc<dyn Runtime>,
    /// The queue's time, from responses.
    clock: StoreClock,
    request_timeout: Duration,
    retry_for: Duration,
    ping_interval: Duration,
    stale_reads: bool,
}

impl Connection {
    pub(super) fn new(
        config: RemoteConfig,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, InvalidServer> {
        let https = config.servers.iter().any(|url| url.scheme() == "https");
        let (token, ca_pem) = (config.token.as_ref(), config.ca_pem.as_deref());
        let http = match &config.discovery {
            Some(_) => transport::client_for_any(token, ca_pem)?,
            None => transport::client(token, ca_pem, https)?,
        };
        Ok(Self {
            http,
            request_timeout: config.request_timeout,
            retry_for: config.retry_for,
            ping_interval: config.ping_interval,
            stale_reads: config.stale_reads,
            directory: Directory::new(config, Arc::clone(&runtime)),
            runtime,
            clock: StoreClock::new(),
        })
    }

    /// The queue's time.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now(self.runtime.moment())
    }

    /// The URL of the current server, for messages.
    pub(super) fn server_url(&self) -> String {
        self.directory.current().display_url().to_owned()
    }

    /// The error for a response that a qo server of this version does not send.
    pub(super) fn invalid_response(&self, what: &str) -> EngineError {
        EngineError::Store(StoreError::Corrupt {
            key: self.server_url(),
            detail: format!("the server sent {what}; is it a qo server of another version?"),
        })
    }

    /// Sends a request, and parses the response as JSON.
    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        request: HttpRequest,
    ) -> Result<T, EngineError> {
        let (body, _) = self.send(request).await?;
        self.read_json(&body)
    }

    /// Sends a GET request.
    pub(super) async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, EngineError> {
        self.json(HttpRequest::get(path.to_owned())).await
    }

    /// Sends a request, and returns the body of the response.
    pub(super) async fn bytes(&self, request: HttpRequest) -> Result<Bytes, EngineError> {
        Ok(self.send(request).await?.0)
    }

    /// Sends many items, and returns one result for each.
    pub(super) async fn send_batch<O: DeserializeOwned>(
        &self,
        path: &str,
        items: &[impl Serialize + Sync],
    ) -> BatchReplies<O> {
        let request = HttpRequest::post(path.to_owned(), &items)?;
        let (body, repeated) = self.send(request).await?;
        let results: Vec<O> = self.read_json(&body)?;
        if results.len() == items.len() {
            Ok((results, repeated))
        } else {
            Err(self.invalid_response("a different number of results than it was sent items"))
        }
    }

    fn read_json<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, EngineError> {
        serde_json::from_slice(body)
            .map_err(|error| self.invalid_response(&format!("an unreadable response ({error})")))
    }

    /// Sends a request until it gets a response. Also returns whether an earlier attempt may have arrived.
    async fn send(&self, request: HttpRequest) -> Result<(Bytes, bool), EngineError> {
        let request_id = self.runtime.new_op_id().to_string();
        let writes = request.method != Method::GET;
        let (path, wait) = (request.path.as_str(), request.wait);
        self.retry(path, wait, writes, |server| {
            let (request, request_id) = (&request, &request_id);
            async move { self.try_once(&server, request, request_id).await }
        })
        .await
    }

    /// Repeats an attempt, at the server that is current then, until it succeeds or fails permanently. Also returns whether an earlier
    /// attempt may have arrived.
    pub(super) async fn retry<T, Attempt>(
        &self,
        path: &str,
        wait: Duration,
        writes: bool,
        attempt: impl Fn(Arc<Server>) -> Attempt,
    ) -> Result<(T, bool), EngineError>
    where
        Attempt: Future<Output = Result<T, AttemptFailure>>,
    {
        let started = self.runtime.monotonic();
        let (mut attempts, mut in_doubt, mut pause) = (0_u32, false, PAUSE_MIN);
        loop {
            attempts += 1;
            let server = self.directory.current();
            let url = server.display_url();
            let failure = match attempt(Arc::clone(&server)).await {
                Ok(done) => return Ok((done, in_doubt)),
                Err(failure) => failure,
            };
            let (mut detail, leader) = match failure {
                AttemptFailure::Final(error) => return Err(error),
                AttemptFailure::Retryable {
                    detail,
                    may_have_arrived,
                    leader,
                } => {
                    in_doubt |= writes && may_have_arrived;
                    (detail, leader)
                }
            };
            if let Err(reason) = self.directory.move_on(&server, leader.as_deref()).await {
                detail = format!("{detail}; {reason}");
            }
            let elapsed = self.runtime.monotonic().saturating_sub(started);
            if elapsed >= self.retry_for.saturating_add(wait) {
                return Err(EngineError::Store(StoreError::Unavailable {
                    key: url.to_owned(),
                    detail,
                    attempts,
                    elapsed,
                    in_doubt,
                }));
            }
            tracing::debug!(server = url, path, detail, "retrying");
            self.runtime
                .sleep(pause.mul_f64(0.5 + self.runtime.random_unit()))
                .await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Sends a request of any length in either direction, and returns the response with its unread body. A problem that no other server
    /// could solve is a result.
    pub(super) async fn exchange_stream(
        &self,
        server: &Server,
        method: Method,
        path: &str,
        add: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Result<Response, Box<Problem>>, AttemptFailure> {
        let url = server
            .url()
            .join(path.trim_start_matches('/'))
            .map_err(|error| AttemptFailure::Final(EngineError::BadRequest(error.to_string())))?;
        let request_id = self.runtime.new_op_id().to_string();
        let is_head = method == Method::HEAD;
        let mut builder = self.http.request(method, url);
        builder = builder.header(REQUEST_ID_HEADER, request_id);
        if let Some(broker) = server.broker() {
            builder = builder.header(BROKER_HEADER, broker);
        }
        let sent = tokio::select! {
            biased;
            sent = add(builder).send() => sent,
            () = self.died(server) => return Err(AttemptFailure::Retryable {
                detail: "the server has stopped responding".to_owned(),
                may_have_arrived: true,
                leader: None,
            }),
        };
        let response = sent.map_err(|error| AttemptFailure::Retryable {
            may_have_arrived: !error.is_connect(),
            detail: causes(&error.without_url()),
            leader: None,
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(Ok(response));
        }
        let is_problem = header(&response, CONTENT_TYPE.as_str())
            .is_some_and(|text| text.starts_with(PROBLEM_TYPE));
        if is_head && is_problem && status == StatusCode::NOT_FOUND {
            return Ok(Err(Box::new(Problem::new(Condition::NoRoute, "not found"))));
        }
        let body = read_body(response).await?;
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) if is_problem && problem.condition.is_of_this_server() => {
                Err(failure_of_problem(problem, server))
            }
            Ok(problem) if is_problem => Ok(Err(Box::new(problem))),
            _ => Err(self.failure_of_status(status, server)),
        }
    }

    /// Returns when a server no longer responds to pings.
    async fn died(&self, server: &Server) {
        loop {
            self.runtime.sleep(self.ping_interval).await;
            if !self.is_alive(server).await {
                return;
            }
        }
    }

    async fn try_once(
        &self,
        server: &Server,
        request: &HttpRequest,
        request_id: &str,
    ) -> Result<Bytes, AttemptFailure> {
        let started = self.runtime.monotonic();
        let response = tokio::select! {
            biased;
            response = self.exchange(server, request, request_id) => response,
            detail = self.timed_out(server, request) => Err(AttemptFailure::Retryable {
                detail,
                may_have_arrived: true,
                leader: None,
            }),
        };
        let elapsed_ms = self.runtime.monotonic().saturating_sub(started).as_millis();
        let outcome = match &response {
            Ok(_) => "success",
            Err(AttemptFailure::Final(_)) => "error",
            Err(AttemptFailure::Retryable { .. }) => "retryable",
        };
        tracing::debug!(method = %request.method, path = request.path, request_id, elapsed_ms, outcome, "request");
        response
    }

    /// Returns with a reason when a request times out or its server stops responding to pings. A process that was suspended, or
    /// whose machine was cut off, keeps its connections open, so only pings show that it does not respond.
    async fn timed_out(&self, server: &Server, request: &HttpRequest) -> String {
        let limit = self.request_timeout.saturating_add(request.wait);
        let started = self.runtime.monotonic();
        loop {
            let waited = self.runtime.monotonic().saturating_sub(started);
            let left = limit.saturating_sub(waited);
            if left.is_zero() {
                return format!("no response within {limit:?}");
            }
            self.runtime.sleep(left.min(self.ping_interval)).await;
            if !self.is_alive(server).await {
                return "the server has stopped responding".to_owned();
            }
        }
    }

    async fn is_alive(&self, server: &Server) -> bool {
        let Ok(url) = server.url().join("healthz") else {
            return false;
        };
        let mut ping = self.http.get(url);
        let broker = server.broker();
        if let Some(broker) = broker {
            ping = ping.header(BROKER_HEADER, broker);
        }
        tokio::select! {
            biased;
            // A broker that is cut off from the store never responds to a request: another one leads soon.
            response = ping.send() => response.is_ok_and(|response| broker.is_none() || shows_life(response.status())),
            () = self.runtime.sleep(self.ping_interval) => false,
        }
    }

    async fn exchange(
        &self,
        server: &Server,
        request: &HttpRequest,
        request_id: &str,
    ) -> Result<Bytes, AttemptFailure> {
        let url = server
            .url()
            .join(request.path.trim_start_matches('/'))
            .map_err(|error| AttemptFailure::Final(EngineError::BadRequest(error.to_string())))?;
        let mut builder = self
            .http
            .request(request.method.clone(), url)
            .header(REQUEST_ID_HEADER, request_id);
        if let Some(broker) = server.broker() {
            builder = builder.header(BROKER_HEADER, broker);
        }
        if self.stale_reads && request.method == Method::GET {
            builder = builder.header(READ_HEADER, STALE);
        }
        if let Some(actor) = &request.actor {
            builder = builder.header(ACTOR_HEADER, actor.as_str().as_bytes());
        }
        if let Some(body) = &request.body {
            builder = builder
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone());
        }
        let sent = self.runtime.moment();
        let response = builder
            .send()
            .await
            .map_err(|error| AttemptFailure::Retryable {
                may_have_arrived: !error.is_connect(),
                detail: causes(&error.without_url()),
                leader: None,
            })?;
        let received = self.runtime.moment();
        let status = response.status();
        let time = header(&response, TIME_HEADER).and_then(|text| text.parse().ok());
        if let Some(time) = time
            && request.wait.is_zero()
        {
            self.clock.observe_exact(sent, received, time);
        }
        let is_problem = header(&response, CONTENT_TYPE.as_str())
            .is_some_and(|text| text.starts_with(PROBLEM_TYPE));
        let body = read_body(response).await?;
        if status.is_success() {
            return Ok(body);
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) if is_problem => Err(failure_of_problem(problem, server)),
            _ => Err(self.failure_of_status(status, server)),
        }
    }

    /// Classifies an error response that is not from a qo server but from a proxy or another service.
    fn failure_of_status(&self, status: StatusCode, server: &Server) -> AttemptFailure {
        let detail = format!("the response was {status}");
        let key = server.display_url().to_owned();
        match status.as_u16() {
            // After a proxy's 500, as after a lost response, it is unknown whether the server carried out the request.
            500 | 502..=504 => AttemptFailure::Retryable {
                detail,
                may_have_arrived: true,
                leader: None,
            },
            401 | 403 => {
                AttemptFailure::Final(EngineError::Store(StoreError::Denied { key, detail }))
            }
            _ => AttemptFailure::Final(self.invalid_response(&format!("{status}"))),
        }
    }
}

/// Classifies a problem that the server sent.
fn failure_of_problem(problem: Problem, server: &Server) -> AttemptFailure {
    if problem.condition.is_of_this_server() {
        return AttemptFailure::Retryable {
            detail: problem.detail,
            may_have_arrived: problem.condition.may_have_begun(),
            leader: match problem.condition {
                Condition::NotLeader { leader } => leader,
                _ => None,
            },
        };
    }
    AttemptFailure::Final(problem.into_error(server.display_url()))
}

fn header<'a>(response: &'a reqwest::Response, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// Reads the whole body, if it is not too large.
async fn read_body(mut response: reqwest::Response) -> Result<Bytes, AttemptFailure> {
    let interrupted = |error: reqwest::Error| AttemptFailure::Retryable {
        detail: causes(&error.without_url()),
        may_have_arrived: true,
        leader: None,
    };
    let Some(first) = response.chunk().await.map_err(interrupted)? else {
        return Ok(Bytes::new());
    };
    let Some(second) = response.chunk().await.map_err(interrupted)? else {
        return Ok(first);
    };
    let announced = response.content_length().unwrap_or(0);
    let announced = usize::try_from(announced)
        .unwrap_or(0)
        .min(RESERVED_MAX_BYTES);
    let mut body = BytesMut::with_capacity(announced.max(first.len() + second.len()));
    body.extend_from_slice(&first);
    body.extend_from_slice(&second);
    while let Some(chunk) = response.chunk().await.map_err(interrupted)? {
        if body.len() + chunk.len() > RESPONSE_MAX_BYTES {
            return Err(AttemptFailure::Final(EngineError::Store(
                StoreError::Unsupported {
                    operation: "this response",
                    detail: format!(
                        "the server's response is larger than {RESPONSE_MAX_BYTES} bytes; request less at once"
                    ),
                },
            )));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("server", &self.server_url())
            .finish_non_exhaustive()
    }
}
