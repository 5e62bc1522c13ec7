//! Signed S3 requests that `object_store` lacks, with a simple retry.
//!
//! All of these requests are idempotent: reads, replacements of whole settings, and removals of one version by id.
//! Applying a request twice, or applying it and reporting a failure, is therefore harmless, and the retry needs no
//! read-back.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use object_store::aws::AwsAuthorizer;
use object_store::client::{HttpError, HttpRequest, HttpRequestBody, HttpResponse};
use ring::digest::{SHA256, digest};

use super::S3AdminSettings;
use super::encoding::{base64, percent_encode};
use crate::error::StoreError;
use crate::http_layer::{read_bounded, read_error};
use crate::response::ResponseError;
use crate::runtime::RuntimeExt;

/// The maximum number of attempts.
const MAX_ATTEMPTS: u32 = 4;
/// The maximum pause before the second attempt. It doubles with each attempt.
const FIRST_PAUSE_MS: u64 = 100;
/// The maximum size of a response: a stored object, or a page of versions.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;

/// A request.
pub(super) struct AdminRequest<'a> {
    pub(super) method: Method,
    /// The key in the bucket, including the prefix; empty for the bucket itself.
    pub(super) key: &'a str,
    /// Names and values. A parameter with an empty value is sent as its name alone.
    pub(super) query: &'a [(&'a str, &'a str)],
    /// The XML document to send.
    pub(super) body: Option<String>,
    /// The operation, for error messages.
    pub(super) operation: &'static str,
}

/// The response: a body, or the status and code of a refusal.
pub(super) enum AdminReply {
    Body(Bytes),
    Refused { status: u16, code: String },
}

