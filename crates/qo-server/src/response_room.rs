//! The memory that pages and payloads in responses share.

use std::sync::Arc;

use axum::body::Bytes;
use http::StatusCode;
use qo_remote::wire::Condition;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::response::{ApiError, ApiResult, raw_json, unwritable};

/// The memory that pages and payloads in responses share.
#[derive(Debug)]
pub(crate) struct ResponseRoom(Arc<Semaphore>);

/// The share of one response. It is returned when the response was sent.
#[derive(Debug)]
pub(crate) struct TakenRoom(OwnedSemaphorePermit);

impl ResponseRoom {
    pub(crate) fn new(max_bytes: usize) -> Self {
        // The limit of a semaphore is far above any sensible setting.
        Self(Arc::new(Semaphore::new(
            max_bytes.min(Semaphore::MAX_PERMITS),
        )))
    }

    /// Takes room for a response, before its tasks or its payload are read.
    pub(crate) fn take(&self, bytes: usize) -> Result<TakenRoom, ApiError> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        match Arc::clone(&self.0).try_acquire_many_owned(permits) {
            Ok(permit) => Ok(TakenRoom(permit)),
            Err(_) => Err(ApiError::new(
                Condition::Overloaded,
                "the responses to all requests together take too much memory; try again in a moment",
            )),
        }
    }
}

impl TakenRoom {
    /// A body that keeps the room until it was sent or dropped.
    pub(crate) fn hold(self, body: Vec<u8>) -> Bytes {
        Bytes::from_owner(HeldBody {
            body,
            _room: self.0,
        })
    }

    /// A JSON response of about this size.
    pub(crate) fn json(self, bytes: usize, value: &impl Serialize) -> ApiResult {
        let mut text = Vec::with_capacity(bytes);
        match serde_json::to_writer(&mut text, value) {
            Ok(()) => Ok(raw_json(StatusCode::OK, self.hold(text))),
            Err(error) => Err(unwritable(&error)),
        }
    }
}

struct HeldBody {
    body: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}
