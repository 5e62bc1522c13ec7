//! What comes in: bodies, parameters and queries, each bounded, each refused with a problem.
//!
//! A body is read after its sender was let in, never before. It has three bounds: its own size, the room that all bodies
//! share, and time, both for each piece and for the whole.

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

use crate::answer::Refusal;
use crate::app::App;

/// A body that is JSON, as it came, and the room that it takes.
pub(crate) struct JsonText {
    pub(crate) bytes: Bytes,
    _room: Vec<OwnedSemaphorePermit>,
}

impl JsonText {
    /// Reads it as one value.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        parse(&self.bytes)
    }

    /// Reads it as a value that may borrow from it.
    pub(crate) fn borrow<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Refusal> {
        parse(&self.bytes)
    }

    /// Whether it is an array.
    pub(crate) fn is_array(&self) -> bool {
        let first = self.bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        first == Some(&b'[')
    }
}

/// Reads JSON, or says where it is wrong.
pub(crate) fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(text).map_err(|error| {
        Refusal::new(
            Condition::BadBody,
            format!("the body is not what is expected here: {error}"),
        )
    })
}

impl FromRequest<App> for JsonText {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &App) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        if !is_json(&parts) {
            return Err(Refusal::new(
                Condition::BadMediaType,
                "send JSON, with `Content-Type: application/json`",
            ));
        }
        read(app, &parts, body).await
    }
}

/// A body that is JSON of one form.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for JsonBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &App) -> Result<Self, Refusal> {
        let text = JsonText::from_request(request, app).await?;
        Ok(Self(text.parse()?))
    }
}

/// A body that may be left out.
pub(crate) struct MaybeBody<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<App> for MaybeBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &App) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        let text = read(app, &parts, body).await?;
        if text.bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        if !is_json(&parts) {
            return Err(Refusal::new(
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
    let sort = value.and_then(|value| value.split(';').next());
    sort.is_some_and(|sort| sort.trim().eq_ignore_ascii_case("application/json"))
}

async fn read(app: &App, parts: &Parts, body: Body) -> Result<JsonText, Refusal> {
    let limits = &app.limits;
    let too_large = || {
        Refusal::new(
            Condition::BodyTooLarge {
                limit: limits.body_max_bytes as u64,
            },
            format!(
                "the body has more than {} bytes; send less at once",
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
        Refusal::new(
            Condition::BodyTimeout,
            "the body did not come in time; send it faster, or less at once",
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
            Refusal::new(Condition::BadBody, format!("the body broke off: {error}"))
        })?;
        length += chunk.len();
        if length > limits.body_max_bytes {
            return Err(too_large());
        }
        let permits = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        match std::sync::Arc::clone(&app.body_room).try_acquire_many_owned(permits) {
            Ok(taken) => room.push(taken),
            Err(_) => {
                return Err(Refusal::new(
                    Condition::Overloaded,
                    "the bodies of all requests together take too much room; try again in a moment",
                ));
            }
        }
        if first.is_empty() && joined.is_empty() {
            first = chunk;
        } else {
            if joined.is_empty() {
                // What was announced is within the limit.
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

/// The one part of the path that names something.
pub(crate) struct Named<T>(pub(crate) T);

impl<T: FromStr<Err: Display>> FromRequestParts<App> for Named<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let Path(text) = Path::<String>::from_request_parts(parts, app)
            .await
            .map_err(|rejection| Refusal::bad_request(rejection.body_text()))?;
        let value = text
            .parse()
            .map_err(|error: T::Err| Refusal::bad_request(error.to_string()))?;
        Ok(Self(value))
    }
}

/// What stands behind the question mark.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Params<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let Query(value) = Query::<T>::from_request_parts(parts, app)
            .await
            .map_err(|rejection| Refusal::bad_request(rejection.body_text()))?;
        Ok(Self(value))
    }
}
