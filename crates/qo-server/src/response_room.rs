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
pub(crate) struct ResponseRoom {
    permits: Arc<Semaphore>,
    total: usize,
}

/// The share of one response. It is returned when the response was sent.
#[derive(Debug)]
pub(crate) struct TakenRoom(Option<OwnedSemaphorePermit>);

impl ResponseRoom {
    pub(crate) fn new(max_bytes: usize) -> Self {
        // The limits of a semaphore and of a share are far above any sensible setting.
        let total = max_bytes.min(Semaphore::MAX_PERMITS).min(u32::MAX as usize);
        Self {
            permits: Arc::new(Semaphore::new(total)),
            total,
        }
    }

    /// Takes room for a response, before its tasks or its payload are read.
    pub(crate) fn take(&self, bytes: usize) -> Result<TakenRoom, ApiError> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        match Arc::clone(&self.permits).try_acquire_many_owned(permits) {
            Ok(permit) => Ok(TakenRoom(Some(permit))),
            Err(_) => Err(ApiError::new(
                Condition::Overloaded,
                "the responses to all requests together take too much memory; try again in a moment",
            )),
        }
    }
}

impl ResponseRoom {
    /// Waits for room for a response whose request has already taken effect, so that it cannot be refused. Slow clients are cut off, so
    /// there is room again after a while.
    pub(crate) async fn wait(&self, bytes: usize) -> TakenRoom {
        // A response that is larger than everything gets everything.
        let permits = u32::try_from(bytes.min(self.total)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.permits);
        TakenRoom(room.acquire_many_owned(permits).await.ok())
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
    _room: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}
