//! The HTTP layer below `object_store`: it reads the store's time and preserves error responses.
//!
//! `object_store` gets its connections from an [`HttpConnector`]. This one wraps the crate's own (reqwest over
//! rustls) and does four things:
//!
//! - It updates the [`StoreClock`] from the `Date` of each response of the store.
//! - It turns a response that `object_store` would retry or misinterpret into a [`ResponseError::Status`] at the end
//!   of the source chain. A 409 on a create means "try again", not "exists", and only qo's own retry loop may resend
//!   a conditional write after a 500. Responses that `object_store` interprets correctly pass unchanged: success,
//!   304, 404, 412, 416. (A 401 does not, because `object_store` keeps only its text for a list.)
//! - It turns a missing response into a [`ResponseError::NoResponse`] that says whether the request may have been
//!   sent.
//! - It logs each request at debug level with its method and path, but without headers, queries or signed URLs.
//!
//! The store is distinguished from credential endpoints (instance metadata, token services) by its authority, not by
//! the presence of an `authorization` header: requests with Azure SAS tokens have none, and the pod identity agent of
//! EKS gets one.

mod error_response;

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

#[cfg(feature = "s3")]
pub(crate) use error_response::read_bounded;
pub(crate) use error_response::read_error;

/// The timeout for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a whole request, including the response body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an idle connection is kept. Stores close idle connections after about as long, and a request on a closed
/// one fails.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// The number of idle connections kept.
const POOL_MAX_IDLE: usize = 64;

/// The options of every connection: HTTP/1.1 with timeouts.
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

/// A credential endpoint did not respond, so a request could not be signed or sent.
#[derive(Debug, Error)]
#[error("the credential endpoint {authority} did not respond")]
pub(crate) struct CredentialEndpointUnreachable {
    authority: String,
    source: ResponseError,
}

/// Creates connections that update the clock and preserve error responses.
#[derive(Debug, Clone)]
pub(crate) struct StoreConnector {
    runtime: Arc<dyn Runtime>,
    clock: Arc<StoreClock>,
    /// Host of the store, with its port unless that is the scheme's default.
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
        // reqwest uses the process-wide crypto provider. An error means that the application has installed
        // one: keep it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let inner = connect_with_roots(options)?;
        Ok(HttpClient::new(StoreHttp {
            inner,
            connector: self.clone(),
        }))
    }
}

/// A client with the system's trusted certificates. If plain HTTP is allowed and the system has no certificates, as
/// in a bare container, the client trusts no certificate: it works over HTTP, and every HTTPS connection fails.
fn connect_with_roots(options: &ClientOptions) -> object_store::Result<HttpClient> {
    let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp);
    match ReqwestConnector::default().connect(options) {
        Err(_) if allow_http.as_deref() == Some("true") => {
            let options = options.clone().with_no_system_certificates(true);
            ReqwestConnector::default().connect(&options)
        }
        result => result,
    }
}

#[derive(Debug)]
struct StoreHttp {
    inner: HttpClient,
    connector: StoreConnector,
}

impl StoreHttp {
    fn learn_time(&self, sent: Moment, received: Moment, headers: &HeaderMap) {
        // A response with an age comes from a cache, and so does its date.
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
        let is_list = request.uri().query().is_some_and(is_list_query);
        let sent = runtime.moment();
        let result = self.inner.execute(request).await;
        let received = runtime.moment();
        let elapsed_ms = received.steady.saturating_sub(sent.steady).as_millis();
        match result {
            Err(error) => {
                let missing = no_response(&error, !method.is_safe());
                debug!(%method, path, elapsed_ms, error = %missing, "no response");
                Err(if to_store {
                    HttpError::new(error.kind(), missing)
                } else {
                    HttpError::new(
                        error.kind(),
                        CredentialEndpointUnreachable {
                            authority,
                            source: missing,
                        },
                    )
                })
            }
            Ok(response) => {
                let status = response.status();
                debug!(%method, path, status = status.as_u16(), elapsed_ms, "response");
                if !to_store {
                    return Ok(response);
                }
                self.learn_time(sent, received, response.headers());
                if is_interpreted_by_status(status) {
                    return Ok(response);
                }
                let (response, error) = read_error(response).await;
                if is_interpreted_by_code(&error, is_list) {
                    return Ok(response);
                }
                debug!(%method, path, %error, "error response");
                Err(HttpError::new(HttpErrorKind::Unknown, error))
            }
        }
    }
}

/// Whether `object_store` interprets this status correctly without reading the body.
fn is_interpreted_by_status(status: StatusCode) -> bool {
    status.is_success()
        || matches!(
            status,
            StatusCode::NOT_MODIFIED
                | StatusCode::PRECONDITION_FAILED
                | StatusCode::RANGE_NOT_SATISFIABLE
        )
}

/// Whether the query is a list request of S3, GCS or Azure.
fn is_list_query(query: &str) -> bool {
    query
        .split('&')
        .any(|part| part.starts_with("list-type=") || part == "comp=list")
}

/// Whether `object_store` interprets this error correctly: a 404 about an object rather than the bucket (a 404 to a
/// list is always about the bucket), and the 409 that Azure returns when a blob to be created exists.
fn is_interpreted_by_code(error: &ResponseError, is_list: bool) -> bool {
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

/// Describes why there is no response, and for a request that changes something, whether it may have reached the store.
fn no_response(error: &HttpError, changes_something: bool) -> ResponseError {
    let mut root: &(dyn StdError + 'static) = error;
    let mut connecting = error.kind() == HttpErrorKind::Connect;
    while let Some(source) = root.source() {
        if let Some(source) = source.downcast_ref::<reqwest::Error>() {
            // A connect timeout has the kind `Timeout`, not `Connect`.
            connecting |= source.is_connect();
        }
        root = source;
    }
    let what = match error.kind() {
        _ if connecting => "could not connect",
        HttpErrorKind::Timeout => "timed out",
        _ => "the connection failed",
    };
    let sent = match (changes_something, connecting) {
        (false, _) => "",
        (true, true) => "; the request was not sent",
        (true, false) => "; the request may have been applied",
    };
    ResponseError::NoResponse {
        detail: format!("{what} ({root}){sent}"),
    }
}
