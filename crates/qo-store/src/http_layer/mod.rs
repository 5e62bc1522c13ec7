//! The HTTP layer below `object_store`: it learns the store's time and keeps a failed answer exact.
//!
//! `object_store` asks an [`HttpConnector`] for its connections. This one wraps the crate's own (reqwest over rustls) and
//! does four things on the way:
//!
//! - The `Date` of each answer of the store moves the [`StoreClock`].
//! - An answer that `object_store` would retry or misname becomes a [`ResponseError::Status`] at the bottom of the error:
//!   a 409 on a create is 'try again', not 'exists', and a 500 on a conditional write must not be sent a second time by
//!   anybody but qo's own retry loop. Answers whose meaning is right there pass untouched: success, 304, 404, 412, 416.
//!   (A 401 does not: of a list, `object_store` keeps only its text.)
//! - A request without an answer becomes a [`ResponseError::NoAnswer`] that says whether it can have been sent.
//! - Each request is logged at debug level, by method and path alone: never a header, a query or an address with a signature.
//!
//! The store is told from credential endpoints (instance metadata, token services) by its authority, not by the presence
//! of an `authorization` header: Azure's SAS tokens travel without one, and the pod identity agent of EKS gets one.

mod answer;

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::header::{AGE, DATE};
use http::{HeaderMap, StatusCode};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use object_store::{ClientConfigKey, ClientOptions};
use qo_core::Timestamp;
use thiserror::Error;
use tracing::debug;

use crate::clock::StoreClock;
use crate::response::ResponseError;
use crate::runtime::{Moment, Runtime, RuntimeExt};

pub(crate) use answer::{read_bounded, read_error};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a whole request may take, its answer's body included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an unused connection is kept. Stores close theirs after about as long, and a request on a closed one fails.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// How many unused connections are kept.
const POOL_MAX_IDLE: usize = 64;

/// The settings of every connection: HTTP/1.1, bounded in time.
pub(crate) fn client_options(allow_http: bool) -> ClientOptions {
    ClientOptions::new()
        .with_user_agent(http::HeaderValue::from_static(concat!(
            "qo/",
            env!("CARGO_PKG_VERSION")
        )))
        .with_http1_only()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_timeout(REQUEST_TIMEOUT)
        .with_pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .with_pool_max_idle_per_host(POOL_MAX_IDLE)
        .with_allow_http(allow_http)
}

/// A credential endpoint that did not answer: what keeps a request from being signed, and so from being sent.
#[derive(Debug, Error)]
#[error("the credential endpoint {authority} did not answer")]
pub(crate) struct CredentialEndpointSilent {
    authority: String,
    source: ResponseError,
}

/// Makes connections that feed the clock and keep failed answers exact.
#[derive(Debug, Clone)]
pub(crate) struct StoreConnector {
    runtime: Arc<dyn Runtime>,
    clock: Arc<StoreClock>,
    /// Host and, where it is not the scheme's own, port of the store.
    authority: Arc<str>,
}

impl StoreConnector {
    pub(crate) fn new(runtime: Arc<dyn Runtime>, clock: Arc<StoreClock>, authority: &str) -> Self {
        Self {
            runtime,
            clock,
            authority: authority.to_ascii_lowercase().into(),
        }
    }
}

impl HttpConnector for StoreConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // reqwest takes its cryptography from the process. An error means that somebody has set one already: keep theirs.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let inner = connect_with_roots(options)?;
        Ok(HttpClient::new(StoreHttp {
            inner,
            connector: self.clone(),
        }))
    }
}

/// A client with the system's trusted certificates. Where plain HTTP is allowed, a system that has none, as a bare
/// container, gets a client that trusts nobody: it serves HTTP, and refuses HTTPS when it comes to that.
fn connect_with_roots(options: &ClientOptions) -> object_store::Result<HttpClient> {
    let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp);
    match ReqwestConnector::default().connect(options) {
        Err(_) if allow_http.as_deref() == Some("true") => {
            let options = options.clone().with_no_system_certificates(true);
            ReqwestConnector::default().connect(&options)
        }
        outcome => outcome,
    }
}

#[derive(Debug)]
struct StoreHttp {
    inner: HttpClient,
    connector: StoreConnector,
}

