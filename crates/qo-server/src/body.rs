//! Extracts bodies, path parameters and queries. Each has limits, and a violation is reported as a problem.
//!
//! A body is read only after the request was authorized. It has three limits: its own size, the memory that all bodies share, and
//! time, both for each chunk and for the whole body.

use std::fmt::Display;
use std::str::FromStr;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use qo_remote::wire::Condition;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::response::ApiError;

/// The text of a JSON body, and its share of the memory for bodies.
pub(crate) struct JsonText {
    pub(crate) bytes: Bytes,
    _room: Vec<OwnedSemaphorePermit>,
}

impl JsonText {
    /// Parses it.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        parse(&self.bytes)
    }

    /// Parses it as a value that may borrow from it.
    pub(crate) fn borrow<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ApiError> {
        parse(&self.bytes)
    }

    /// Whether it is an array.
    pub(crate) fn is_array(&self) -> bool {
        let first = self.bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        first == Some(&b'[')
    }
}

/// Parses JSON, or reports the position of the error.
pub(crate) fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, ApiError> {
    serde_json::from_slice(text)
        .map_err(|error| ApiError::new(Condition::BadBody, format!("the body is invalid: {error}")))
}

impl FromRequest<App> for JsonText {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        if !is_json(&parts) {
            return Err(ApiError::new(
                Condition::BadMediaType,
                "send JSON, with `Content-Type: application/json`",
            ));
        }
        read(app, &parts, body).await
    }
}

/// A parsed JSON body.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let text = JsonText::from_request(request, app).await?;
        Ok(Self(text.parse()?))
    }
}

/// An optional JSON body.
pub(crate) struct OptionalBody<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<App> for OptionalBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let text = read(app, &parts, body).await?;
        if text.bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        if !is_json(&parts) {
            return Err(ApiError::new(
                Condition::BadMediaType,
                "send JSON, with `Content-Type: application/json`, or no body",
            ));
        }
        Ok(Self(text.parse()?))
    }
}

fn is_json(parts: &Parts) -> bool {
    let value = parts
        .headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media_type = value.and_then(|value| value.split(';').next());
    media_type.is_some_and(|text| text.trim().eq_ignore_ascii_case("application/json"))
}

async fn read(app: &App, parts: &Parts, body: Body) -> Result<JsonText, ApiError> {
    let limits = &app.limits;
    let too_large = || {
        ApiError::new(
            Condition::BodyTooLarge {
                limit: limits.body_max_bytes as u64,
            },
            format!(
                "the body is larger than {} bytes; send less at once",
                limits.body_max_bytes
            ),
        )
    };
    let announced = parts
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limits.body_max_bytes as u64) {
        return Err(too_large());
    }
    let too_slow = || {
        ApiError::new(
            Condition::BodyTimeout,
            "the body did not arrive in time; send it faster, or send less at once",
        )
    };
    let runtime = app.runtime();
    let started = runtime.monotonic();
    let mut chunks = body.into_data_stream();
    let (mut first, mut joined) = (Bytes::new(), BytesMut::new());
    let mut room = Vec::new();
    let mut length = 0;
    loop {
        let left = limits
            .body_timeout
            .saturating_sub(runtime.monotonic().saturating_sub(started));
        let chunk = tokio::select! {
            biased;
            chunk = chunks.next() => chunk,
            () = runtime.sleep(limits.body_idle_timeout.min(left)) => return Err(too_slow()),
        };
        let Some(chunk) = chunk else { break };
        let chunk = chunk.map_err(|error| {
            ApiError::new(
                Condition::BadBody,
                format!("the body was interrupted: {error}"),
            )
        })?;
        length += chunk.len();
        if length > limits.body_max_bytes {
            return Err(too_large());
        }
        let permits = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        match std::sync::Arc::clone(&app.body_room).try_acquire_many_owned(permits) {
            Ok(permit) => room.push(permit),
            Err(_) => {
                return Err(ApiError::new(
                    Condition::Overloaded,
                    "the bodies of all requests together take too much memory; try again in a moment",
                ));
            }
        }
        if first.is_empty() && joined.is_empty() {
            first = chunk;
        } else {
            if joined.is_empty() {
                // The announced length is within the limit.
                let announced = announced.and_then(|length| usize::try_from(length).ok());
                joined.reserve(announced.unwrap_or(0).max(first.len() + chunk.len()));
                joined.extend_from_slice(&first);
            }
            joined.extend_from_slice(&chunk);
        }
    }
    let bytes = if joined.is_empty() {
        first
    } else {
        joined.freeze()
    };
    Ok(JsonText { bytes, _room: room })
}

/// The parameter of the path.
pub(crate) struct PathParam<T>(pub(crate) T);

impl<T: FromStr<Err: Display>> FromRequestParts<App> for PathParam<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Path(text) = Path::<String>::from_request_parts(parts, app)
            .await
            .map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
        let value = text
            .parse()
            .map_err(|error: T::Err| ApiError::bad_request(error.to_string()))?;
        Ok(Self(value))
    }
}

/// The query string.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<App> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Query(value) = Query::<T>::from_request_parts(parts, app)
            .await
            .map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
        Ok(Self(value))
    }
}
