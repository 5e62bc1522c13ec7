//! `--http TYPE=URL`: a request for each attempt.
//!
//! The input is the body of a POST, the facts of the task are headers, and the answer is the output (`verdict.rs`). Which addresses a
//! request may go to is the business of `address.rs`, which is asked about addresses in the URL by `target.rs` and about resolved names by
//! `resolver.rs`. Redirects are not followed and proxies of the environment are not used, because both would connect to
//! something that was not checked.

mod address;
mod resolver;
mod target;
mod verdict;

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

use super::answer::output;
use resolver::{GuardedResolver, PrivateAddress};

/// How long a connection may take to come about. The request as a whole may take as long as the attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The part of an unsuccessful answer that goes into the error.
const ERROR_BODY_MAX_BYTES: usize = 2 * 1024;

/// What all requests of a worker share.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    client: Client,
    headers: HeaderMap,
    output_max_bytes: u64,
    runtime: Arc<dyn Runtime>,
}

impl HttpSettings {
    /// Makes the client. Fails if the system's certificates are needed and cannot be read; where they are not needed, as in a bare
    /// container that only speaks plain HTTP, the client trusts nobody then.
    pub fn new(
        headers: HeaderMap,
        output_max_bytes: u64,
        allow_private: bool,
        needs_tls: bool,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, reqwest::Error> {
        // reqwest takes its cryptography from the process. An error means that the store's client has set it already.
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
}

/// Makes a request for each attempt of its type.
#[derive(Debug)]
pub struct HttpHandler {
    task_type: TaskType,
    target: Target,
    settings: HttpSettings,
}

impl HttpHandler {
    /// A handler for one type.
    pub fn new(task_type: TaskType, target: Target, settings: HttpSettings) -> Self {
        Self {
            task_type,
            target,
            settings,
        }
    }

    async fn request(&self, input: Json, context: &Context) -> Result<Option<Json>, TaskError> {
        let response = self
            .settings
            .client
            .post(self.target.url())
            .headers(self.settings.headers.clone())
            .headers(facts(context))
            .body(input.as_str().to_owned())
            .send()
            .await
            .map_err(|error| self.failure(error))?;
        if response.status().is_success() {
            return self.answer(response).await;
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let body = self.beginning(response).await;
        let now = self.settings.runtime.now();
        Err(verdict::refusal(status, &headers, &body, now))
    }

    /// The output that the body of a successful answer is.
    async fn answer(&self, mut response: Response) -> Result<Option<Json>, TaskError> {
        let max_bytes = self.settings.output_max_bytes;
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.failure(error))?
        {
            if body.len() as u64 + chunk.len() as u64 > max_bytes {
                return Err(TaskError::permanent(format!(
                    "{} answered with more than {max_bytes} bytes; raise the worker's --max-output, \
                     or let the server keep the output and answer where it is",
                    self.target
                )));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(output(&body))
    }

    /// The first bytes of an answer, for an error's text.
    async fn beginning(&self, mut response: Response) -> Vec<u8> {
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

    /// What a request that got no answer means: another try, unless it may not be made at all.
    fn failure(&self, error: reqwest::Error) -> TaskError {
        // The URL may have a secret in its query.
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
        // The outer layers say "error sending request" and "client error"; what happened is at the bottom.
        let cause = causes.pop().unwrap_or_else(|| error.to_string());
        let what = if error.is_connect() {
            "cannot be reached"
        } else {
            "gave no whole answer"
        };
        TaskError::retryable(format!("{} {what}: {cause}", self.target))
    }
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
            answer = self.request(input, &context) => answer,
            () = stop => Err(match context.stop_reason() {
                Some(StopReason::TimedOut) => TaskError::Timeout,
                _ => TaskError::Cancelled,
            }),
        }
    }
}

/// What a server is told about the task. All of it is made of characters that a header can have.
fn facts(context: &Context) -> HeaderMap {
    let task = context.task();
    let id = task.id.to_string();
    let facts = [
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
    let mut headers: HeaderMap = facts
        .into_iter()
        .filter_map(|(name, value)| Some((name, HeaderValue::from_str(&value).ok()?)))
        .collect();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
}
