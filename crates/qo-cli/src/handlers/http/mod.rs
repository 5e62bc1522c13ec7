//! `--http TYPE=URL`: sends a request for each attempt.
//!
//! The input is the body of a POST, headers describe the task, and the response is the output (`response.rs`). `address.rs` decides
//! which addresses are allowed; `target.rs` applies it to addresses in the URL and `resolver.rs` to resolved names. Redirects are not
//! followed and proxies from the environment are not used, because both would connect to an unchecked address.

mod address;
mod resolver;
mod response;
mod target;

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use qo::{Context, Json, StopReason, TaskError, TaskHandler, TaskType};
use qo_store::runtime::Runtime;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response};

pub use address::is_public;
pub use target::{Headers, Target, TargetError};

use super::output::output;
use resolver::{GuardedResolver, PrivateAddress};

/// Time limit for connecting. The whole request may take as long as the attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum part of an unsuccessful response in an error.
const ERROR_BODY_MAX_BYTES: usize = 2 * 1024;

/// Settings shared by all requests of a worker.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    client: Client,
    headers: HeaderMap,
    output_max_bytes: u64,
    runtime: Arc<dyn Runtime>,
}

impl HttpSettings {
    /// Creates the client. Fails if TLS is needed and the system's certificates cannot be read. Without `needs_tls` the client then
    /// trusts no certificate, which allows plain HTTP in a container without certificates.
    pub fn new(
        headers: HeaderMap,
        output_max_bytes: u64,
        allow_private: bool,
        needs_tls: bool,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, reqwest::Error> {
        // reqwest uses the process-wide crypto provider. An error means that the store's client has already set it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            Client::builder()
                .user_agent(concat!("qo/", env!("CARGO_PKG_VERSION")))
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .referer(false)
                .connect_timeout(CONNECT_TIMEOUT)
                .dns_resolver(GuardedResolver { allow_private })
        };
        let client = match builder().build() {
            Err(_) if !needs_tls => builder().tls_certs_only([]).build()?,
            built => built?,
        };
        Ok(Self {
            client,
            headers,
            output_max_bytes,
            runtime,
        })
    }

    /// Sends a POST, with the headers of this worker and its own. A response of any status is a response.
    pub(super) async fn post(
        &self,
        target: &Target,
        headers: HeaderMap,
        body: String,
        timeout: Option<Duration>,
    ) -> Result<Response, TaskError> {
        let request = self
            .client
            .post(target.url())
            .headers(self.headers.clone())
            .headers(headers)
            .body(body);
        let request = match timeout {
            Some(timeout) => request.timeout(timeout),
            None => request,
        };
        request.send().await.map_err(|error| failure(target, error))
    }

    /// The error for a response other than 2xx. Reads the first bytes of its body.
    pub(super) async fn error_of(&self, response: Response) -> TaskError {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read_error_body(response).await;
        response::error_for(status, &headers, &body, self.runtime.now())
    }
}

/// Sends a request for each attempt of a task type.
#[derive(Debug)]
pub struct HttpHandler {
    task_type: TaskType,
    target: Target,
    settings: HttpSettings,
}

impl HttpHandler {
    /// Creates a handler for one type.
    pub fn new(task_type: TaskType, target: Target, settings: HttpSettings) -> Self {
        Self {
            task_type,
            target,
            settings,
        }
    }

    async fn request(&self, input: Json, context: &Context) -> Result<Option<Json>, TaskError> {
        let body = input.as_str().to_owned();
        let response = self
            .settings
            .post(&self.target, task_headers(context), body, None)
            .await?;
        if response.status().is_success() {
            return self.read_output(response).await;
        }
        Err(self.settings.error_of(response).await)
    }

    /// Reads the body of a successful response as the output.
    async fn read_output(&self, mut response: Response) -> Result<Option<Json>, TaskError> {
        let max_bytes = self.settings.output_max_bytes;
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| failure(&self.target, error))?
        {
            if body.len() as u64 + chunk.len() as u64 > max_bytes {
                return Err(TaskError::permanent(format!(
                    "{} responded with more than {max_bytes} bytes; raise the worker's --max-output, \
                     or let the server store the output and return its location",
                    self.target
                )));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(output(&body))
    }
}

/// Reads the first bytes of a response, for an error text.
async fn read_error_body(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() >= ERROR_BODY_MAX_BYTES {
            body.truncate(ERROR_BODY_MAX_BYTES);
            break;
        }
    }
    body
}

/// The error for a request without a complete response. It is retryable, unless the address is not allowed.
fn failure(target: &Target, error: reqwest::Error) -> TaskError {
    // The query of the URL may contain a secret.
    let error = error.without_url();
    let mut causes = Vec::new();
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(private) = cause.downcast_ref::<PrivateAddress>() {
            return TaskError::permanent(private);
        }
        causes.push(cause.to_string());
        source = cause.source();
    }
    // The outer errors are generic ("error sending request", "client error"); the innermost one is specific.
    let cause = causes.pop().unwrap_or_else(|| error.to_string());
    let problem = if error.is_connect() {
        "cannot be reached"
    } else {
        "sent no complete response"
    };
    TaskError::retryable(format!("{target} {problem}: {cause}"))
}

#[async_trait]
impl TaskHandler for HttpHandler {
    fn task_type(&self) -> &str {
        self.task_type.as_str()
    }

    async fn handle(&self, input: Json, context: Context) -> Result<Option<Json>, TaskError> {
        let stop = context.cancellation().cancelled();
        tokio::select! {
            biased;
            result = self.request(input, &context) => result,
            () = stop => Err(match context.stop_reason() {
                Some(StopReason::TimedOut) => TaskError::Timeout,
                _ => TaskError::Cancelled,
            }),
        }
    }
}

/// The headers that describe the task. All values consist of characters allowed in headers.
fn task_headers(context: &Context) -> HeaderMap {
    let task = context.task();
    let id = task.id.to_string();
    let headers = [
        (HeaderName::from_static("idempotency-key"), id.clone()),
        (HeaderName::from_static("qo-task-id"), id),
        (
            HeaderName::from_static("qo-task-type"),
            task.task_type.to_string(),
        ),
        (
            HeaderName::from_static("qo-attempt"),
            context.attempt().to_string(),
        ),
        (HeaderName::from_static("qo-queue"), task.queue.to_string()),
        (
            HeaderName::from_static("qo-max-retries"),
            task.max_retries.to_string(),
        ),
        (
            HeaderName::from_static("qo-deadline"),
            context.deadline().to_string(),
        ),
        (
            HeaderName::from_static("qo-worker-id"),
            context.worker().to_string(),
        ),
    ];
    let mut headers: HeaderMap = headers
        .into_iter()
        .filter_map(|(name, value)| Some((name, HeaderValue::from_str(&value).ok()?)))
        .collect();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(index) = context.log_index() {
        headers.insert(
            HeaderName::from_static("qo-log-index"),
            HeaderValue::from(index),
        );
    }
    headers
}
