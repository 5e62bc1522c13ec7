//! One request, repeated under one name until it is answered, at the servers in their order.
//!
//! | answer | action |
//! | --- | --- |
//! | success | done |
//! | a problem | the error that the server's engine gave; nothing is repeated, because the server has tried |
//! | a problem that says that another server, or the same one later, can do it | the server that the directory names, after a pause |
//! | no answer, or one that a proxy made up (500, 502, 503, 504) | the same |
//! | no answer yet, and the server does not even say that it is alive | the same |
//! | none of that within the time for retries | `Unavailable`, in doubt if a write may have arrived |

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use qo_core::Timestamp;
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::clock::StoreClock;
use qo_store::runtime::{Runtime, RuntimeExt};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::batch::Answers;
use super::config::{InvalidServer, RemoteConfig};
use super::directory::{Directory, Server};
use super::transport::{self, causes};
use crate::wire::problem::PROBLEM_TYPE;
use crate::wire::{BROKER_HEADER, Condition, Problem, REQUEST_ID_HEADER, TIME_HEADER};

const PAUSE_MIN: Duration = Duration::from_millis(50);
/// A takeover takes a few seconds, and whoever waits for it should not wait much longer.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// How often a server that has not answered yet is asked whether it is alive.
const ALIVE_INTERVAL: Duration = Duration::from_secs(3);
/// How long it has to say so.
const ALIVE_PATIENCE: Duration = Duration::from_secs(3);
/// A larger answer is not read.
const ANSWER_MAX_BYTES: usize = 512 * 1024 * 1024;

/// How much room is made for an answer by its own word.
const RESERVED_MAX_BYTES: usize = 16 * 1024 * 1024;

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
        /// Where it says that the leader is.
        leader: Option<String>,
    },
}

