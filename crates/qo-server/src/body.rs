//! Extracts bodies, path parameters and queries. Each has limits, and a violation is reported as a problem.
//!
//! A body is read only after the request was authorized. It has three limits: its own size, the memory that all bodies share, and
//! time, both for each chunk and for the whole body. Its share of the memory is taken until the request has ended ([`BodyPermits`]),
//! because the values that were parsed from it live as long. Arrays are bounded while they are parsed, so that a body cannot take
//! many times its size.

use std::cell::Cell;
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::HeaderValue;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use qo::WorkerInfo;
use qo_remote::wire::cluster::MemberBody;
use qo_remote::wire::operation::{
    CancelBody, CompleteBody, FailBody, ProgressBody, RedriveBody, ReleaseBody, RenewBody,
    SnoozeBody,
};
use qo_remote::wire::token::TokenBody;
use qo_remote::wire::{
    BackfillBody, BlobGcBody, BulkBody, ClaimBody, Condition, JobClaimBody, JobCompleteBody,
    JobCreateBody, JobTickleBody, LimitBody, PauseBody, QueueSettingsBody, ScheduleBody,
    SettingsBody, WebhookBody,
};
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::response::ApiError;

/// The largest body without a payload. Its lists have bounded lengths, and its texts bounded sizes.
const SMALL_BODY_MAX_BYTES: usize = 1024 * 1024;

/// The share of a request in the memory for bodies. The middleware holds it until the request has ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct BodyPermits(Arc<Mutex<Vec<OwnedSemaphorePermit>>>);

impl BodyPermits {
    fn take(&self, permit: OwnedSemaphorePermit) {
        let mut permits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match permits.first_mut() {
            Some(all) => all.merge(permit),
            None => permits.push(permit),
        }
    }
}

/// A JSON body with one value.
pub(crate) trait RequestBody: DeserializeOwned {
    /// Its maximum size, unless the server's own limit is smaller.
    const MAX_BYTES: usize = SMALL_BODY_MAX_BYTES;
}

impl RequestBody for BlobGcBody {}
impl RequestBody for BulkBody {
    /// 100,000 ids.
    const MAX_BYTES: usize = 8 * 1024 * 1024;
}
impl RequestBody for CancelBody {}
impl RequestBody for ClaimBody {}
impl RequestBody for MemberBody {}
/// It has an output.
impl RequestBody for CompleteBody {
    const MAX_BYTES: usize = usize::MAX;
}
impl RequestBody for FailBody {}
impl RequestBody for JobClaimBody {}
impl RequestBody for JobCompleteBody {}
impl RequestBody for JobCreateBody {}
impl RequestBody for JobTickleBody {}
impl RequestBody for PauseBody {}
impl RequestBody for ProgressBody {}
impl RequestBody for QueueSettingsBody {}
impl RequestBody for RedriveBody {}
impl RequestBody for ReleaseBody {}
impl RequestBody for RenewBody {}
impl RequestBody for BackfillBody {}
impl RequestBody for ScheduleBody {}
impl RequestBody for LimitBody {}
/// It has the inputs of tasks.
impl RequestBody for SettingsBody {
    const MAX_BYTES: usize = usize::MAX;
}
impl RequestBody for SnoozeBody {}
impl RequestBody for TokenBody {}
impl RequestBody for WebhookBody {}
impl RequestBody for WorkerInfo {}

/// The text of a JSON body.
pub(crate) struct JsonText {
    pub(crate) bytes: Bytes,
}

impl JsonText {
    /// Parses it.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        parse(&self.bytes)
    }

    /// Parses it as the object of a request. An array is refused: serde would take its items for the fields of the object.
    fn parse_object<T: RequestBody>(&self) -> Result<T, ApiError> {
        if self.is_array() {
            return Err(ApiError::new(
                Condition::BadBody,
                "the body is invalid: expected an object, not an array",
            ));
        }
        self.parse()
    }

    /// Parses it as an array of at most `max` items. The rest of a longer array is not read.
    pub(crate) fn parse_array<'a, T: Deserialize<'a>>(
        &'a self,
        max: usize,
    ) -> Result<Vec<T>, ArrayError> {
        let is_too_long = Cell::new(false);
        let items = Items {
            max,
            is_too_long: &is_too_long,
            item: PhantomData,
        };
        let mut deserializer = serde_json::Deserializer::from_slice(&self.bytes);
        let parsed = items
            .deserialize(&mut deserializer)
            .and_then(|items| deserializer.end().map(|()| items));
        parsed.map_err(|error| {
            if is_too_long.get() {
                ArrayError::TooLong
            } else {
                ArrayError::Invalid(invalid(&error))
            }
        })
    }

    /// Whether it is an array.
    pub(crate) fn is_array(&self) -> bool {
        let first = self.bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        first == Some(&b'[')
    }
}