impl S3AdminSettings {
    /// Sends a request until it gets a response or the attempts are exhausted. 404 and 405 are returned, because
    /// their meaning depends on the request. Every other error response is an error.
    pub(super) async fn send(&self, request: &AdminRequest<'_>) -> Result<AdminReply, StoreError> {
        let started = self.runtime.monotonic();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let failure = match self.send_once(request).await? {
                Ok(body) => return Ok(AdminReply::Body(body)),
                Err(failure) => failure,
            };
            if let ResponseError::Status { status, code, .. } = &failure
                && let 404 | 405 = status
            {
                return Ok(AdminReply::Refused {
                    status: *status,
                    code: code.clone().unwrap_or_default(),
                });
            }
            if attempts < MAX_ATTEMPTS && is_transient(&failure) {
                let bound_ms = FIRST_PAUSE_MS << (attempts - 1);
                let pause_ms = self.runtime.random_below(bound_ms + 1);
                self.runtime.sleep(Duration::from_millis(pause_ms)).await;
                continue;
            }
            let elapsed = self.runtime.monotonic().saturating_sub(started);
            return Err(self.explain(request, &failure, attempts, elapsed));
        }
    }

    async fn send_once(
        &self,
        request: &AdminRequest<'_>,
    ) -> Result<Result<Bytes, ResponseError>, StoreError> {
        // Signed for each attempt, because a signature contains the time and credentials expire.
        let signed = self.sign(request).await?;
        let response = match self.client.execute(signed).await {
            Ok(response) => response,
            Err(error) => return Ok(Err(failure_of(&error))),
        };
        if !response.status().is_success() {
            return Ok(Err(read_error(response).await.1));
        }
        self.read(request, response).await
    }

    async fn read(
        &self,
        request: &AdminRequest<'_>,
        response: HttpResponse,
    ) -> Result<Result<Bytes, ResponseError>, StoreError> {
        match read_bounded(response.into_body(), MAX_RESPONSE_BYTES).await {
            Ok((body, false)) => Ok(Ok(body)),
            Ok((_, true)) => Err(StoreError::Unsupported {
                operation: request.operation,
                detail: "the response is larger than 64 MiB".to_owned(),
            }),
            Err(error) => Ok(Err(ResponseError::NoResponse {
                detail: format!("the response was interrupted: {error}"),
            })),
        }
    }

    async fn sign(&self, request: &AdminRequest<'_>) -> Result<HttpRequest, StoreError> {
        let cannot = |detail: String| StoreError::Unavailable {
            key: self.name_of(request.key),
            detail,
            attempts: 0,
            elapsed: Duration::ZERO,
            in_doubt: false,
        };
        let credential = self.credentials.get_credential().await.map_err(|_| {
            // The error may quote the response of a credential endpoint.
            cannot("no credentials are available".to_owned())
        })?;
        let mut address = self.bucket_url.clone();
        if !request.key.is_empty() {
            address.push('/');
            address.push_str(&percent_encode(request.key, true));
        }
        for (index, (name, value)) in request.query.iter().enumerate() {
            address.push(if index == 0 { '?' } else { '&' });
            address.push_str(name);
            if !value.is_empty() {
                address.push('=');
                address.push_str(&percent_encode(value, false));
            }
        }
        let body = request.body.as_ref().map(|body| Bytes::from(body.clone()));
        let mut builder = http::Request::builder()
            .method(request.method.clone())
            .uri(address);
        if let Some(body) = &body {
            // AWS requires a checksum for lifecycle and CORS documents.
            let checksum = base64(digest(&SHA256, body).as_ref());
            builder = builder
                .header("x-amz-checksum-sha256", checksum)
                .header("content-type", HeaderValue::from_static("application/xml"))
                .header("content-length", body.len());
        }
        let body = body.map_or_else(HttpRequestBody::empty, HttpRequestBody::from);
        let mut signed = builder
            .body(body)
            .map_err(|_| cannot("the key gives no valid URL".to_owned()))?;
        AwsAuthorizer::new(&credential, "s3", &self.region)
            .try_authorize(&mut signed, None)
            .map_err(|_| cannot("the request could not be signed".to_owned()))?;
        Ok(signed)
    }

    /// The name of a key in errors: the key without the prefix, or the bucket.
    pub(super) fn name_of(&self, key: &str) -> String {
        if key.is_empty() {
            format!("bucket {}", self.bucket)
        } else {
            self.without_prefix(key).unwrap_or(key).to_owned()
        }
    }

    fn explain(
        &self,
        request: &AdminRequest<'_>,
        failure: &ResponseError,
        attempts: u32,
        elapsed: Duration,
    ) -> StoreError {
        let key = self.name_of(request.key);
        let detail = failure.to_string();
        match failure {
            ResponseError::Status {
                status: 401 | 403, ..
            } => StoreError::Denied { key, detail },
            ResponseError::Status { status, code, .. }
                if *status == 501
                    || matches!(code.as_deref(), Some("NotImplemented" | "MethodNotAllowed")) =>
            {
                StoreError::Unsupported {
                    operation: request.operation,
                    detail,
                }
            }
            ResponseError::Status {
                status: 400, code, ..
            } if is_about_credentials(code.as_deref()) => StoreError::Denied { key, detail },
            ResponseError::Status { status: 400, .. } => StoreError::Unsupported {
                operation: request.operation,
                detail,
            },
            ResponseError::Status { status, .. }
                if *status == StatusCode::TOO_MANY_REQUESTS.as_u16() || is_throttling(failure) =>
            {
                StoreError::Throttled {
                    key,
                    detail,
                    attempts,
                }
            }
            _ => StoreError::Unavailable {
                key,
                detail,
                attempts,
                elapsed,
                in_doubt: request.method != Method::GET,
            },
        }
    }
}

pub(super) fn failure_of(error: &HttpError) -> ResponseError {
    error
        .source()
        .and_then(|source| source.downcast_ref::<ResponseError>())
        .cloned()
        .unwrap_or_else(|| ResponseError::NoResponse {
            detail: error.to_string(),
        })
}

fn is_about_credentials(code: Option<&str>) -> bool {
    matches!(
        code,
        Some(
            "ExpiredToken"
                | "InvalidToken"
                | "TokenRefreshRequired"
                | "AuthorizationHeaderMalformed"
        )
    )
}

fn is_throttling(failure: &ResponseError) -> bool {
    matches!(
        failure,
        ResponseError::Status { code, .. }
            if matches!(code.as_deref(), Some("SlowDown" | "Throttling" | "RequestLimitExceeded"))
    )
}

/// Whether a retry may succeed.
fn is_transient(failure: &ResponseError) -> bool {
    match failure {
        ResponseError::NoResponse { .. } => true,
        // Two concurrent writes of settings conflict with 409 OperationAborted.
        ResponseError::Status { status, .. } => {
            matches!(status, 408 | 409 | 429 | 500 | 502 | 503 | 504)
        }
    }
}