impl StoreHttp {
    fn learn_time(&self, sent: Moment, received: Moment, headers: &HeaderMap) {
        // An answer with an age comes from a cache, and so does its date.
        if headers.contains_key(AGE) {
            return;
        }
        let date = headers
            .get(DATE)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| chrono::DateTime::parse_from_rfc2822(text).ok());
        if let Some(date) = date {
            let date = Timestamp::from_millis(date.timestamp_millis());
            self.connector.clock.observe(sent, received, date);
        }
    }
}

#[async_trait]
impl HttpService for StoreHttp {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let runtime = &self.connector.runtime;
        let authority = request
            .uri()
            .authority()
            .map(|authority| authority.as_str().to_ascii_lowercase())
            .unwrap_or_default();
        let to_store = *authority == *self.connector.authority;
        let method = request.method().clone();
        let path = request.uri().path().to_owned();
        let is_list = request.uri().query().is_some_and(asks_for_a_list);
        let sent = runtime.moment();
        let outcome = self.inner.execute(request).await;
        let received = runtime.moment();
        let elapsed_ms = received.steady.saturating_sub(sent.steady).as_millis();
        match outcome {
            Err(error) => {
                let silent = no_answer(&error);
                debug!(%method, path, elapsed_ms, %silent, "no answer");
                Err(if to_store {
                    HttpError::new(error.kind(), silent)
                } else {
                    HttpError::new(
                        error.kind(),
                        CredentialEndpointSilent {
                            authority,
                            source: silent,
                        },
                    )
                })
            }
            Ok(response) => {
                let status = response.status();
                debug!(%method, path, status = status.as_u16(), elapsed_ms, "answer");
                if !to_store {
                    return Ok(response);
                }
                self.learn_time(sent, received, response.headers());
                if means_what_it_says(status) {
                    return Ok(response);
                }
                let (response, error) = read_error(response).await;
                if object_store_knows_better(&error, is_list) {
                    return Ok(response);
                }
                debug!(%method, path, %error, "refused");
                Err(HttpError::new(HttpErrorKind::Unknown, error))
            }
        }
    }
}

/// Whether `object_store` draws the right conclusion from this status alone, without a look at the body.
fn means_what_it_says(status: StatusCode) -> bool {
    status.is_success()
        || matches!(
            status,
            StatusCode::NOT_MODIFIED
                | StatusCode::PRECONDITION_FAILED
                | StatusCode::RANGE_NOT_SATISFIABLE
        )
}

/// Whether a query is that of a list, on S3 and GCS or on Azure.
fn asks_for_a_list(query: &str) -> bool {
    query
        .split('&')
        .any(|part| part.starts_with("list-type=") || part == "comp=list")
}

/// Whether the answer passes after a look at its code: a 404 that is about an object and not about the bucket, as that to a
/// list always is, and the 409 with which Azure says that a created blob exists.
fn object_store_knows_better(error: &ResponseError, is_list: bool) -> bool {
    match error {
        ResponseError::Status {
            status: 404, code, ..
        } => {
            !is_list
                && !matches!(
                    code.as_deref(),
                    Some("NoSuchBucket" | "ContainerNotFound" | "ContainerBeingDeleted")
                )
        }
        ResponseError::Status {
            status: 409, code, ..
        } => code.as_deref() == Some("BlobAlreadyExists"),
        _ => false,
    }
}

/// Says why there is no answer, and whether the request can have reached the store.
fn no_answer(error: &HttpError) -> ResponseError {
    let mut root: &(dyn StdError + 'static) = error;
    let mut connecting = error.kind() == HttpErrorKind::Connect;
    while let Some(source) = root.source() {
        if let Some(source) = source.downcast_ref::<reqwest::Error>() {
            // A connection that timed out counts as a timeout, not as a failed connection, in the kind.
            connecting |= source.is_connect();
        }
        root = source;
    }
    let what = match error.kind() {
        _ if connecting => "could not connect",
        HttpErrorKind::Timeout => "timed out",
        _ => "the connection failed",
    };
    let sent = if connecting {
        "the request was not sent"
    } else {
        "the request may have been applied"
    };
    ResponseError::NoAnswer {
        detail: format!("{what} ({root}); {sent}"),
    }
}