/// Parses JSON, or reports the position of the error.
pub(crate) fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, ApiError> {
    serde_json::from_slice(text).map_err(|error| invalid(&error))
}

fn invalid(error: &serde_json::Error) -> ApiError {
    ApiError::new(Condition::BadBody, format!("the body is invalid: {error}"))
}

/// Why a body is not an array of at most so many items.
pub(crate) enum ArrayError {
    TooLong,
    Invalid(ApiError),
}

/// Parses an array, up to its first item too many.
struct Items<'a, T> {
    max: usize,
    is_too_long: &'a Cell<bool>,
    item: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Items<'_, T> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<T>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<'_, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Vec<T>, A::Error> {
        let mut items = Vec::new();
        while items.len() < self.max {
            match array.next_element()? {
                Some(item) => items.push(item),
                None => return Ok(items),
            }
        }
        if array.next_element::<IgnoredAny>()?.is_some() {
            self.is_too_long.set(true);
            return Err(A::Error::custom("the array is too long"));
        }
        Ok(items)
    }
}

impl FromRequest<App> for JsonText {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        ensure_json(&parts)?;
        read(app, &parts, body, app.limits.body_max_bytes).await
    }
}

/// A parsed JSON body.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: RequestBody> FromRequest<App> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        ensure_json(&parts)?;
        let max = app.limits.body_max_bytes.min(T::MAX_BYTES);
        Ok(Self(read(app, &parts, body, max).await?.parse_object()?))
    }
}

/// An optional JSON body.
pub(crate) struct OptionalBody<T>(pub(crate) T);

impl<T: RequestBody + Default> FromRequest<App> for OptionalBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let max = app.limits.body_max_bytes.min(T::MAX_BYTES);
        let text = read(app, &parts, body, max).await?;
        if text.bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        if !is_json(&parts) {
            return Err(ApiError::new(
                Condition::BadMediaType,
                "send JSON, with `Content-Type: application/json`, or no body",
            ));
        }
        Ok(Self(text.parse_object()?))
    }
}

fn ensure_json(parts: &Parts) -> Result<(), ApiError> {
    if is_json(parts) {
        return Ok(());
    }
    Err(ApiError::new(
        Condition::BadMediaType,
        "send JSON, with `Content-Type: application/json`",
    ))
}

/// A compressed body could be a thousand times larger than its limit.
fn ensure_not_encoded(parts: &Parts) -> Result<(), ApiError> {
    let encodings = parts.headers.get_all(CONTENT_ENCODING);
    let is_plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if encodings.iter().all(is_plain) {
        return Ok(());
    }
    Err(ApiError::new(
        Condition::BadMediaType,
        "the server does not decode bodies: send it without `Content-Encoding`",
    ))
}

fn is_json(parts: &Parts) -> bool {
    let value = parts
        .headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media_type = value.and_then(|value| value.split(';').next());
    media_type.is_some_and(|text| text.trim().eq_ignore_ascii_case("application/json"))
}

async fn read(app: &App, parts: &Parts, body: Body, max: usize) -> Result<JsonText, ApiError> {
    ensure_not_encoded(parts)?;
    let limits = &app.limits;
    let too_large = || {
        ApiError::new(
            Condition::BodyTooLarge { limit: max as u64 },
            format!("the body is larger than {max} bytes; send less at once"),
        )
    };
    let announced = parts
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > max as u64) {
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
    let held = parts.extensions.get::<BodyPermits>().cloned();
    let held = held.unwrap_or_default();
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
        if length > max {
            return Err(too_large());
        }
        let bytes = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        match Arc::clone(&app.body_permits).try_acquire_many_owned(bytes) {
            Ok(permit) => held.take(permit),
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
    Ok(JsonText { bytes })
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
