//! Requests to servers.

use std::time::Duration;

use bytes::Bytes;
use qo_core::Actor;
use qo_engine::EngineError;
use reqwest::Method;
use serde::Serialize;

/// A request to a server.
pub(super) struct HttpRequest {
    pub(super) method: Method,
    /// The path below the server's URL, with its query.
    pub(super) path: String,
    pub(super) body: Option<Bytes>,
    /// How long the server may wait before it responds.
    pub(super) wait: Duration,
    /// Who requests it.
    pub(super) actor: Option<Actor>,
}

impl HttpRequest {
    fn new(method: Method, path: String, body: Option<Bytes>) -> Self {
        Self {
            method,
            path,
            body,
            wait: Duration::ZERO,
            actor: None,
        }
    }

    pub(super) fn get(path: String) -> Self {
        Self::new(Method::GET, path, None)
    }

    pub(super) fn delete(path: String) -> Self {
        Self::new(Method::DELETE, path, None)
    }

    pub(super) fn post(path: String, body: &impl Serialize) -> Result<Self, EngineError> {
        Ok(Self::new(Method::POST, path, Some(to_json(body)?)))
    }

    pub(super) fn put(path: String, body: &impl Serialize) -> Result<Self, EngineError> {
        Ok(Self::new(Method::PUT, path, Some(to_json(body)?)))
    }
}

fn to_json(body: &impl Serialize) -> Result<Bytes, EngineError> {
    serde_json::to_vec(body).map(Bytes::from).map_err(|error| {
        EngineError::BadRequest(format!("the request cannot be written as JSON: {error}"))
    })
}
