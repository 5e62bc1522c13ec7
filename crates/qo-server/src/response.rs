//! Responses: JSON, or a problem.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use qo::{EngineError, Error, ErrorKind};
use qo_core::DocumentKind;
use qo_remote::wire::problem::PROBLEM_TYPE;
use qo_remote::wire::{Condition, Problem};
use serde::Serialize;

use crate::response_room::ResponseRoom;

/// The problem of a failed request. The middleware adds the request id to it.
#[derive(Debug, Clone)]
pub(crate) struct ApiError(pub(crate) Box<Problem>);

/// The result of a route's handler.
pub(crate) type ApiResult = Result<Response, ApiError>;

impl ApiError {
    pub(crate) fn new(condition: Condition, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::new(condition, detail)))
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(Condition::BadRequest, detail)
    }

    /// The HTTP response of the problem.
    pub(crate) fn to_response(&self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A problem consists of strings and numbers, so it can always be serialized.
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Condition::BadRange { size, .. } = self.0.condition
            && let Ok(value) = HeaderValue::from_str(&format!("bytes */{size}"))
        {
            headers.insert(CONTENT_RANGE, value);
        }
        if matches!(
            status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        ) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.to_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        Self(Box::new(Problem::from(error)))
    }
}

/// Converts an error of the library to a problem.
pub(crate) fn problem_of(error: &Error) -> Problem {
    match error {
        Error::Engine(error) => Problem::from(error),
        Error::Blob(error) => Problem::from(error),
        Error::NoSchedule { name } => Problem::new(
            Condition::ScheduleNotFound { name: name.clone() },
            error.to_string(),
        ),
        Error::NoLimit { name } => Problem::new(
            Condition::LimitNotFound { name: name.clone() },
            error.to_string(),
        ),
        Error::NoWebhook { name } => Problem::new(
            Condition::WebhookNotFound { name: name.clone() },
            error.to_string(),
        ),
        // The record was stored by somebody else, so the request is not at fault.
        Error::UnreadableSchedule { name, detail } => Problem::new(
            Condition::StoreCorrupt {
                key: format!("{}/{name}", DocumentKind::Schedules),
                reason: detail.clone(),
            },
            error.to_string(),
        ),
        // This server is too old for the record.
        Error::NewerSchedule { .. } => Problem::new(Condition::Internal, error.to_string()),
        other if other.kind() == ErrorKind::Damaged => {
            Problem::new(Condition::Internal, other.to_string())
        }
        other => Problem::new(Condition::BadRequest, other.to_string()),
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self(Box::new(problem_of(&error)))
    }
}

/// The results of an array request. If this process does not serve the queue, the whole request fails, so that its client retries
/// it at another server, as it does with a single request.
pub(crate) async fn json_results<'a, T: Serialize>(
    room: &ResponseRoom,
    bytes: usize,
    results: &'a [T],
    problem: impl Fn(&'a T) -> Option<&'a Problem>,
) -> ApiResult {
    let is_not_served = |condition: &Condition| {
        matches!(condition, Condition::NotLeader { .. } | Condition::Closed)
    };
    let mut problems = results.iter().filter_map(problem);
    match problems.find(|problem| is_not_served(&problem.condition)) {
        Some(problem) => Err(ApiError(Box::new(problem.clone()))),
        None => room.wait(bytes).await.json(bytes, &results),
    }
}

/// A JSON response with status 200.
pub(crate) fn json(body: &impl Serialize) -> ApiResult {
    json_with_status(StatusCode::OK, body)
}

pub(crate) fn unwritable(error: &serde_json::Error) -> ApiError {
    ApiError::new(
        Condition::Internal,
        format!("cannot serialize the response: {error}"),
    )
}

/// A JSON response with this status.
pub(crate) fn json_with_status(status: StatusCode, body: &impl Serialize) -> ApiResult {
    match serde_json::to_vec(body) {
        Ok(text) => Ok(raw_json(status, text)),
        Err(error) => Err(unwritable(&error)),
    }
}

/// A response whose text is JSON already.
pub(crate) fn raw_json(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A response with status 204 and no body.
pub(crate) fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
