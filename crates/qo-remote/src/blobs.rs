//! The blobs of a queue behind the HTTP API.
//!
//! An upload is held on this side first ([`Spool`]), so that its address is known, a known blob is not sent, and a request that failed can
//! be sent again. A download that breaks is not continued: its reader gets an error.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{StreamExt, try_unfold};
use qo_blob::spool::Spool;
use qo_blob::{
    BlobAddress, BlobError, BlobInfo, BlobPage, BlobStore, BlobStream, GcOptions, GcReport,
    PutBlob, ReadBlob, verified,
};
use qo_engine::{Engine, EngineError};
use qo_store::StoreError;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, RANGE};
use reqwest::{Body, Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;

use crate::connection::Connection;
use crate::transport::causes;
use crate::wire::{BlobDeleted, BlobGcBody, Problem};

/// No server accepts more. The server of a queue has a limit of its own.
const MAX_BYTES: u64 = 64 * 1024 * 1024 * 1024;
/// The header with the time at which a blob was stored.
const STORED_AT_HEADER: &str = "qo-stored-at";

/// The blobs of a queue behind the HTTP API.
#[derive(Clone)]
pub struct RemoteBlobs {
    connection: Arc<Connection>,
}

impl RemoteBlobs {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self { connection }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        add: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, BlobError> {
        match self.respond(method, path, add).await? {
            Ok(response) => Ok(response),
            Err(problem) => Err(problem.into_blob_error(&self.connection.server_url())),
        }
    }

    async fn respond(
        &self,
        method: Method,
        path: &str,
        add: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Result<Response, Box<Problem>>, BlobError> {
        let connection = &self.connection;
        let writes = !matches!(method, Method::GET | Method::HEAD);
        let sent = connection.retry(path, Duration::ZERO, writes, |server| {
            let (method, add) = (method.clone(), &add);
            async move { connection.exchange_stream(&server, method, path, add).await }
        });
        Ok(sent.await?.0)
    }

    async fn json<T: DeserializeOwned>(&self, response: Response) -> Result<T, BlobError> {
        let body = response.bytes().await.map_err(|error| self.broken(error))?;
        serde_json::from_slice(&body).map_err(|error| {
            let what = format!("an unreadable response ({error})");
            BlobError::Engine(self.connection.invalid_response(&what))
        })
    }

    fn broken(&self, error: reqwest::Error) -> BlobError {
        BlobError::Store(StoreError::Unavailable {
            key: self.connection.server_url(),
            detail: causes(&error.without_url()),
            attempts: 1,
            elapsed: Duration::ZERO,
            in_doubt: false,
        })
    }

    fn size_of(&self, response: &Response) -> Result<u64, BlobError> {
        let length = response.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
        let missing = || self.connection.invalid_response("a blob without a length");
        length.ok_or_else(|| missing().into())
    }

    fn stream(&self, response: Response) -> BlobStream {
        let start = (self.clone(), response);
        try_unfold(start, |(blobs, mut response)| async move {
            let chunk = response.chunk().await;
            let chunk = chunk.map_err(|error| blobs.broken(error))?;
            Ok(chunk.map(|chunk| (chunk, (blobs, response))))
        })
        .boxed()
    }
}

impl fmt::Debug for RemoteBlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteBlobs")
            .field(&self.connection)
            .finish()
    }
}

fn plain(builder: RequestBuilder) -> RequestBuilder {
    builder
}

#[async_trait]
impl BlobStore for RemoteBlobs {
    fn max_bytes(&self) -> u64 {
        MAX_BYTES
    }

    async fn put(
        &self,
        body: BlobStream,
        expected: Option<BlobAddress>,
    ) -> Result<PutBlob, BlobError> {
        let spool = Spool::receive(body, MAX_BYTES, expected).await?;
        let (address, size) = (spool.address(), spool.size());
        match self.touch(address).await {
            Ok(_) => {
                return Ok(PutBlob {
                    address,
                    size,
                    created: false,
                });
            }
            Err(BlobError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        let path = format!("/blobs/{address}");
        let response = self.send(Method::PUT, &path, |builder| {
            builder
                .header(CONTENT_TYPE, "application/octet-stream")
                .header(CONTENT_LENGTH, size)
                .body(Body::wrap_stream(spool.stream()))
        });
        self.json(response.await?).await
    }

    async fn get(
        &self,
        address: BlobAddress,
        range: Option<Range<u64>>,
    ) -> Result<ReadBlob, BlobError> {
        let path = format!("/blobs/{address}");
        let Some(range) = range else {
            let response = self.send(Method::GET, &path, plain).await?;
            let size = self.size_of(&response)?;
            return Ok(ReadBlob {
                address,
                size,
                range: 0..size,
                body: verified(address, self.stream(response)),
            });
        };
        let size = self.head(address).await?.size;
        BlobError::check_range(address, &range, size)?;
        let value = format!("bytes={}-{}", range.start, range.end - 1);
        let response = self.send(Method::GET, &path, |builder| builder.header(RANGE, &value));
        let response = response.await?;
        if self.size_of(&response)? != range.end - range.start {
            let error = self.connection.invalid_response("another range");
            return Err(error.into());
        }
        Ok(ReadBlob {
            address,
            size,
            range,
            body: self.stream(response),
        })
    }

    async fn head(&self, address: BlobAddress) -> Result<BlobInfo, BlobError> {
        let path = format!("/blobs/{address}");
        let response = match self.respond(Method::HEAD, &path, plain).await? {
            Ok(response) => response,
            // The response to a HEAD request has no body that could say more.
            Err(problem) if problem.status == 404 => return Err(BlobError::NotFound { address }),
            Err(problem) => return Err(problem.into_blob_error(&self.connection.server_url())),
        };
        let stored_at = response.headers().get(STORED_AT_HEADER);
        let stored_at = stored_at.and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(BlobInfo {
            address,
            size: self.size_of(&response)?,
            stored_at: stored_at.unwrap_or_else(|| self.connection.now()),
        })
    }

    async fn touch(&self, address: BlobAddress) -> Result<BlobInfo, BlobError> {
        let path = format!("/blobs/{address}/touch");
        let response = self.send(Method::POST, &path, plain).await?;
        self.json(response).await
    }

    async fn list(&self, after: Option<BlobAddress>, limit: usize) -> Result<BlobPage, BlobError> {
        let mut path = format!("/blobs?limit={limit}");
        if let Some(after) = after {
            path = format!("{path}&after={after}");
        }
        let response = self.send(Method::GET, &path, plain).await?;
        self.json(response).await
    }

    async fn delete(&self, address: BlobAddress) -> Result<bool, BlobError> {
        let path = format!("/blobs/{address}");
        let response = self.send(Method::DELETE, &path, plain).await?;
        let deleted: BlobDeleted = self.json(response).await?;
        Ok(deleted.deleted)
    }

    /// The server collects, with its own engine.
    async fn gc(&self, _engine: &dyn Engine, options: &GcOptions) -> Result<GcReport, BlobError> {
        let body = BlobGcBody {
            grace_seconds: Some(options.grace_ms / 1_000),
            dry_run: options.dry_run,
        };
        let body = serde_json::to_vec(&body)
            .map_err(|error| EngineError::BadRequest(error.to_string()))?;
        let response = self.send(Method::POST, "/blobs/gc", |builder| {
            builder
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone())
        });
        self.json(response.await?).await
    }
}