pub(super) struct Connection {
    http: Client,
    directory: Directory,
    runtime: Arc<dyn Runtime>,
    /// The queue's time, from the answers.
    clock: StoreClock,
    request_timeout: Duration,
    retry_for: Duration,
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
            directory: Directory::new(config, Arc::clone(&runtime)),
            runtime,
            clock: StoreClock::new(),
        })
    }

    /// The queue's time.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now(self.runtime.moment())
    }

    /// The server that is asked now, for messages.
    pub(super) fn place(&self) -> String {
        self.directory.current().place().to_owned()
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
        let name = self.runtime.new_op_id().to_string();
        let started = self.runtime.monotonic();
        let writes = ask.method != Method::GET;
        let (mut attempts, mut in_doubt, mut pause) = (0_u32, false, PAUSE_MIN);
        loop {
            attempts += 1;
            let server = self.directory.current();
            let place = server.place();
            let failure = match self.try_once(&server, &ask, &name).await {
                Ok(body) => return Ok((body, in_doubt)),
                Err(failure) => failure,
            };
            let (mut detail, leader) = match failure {
                Failure::Final(error) => return Err(error),
                Failure::Elsewhere {
                    detail,
                    may_have_arrived,
                    leader,
                } => {
                    in_doubt |= writes && may_have_arrived;
                    (detail, leader)
                }
            };
            if let Err(why) = self.directory.move_on(&server, leader.as_deref()).await {
                detail = format!("{detail}; {why}");
            }
            let elapsed = self.runtime.monotonic().saturating_sub(started);
            if elapsed >= self.retry_for.saturating_add(ask.wait) {
                return Err(EngineError::Store(StoreError::Unavailable {
                    key: place.to_owned(),
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
            self.runtime
                .sleep(pause.mul_f64(0.5 + self.runtime.random_unit()))
                .await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn try_once(&self, server: &Server, ask: &Ask, name: &str) -> Result<Bytes, Failure> {
        let started = self.runtime.monotonic();
        let answer = tokio::select! {
            biased;
            answer = self.exchange(server, ask, name) => answer,
            detail = self.patience(server, ask) => Err(Failure::Elsewhere {
                detail,
                may_have_arrived: true,
                leader: None,
            }),
        };
        let elapsed_ms = self.runtime.monotonic().saturating_sub(started).as_millis();
        let outcome = match &answer {
            Ok(_) => "answer",
            Err(Failure::Final(_)) => "refusal",
            Err(Failure::Elsewhere { .. }) => "no answer",
        };
        tracing::debug!(method = %ask.method, path = ask.path, request_id = name, elapsed_ms, outcome, "request");
        answer
    }

    /// Returns, with the reason, when a request need not be waited for any longer: its time is over, or its server is not there any
    /// more. A process that was stopped, or whose machine was cut off, keeps its connections open and would be waited for in vain;
    /// so it is asked now and then whether it is alive.
    async fn patience(&self, server: &Server, ask: &Ask) -> String {
        let limit = self.request_timeout.saturating_add(ask.wait);
        let started = self.runtime.monotonic();
        loop {
            let waited = self.runtime.monotonic().saturating_sub(started);
            let left = limit.saturating_sub(waited);
            if left.is_zero() {
                return format!("no answer within {limit:?}");
            }
            self.runtime.sleep(left.min(ALIVE_INTERVAL)).await;
            if !self.is_alive(server).await {
                return "the server has stopped answering".to_owned();
            }
        }
    }

    async fn is_alive(&self, server: &Server) -> bool {
        let Ok(url) = server.url().join("healthz") else {
            return false;
        };
        let asked = self.http.get(url).send();
        tokio::select! {
            biased;
            answer = asked => answer.is_ok(),
            () = self.runtime.sleep(ALIVE_PATIENCE) => false,
        }
    }

    async fn exchange(&self, server: &Server, ask: &Ask, name: &str) -> Result<Bytes, Failure> {
        let url = server
            .url()
            .join(ask.path.trim_start_matches('/'))
            .map_err(|error| Failure::Final(EngineError::BadRequest(error.to_string())))?;
        let mut request = self
            .http
            .request(ask.method.clone(), url)
            .header(REQUEST_ID_HEADER, name);
        if let Some(broker) = server.broker() {
            request = request.header(BROKER_HEADER, broker);
        }
        if let Some(body) = &ask.body {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone());
        }
        let sent = self.runtime.moment();
        let response = request.send().await.map_err(|error| Failure::Elsewhere {
            may_have_arrived: !error.is_connect(),
            detail: causes(&error.without_url()),
            leader: None,
        })?;
        let received = self.runtime.moment();
        let status = response.status();
        let time = header(&response, TIME_HEADER).and_then(|text| text.parse().ok());
        if let Some(time) = time
            && ask.wait.is_zero()
        {
            self.clock.observe_exact(sent, received, time);
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
    fn judge_stranger(&self, status: StatusCode, server: &Server) -> Failure {
        let detail = format!("it answered {status}");
        let key = server.place().to_owned();
        match status.as_u16() {
            // A proxy's 500 says as little of what the server did as a lost answer does.
            500 | 502..=504 => Failure::Elsewhere {
                detail,
                may_have_arrived: true,
                leader: None,
            },
            401 | 403 => Failure::Final(EngineError::Store(StoreError::Denied { key, detail })),
            _ => Failure::Final(self.nonsense(&format!("{status}"))),
        }
    }
}

/// What a problem means for the request.
fn judge(problem: Problem, server: &Server) -> Failure {
    if problem.condition.is_of_this_server() {
        return Failure::Elsewhere {
            detail: problem.detail,
            may_have_arrived: problem.condition.may_have_begun(),
            leader: match problem.condition {
                Condition::NotLeader { leader } => leader,
                _ => None,
            },
        };
    }
    Failure::Final(problem.into_error(server.place()))
}

fn header<'a>(response: &'a reqwest::Response, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// The whole body, if it is not too large.
async fn whole(mut response: reqwest::Response) -> Result<Bytes, Failure> {
    let cut = |error: reqwest::Error| Failure::Elsewhere {
        detail: causes(&error.without_url()),
        may_have_arrived: true,
        leader: None,
    };
    let Some(first) = response.chunk().await.map_err(cut)? else {
        return Ok(Bytes::new());
    };
    let Some(second) = response.chunk().await.map_err(cut)? else {
        return Ok(first);
    };
    let announced = response.content_length().unwrap_or(0);
    let announced = usize::try_from(announced)
        .unwrap_or(0)
        .min(RESERVED_MAX_BYTES);
    let mut body = BytesMut::with_capacity(announced.max(first.len() + second.len()));
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

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("server", &self.place())
            .finish_non_exhaustive()
    }
}
