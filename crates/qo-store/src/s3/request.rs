//! Signed requests to S3 that `object_store` does not know, with a small retry.
//!
//! Everything sent from here is idempotent: reads, whole settings that are put in place of what was there, and the removal
//! of one version that has a name. A request that is applied twice, or applied and then reported as failed, therefore does
//! no harm, and the retry needs no read-back.

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

/// How often a request is sent before its failure is reported.
const MAX_ATTEMPTS: u32 = 4;
/// The longest pause before the second attempt; it doubles with each further one.
const FIRST_PAUSE_MS: u64 = 100;
/// The largest answer that is read: a stored object, or a page of versions.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// What to send.
pub(super) struct Request<'a> {
    pub(super) method: Method,
    /// The key within the bucket, prefix included; empty for the bucket itself.
    pub(super) key: &'a str,
    /// Names and values; a name alone where the value is empty.
    pub(super) query: &'a [(&'a str, &'a str)],
    /// The XML document to put.
    pub(super) body: Option<String>,
    /// What this is, for an error.
    pub(super) operation: &'static str,
}

/// What came of it: the body, or the status and the code of a refusal.
pub(super) enum Answer {
    Body(Bytes),
    Refused { status: u16, code: String },
}

impl S3AdminSettings {
    /// Sends a request until it is answered or the attempts are used up. A refusal whose meaning depends on what was
    /// asked, 404 and 405, is given back; every other one is an error.
    pub(super) async fn send(&self, request: &Request<'_>) -> Result<Answer, StoreError> {
        let started = self.runtime.monotonic();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let failure = match self.send_once(request).await? {
                Ok(body) => return Ok(Answer::Body(body)),
                Err(failure) => failure,
            };
            if let ResponseError::Status { status, code, .. } = &failure
                && let 404 | 405 = status
            {
                return Ok(Answer::Refused {
                    status: *status,
                    code: code.clone().unwrap_or_default(),
                });
            }
            if attempts < MAX_ATTEMPTS && may_pass(&failure) {
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
        request: &Request<'_>,
    ) -> Result<Result<Bytes, ResponseError>, StoreError> {
        // Signed anew each time: a signature holds the time, and credentials expire.
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
        request: &Request<'_>,
        response: HttpResponse,
    ) -> Result<Result<Bytes, ResponseError>, StoreError> {
        match read_bounded(response.into_body(), MAX_ANSWER_BYTES).await {
            Ok((body, false)) => Ok(Ok(body)),
            Ok((_, true)) => Err(StoreError::Unsupported {
                operation: request.operation,
                detail: "the answer is larger than 64 MiB".to_owned(),
            }),
            Err(error) => Ok(Err(ResponseError::NoResponse {
                detail: format!("the answer broke off: {error}"),
            })),
        }
    }

    async fn sign(&self, request: &Request<'_>) -> Result<HttpRequest, StoreError> {
        let cannot = |detail: String| StoreError::Unavailable {
            key: self.name_of(request.key),
            detail,
            attempts: 0,
            elapsed: Duration::ZERO,
            in_doubt: false,
        };
        let credential = self.credentials.get_credential().await.map_err(|_| {
            // The error may quote what a credential endpoint answered.
            cannot("no credentials could be had".to_owned())
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
            // AWS takes no lifecycle or CORS document without a checksum.
            let checksum = base64(digest(&SHA256, body).as_ref());
            builder = builder
                .header("x-amz-checksum-sha256", checksum)
                .header("content-type", HeaderValue::from_static("application/xml"))
                .header("content-length", body.len());
        }
        let body = body.map_or_else(HttpRequestBody::empty, HttpRequestBody::from);
        let mut signed = builder
            .body(body)
            .map_err(|_| cannot("the key makes no valid address".to_owned()))?;
        AwsAuthorizer::new(&credential, "s3", &self.region)
            .try_authorize(&mut signed, None)
            .map_err(|_| cannot("the request could not be signed".to_owned()))?;
        Ok(signed)
    }

    /// What an error calls this key: the key as the caller knows it, or the bucket.
    pub(super) fn name_of(&self, key: &str) -> String {
        if key.is_empty() {
            format!("bucket {}", self.bucket)
        } else {
            self.without_prefix(key).unwrap_or(key).to_owned()
        }
    }

    fn explain(
        &self,
        request: &Request<'_>,
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

/// Whether sending the same again can end otherwise.
fn may_pass(failure: &ResponseError) -> bool {
    match failure {
        ResponseError::NoResponse { .. } => true,
        // Two settings written at once collide with 409 OperationAborted.
        ResponseError::Status { status, .. } => {
            matches!(status, 408 | 409 | 429 | 500 | 502 | 503 | 504)
        }
    }
}
