//! Answers: JSON, or a problem.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use qo::{EngineError, Error};
use qo_remote::wire::problem::PROBLEM_TYPE;
use qo_remote::wire::{Condition, Problem};
use serde::Serialize;

/// A request that is not done. The envelope writes the problem down, with the request's name in it.
#[derive(Debug, Clone)]
pub(crate) struct Refusal(pub(crate) Box<Problem>);

pub(crate) type Answer = Result<Response, Refusal>;

impl Refusal {
    pub(crate) fn new(condition: Condition, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::new(condition, detail)))
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(Condition::BadRequest, detail)
    }

    /// The answer, written down.
    pub(crate) fn write(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A problem is made of texts and numbers, which can be written.
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = self.clone().write();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        Self(Box::new(Problem::from(error)))
    }
}

/// The problem that an error of the library is.
pub(crate) fn problem_of(error: &Error) -> Problem {
    match error {
        Error::Engine(error) => Problem::from(error),
        Error::TooManyFailures { .. } => Problem::new(Condition::BadRequest, error.to_string()),
        other => Problem::new(Condition::BadRequest, other.to_string()),
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self(Box::new(problem_of(&error)))
    }
}

/// The answers to the parts of an array, unless the queue was not served here: then the whole request is refused, so that its client
/// repeats it elsewhere, as it does with a single one.
pub(crate) fn json_of_parts<'a, T: Serialize>(
    bytes: usize,
    answers: &'a [T],
    problem: impl Fn(&'a T) -> Option<&'a Problem>,
) -> Answer {
    let is_elsewhere = |condition: &Condition| {
        matches!(condition, Condition::NotLeader { .. } | Condition::Closed)
    };
    let mut problems = answers.iter().filter_map(problem);
    match problems.find(|problem| is_elsewhere(&problem.condition)) {
        Some(problem) => Err(Refusal(Box::new(problem.clone()))),
        None => json_of_about(bytes, &answers),
    }
}

/// JSON.
pub(crate) fn json(body: &impl Serialize) -> Answer {
    json_with(StatusCode::OK, body)
}

/// JSON of about so many bytes, so that a large answer is not moved again and again while it grows.
pub(crate) fn json_of_about(bytes: usize, body: &impl Serialize) -> Answer {
    let mut text = Vec::with_capacity(bytes);
    match serde_json::to_writer(&mut text, body) {
        Ok(()) => Ok(raw_json(StatusCode::OK, text)),
        Err(error) => Err(unwritable(&error)),
    }
}

fn unwritable(error: &serde_json::Error) -> Refusal {
    Refusal::new(
        Condition::Internal,
        format!("the answer cannot be written: {error}"),
    )
}

/// JSON, with another status than 200.
pub(crate) fn json_with(status: StatusCode, body: &impl Serialize) -> Answer {
    match serde_json::to_vec(body) {
        Ok(text) => Ok(raw_json(status, text)),
        Err(error) => Err(unwritable(&error)),
    }
}

/// A text that is JSON already.
pub(crate) fn raw_json(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Done, and nothing to say.
pub(crate) fn nothing() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
