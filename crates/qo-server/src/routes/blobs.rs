//! Blobs: bytes that are stored under their SHA-256 digest.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures_util::stream::{StreamExt, TryStreamExt, try_unfold};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use qo::blob::{BlobStream, GcOptions, gc};
use qo::{BlobAddress, BlobError, BlobStore, Error};
use qo_remote::wire::{
    BlobDeleted, BlobGcBody, BlobListQuery, Condition, PAGE_MAX, Problem, schema,
};

use crate::app::App;
use crate::author::Author;
use crate::body::{OptionalBody, PathParam, QueryParams};
use crate::response::{ApiError, ApiResult, json, json_with_status};

/// The blobs in one page, unless the request says otherwise.
const PAGE_DEFAULT: usize = 100;
/// The header with the time at which a blob was stored.
const STORED_AT_HEADER: HeaderName = HeaderName::from_static("qo-stored-at");

impl From<BlobError> for ApiError {
    fn from(error: BlobError) -> Self {
        Self(Box::new(Problem::from(&error)))
    }
}

/// The blobs of the queue.
pub(crate) fn blobs(app: &App) -> Result<Arc<dyn BlobStore>, ApiError> {
    app.queue.blobs().map_err(|error| match error {
        Error::NoBlobs => ApiError::new(Condition::NoBlobs, error.to_string()),
        error => error.into(),
    })
}

/// Upload a blob
///
/// The body is the blob, of any type and up to the limit of the store. The response has its address.
#[utoipa::path(
    put, path = "/blobs", tag = "blobs", operation_id = "put_blob",
    request_body(content = schema::Binary, content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "The blob is new", body = schema::PutBlobRecord),
        (status = 200, description = "The blob was stored before", body = schema::PutBlobRecord)
    )
)]
pub(crate) async fn put(State(app): State<App>, request: Request) -> ApiResult {
    store(&app, None, request).await
}

/// Upload a blob whose address is known
///
/// If the bytes do not have this address, nothing is stored.
#[utoipa::path(
    put, path = "/blobs/{address}", tag = "blobs", operation_id = "put_blob_at",
    params(("address" = schema::Address, Path, description = "The blob")),
    request_body(content = schema::Binary, content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "The blob is new", body = schema::PutBlobRecord),
        (status = 200, description = "The blob was stored before", body = schema::PutBlobRecord)
    )
)]
pub(crate) async fn put_at(
    State(app): State<App>,
    PathParam(address): PathParam<BlobAddress>,
    request: Request,
) -> ApiResult {
    store(&app, Some(address), request).await
}

async fn store(app: &App, expected: Option<BlobAddress>, request: Request) -> ApiResult {
    let blobs = blobs(app)?;
    let announced = request.headers().get(CONTENT_LENGTH);
    let announced: Option<u64> = announced.and_then(|value| value.to_str().ok()?.parse().ok());
    let max_bytes = blobs.max_bytes();
    if announced.is_some_and(|size| size > max_bytes) {
        return Err(BlobError::TooLarge { max_bytes }.into());
    }
    let Ok(_room) = app.blob_uploads.try_acquire() else {
        return Err(ApiError::new(
            Condition::Overloaded,
            "the server is already receiving its maximum number of blobs; try again in a moment",
        ));
    };
    let put = blobs
        .put(upload(app, request.into_body()), expected)
        .await?;
    let status = if put.created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    json_with_status(status, &put)
}

/// The body of a request as a stream that does not wait forever.
fn upload(app: &App, body: Body) -> BlobStream {
    let runtime = Arc::clone(app.runtime());
    let idle: Duration = app.limits.body_idle_timeout;
    let start = (body.into_data_stream(), runtime);
    try_unfold(start, move |(mut chunks, runtime)| async move {
        let next = tokio::select! {
            biased;
            next = chunks.next() => next,
            () = runtime.sleep(idle) => {
                let detail = format!("no bytes came for {} seconds", idle.as_secs());
                return Err(BlobError::Upload { detail });
            }
        };
        match next {
            None => Ok(None),
            Some(Ok(chunk)) => Ok(Some((chunk, (chunks, runtime)))),
            Some(Err(error)) => Err(BlobError::Upload {
                detail: error.to_string(),
            }),
        }
    })
    .boxed()
}

/// Download a blob
///
/// A whole blob is verified while it is sent: if its bytes do not have its address, the connection breaks before the last bytes. `Range`
/// with one range of bytes is honoured; the bytes of a range cannot be verified.
#[utoipa::path(
    get, path = "/blobs/{address}", tag = "blobs", operation_id = "get_blob",
    params(
        ("address" = schema::Address, Path, description = "The blob"),
        ("Range" = Option<String>, Header, description = "One range of bytes, such as `bytes=0-1023`, `bytes=1024-` or `bytes=-512`")
    ),
    responses(
        (status = 200, description = "The blob", body = schema::Binary, content_type = "application/octet-stream"),
        (status = 206, description = "The range", body = schema::Binary, content_type = "application/octet-stream")
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    PathParam(address): PathParam<BlobAddress>,
    headers: HeaderMap,
) -> ApiResult {
    let blobs = blobs(&app)?;
    let requested = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let Some(requested) = requested.and_then(RequestedRange::parse) else {
        let mut blob = blobs.get(address, None).await?;
        // A damaged blob in one piece is a problem, not a broken connection.
        let first = blob.body.try_next().await?;
        let rest = futures_util::stream::iter(first.map(Ok)).chain(blob.body);
        return Ok(respond(
            StatusCode::OK,
            address,
            blob.size,
            Body::from_stream(rest),
        ));
    };
    let size = blobs.head(address).await?.size;
    let Some(range) = requested.within(size) else {
        let mut response = ApiError::from(BlobError::BadRange {
            address,
            start: requested.start(size),
            end: requested.end(size),
            size,
        });
        response.0.detail =
            format!("blob {address} has {size} bytes, and the range is outside of them");
        return Err(response);
    };
    let blob = blobs.get(address, Some(range.clone())).await?;
    let length = range.end - range.start;
    let body = Body::from_stream(blob.body);
    let mut response = respond(StatusCode::PARTIAL_CONTENT, address, length, body);
    let value = format!("bytes {}-{}/{size}", range.start, range.end - 1);
    if let Ok(value) = HeaderValue::from_str(&value) {
        response.headers_mut().insert(CONTENT_RANGE, value);
    }
    Ok(response)
}

/// Read the size of a blob
#[utoipa::path(
    head, path = "/blobs/{address}", tag = "blobs", operation_id = "head_blob",
    params(("address" = schema::Address, Path, description = "The blob")),
    responses((status = 200, description = "The blob exists; `Content-Length` is its size"))
)]
pub(crate) async fn head(
    State(app): State<App>,
    PathParam(address): PathParam<BlobAddress>,
) -> ApiResult {
    let info = blobs(&app)?.head(address).await?;
    let mut response = respond(StatusCode::OK, address, info.size, Body::empty());
    if let Ok(value) = HeaderValue::from_str(&info.stored_at.to_string()) {
        response.headers_mut().insert(STORED_AT_HEADER, value);
    }
    Ok(response)
}

fn respond(status: StatusCode, address: BlobAddress, length: u64, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let fixed = [
        (CONTENT_TYPE, "application/octet-stream"),
        (ACCEPT_RANGES, "bytes"),
        // The bytes of an address never change.
        (CACHE_CONTROL, "private, max-age=31536000, immutable"),
        // A browser must not run what somebody uploaded.
        (CONTENT_DISPOSITION, "attachment"),
        (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    if let Ok(value) = HeaderValue::from_str(&format!("\"{address}\"")) {
        headers.insert(ETAG, value);
    }
    response
}

/// One range of a `Range` header. Other forms are ignored, as HTTP allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestedRange {
    /// From a byte up to and including another, or to the end.
    From(u64, Option<u64>),
    /// The last bytes.
    Last(u64),
}

impl RequestedRange {
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
        let number = |text: &str| text.trim().parse::<u64>().ok();
        match (first.trim(), last.trim()) {
            ("", last) => number(last).map(Self::Last),
            (first, "") => Some(Self::From(number(first)?, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From(first, Some(last)))
            }
        }
    }

    fn start(self, size: u64) -> u64 {
        match self {
            Self::From(first, _) => first,
            Self::Last(count) => size.saturating_sub(count),
        }
    }

    fn end(self, size: u64) -> u64 {
        match self {
            Self::From(_, Some(last)) => last.saturating_add(1),
            Self::From(_, None) | Self::Last(_) => size,
        }
    }

    /// The part of the range that lies within the blob; `None` if there is none.
    fn within(self, size: u64) -> Option<Range<u64>> {
        let range = self.start(size)..self.end(size).min(size);
        (!range.is_empty()).then_some(range)
    }
}

/// Keep a blob
///
/// The garbage collection keeps the blob at least for its grace time. Whoever submits a task that refers to a blob touches the blob first.
#[utoipa::path(
    post, path = "/blobs/{address}/touch", tag = "blobs", operation_id = "touch_blob",
    params(("address" = schema::Address, Path, description = "The blob")),
    responses((status = 200, description = "The blob", body = schema::BlobInfoRecord))
)]
pub(crate) async fn touch(
    State(app): State<App>,
    PathParam(address): PathParam<BlobAddress>,
) -> ApiResult {
    json(&blobs(&app)?.touch(address).await?)
}

/// List blobs
#[utoipa::path(
    get, path = "/blobs", tag = "blobs", operation_id = "list_blobs",
    params(
        ("after" = Option<schema::Address>, Query, description = "The `next` of the page before"),
        ("limit" = Option<u32>, Query, description = "The most blobs to return; 100 by default", minimum = 1, maximum = 1000)
    ),
    responses((status = 200, description = "A page of blobs, by address", body = schema::BlobPageRecord))
)]
pub(crate) async fn list(
    State(app): State<App>,
    QueryParams(query): QueryParams<BlobListQuery>,
) -> ApiResult {
    let limit = query.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(ApiError::bad_request(format!(
            "limit must be from 1 to {PAGE_MAX}"
        )));
    }
    json(&blobs(&app)?.list(query.after, limit).await?)
}

/// Delete a blob
///
/// Even if tasks refer to it.
#[utoipa::path(
    delete, path = "/blobs/{address}", tag = "blobs", operation_id = "delete_blob",
    params(("address" = schema::Address, Path, description = "The blob")),
    responses((status = 200, description = "Whether the blob existed", body = BlobDeleted))
)]
pub(crate) async fn delete(
    State(app): State<App>,
    PathParam(address): PathParam<BlobAddress>,
    author: Author,
) -> ApiResult {
    let deleted = blobs(&app)?.delete(address).await?;
    author.log("delete blob", &address);
    json(&BlobDeleted { deleted })
}

/// Collect blobs that no task refers to
///
/// The response comes when the collection has ended. It stops if the client goes away, and can be repeated.
#[utoipa::path(
    post, path = "/blobs/gc", tag = "blobs", operation_id = "gc_blobs", request_body = Option<BlobGcBody>,
    responses((status = 200, description = "The result", body = schema::GcReportRecord))
)]
pub(crate) async fn collect(
    State(app): State<App>,
    author: Author,
    OptionalBody(body): OptionalBody<BlobGcBody>,
) -> ApiResult {
    let grace_ms = match body.grace_seconds {
        Some(seconds) => seconds.saturating_mul(1_000),
        None => gc::GRACE_DEFAULT_MS,
    };
    let options = GcOptions::new(grace_ms, body.dry_run);
    let report = blobs(&app)?.gc(app.engine(), &options).await?;
    if !body.dry_run {
        author.log("collect blobs", &"blobs that no task refers to");
    }
    json(&report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_http_defines_them() {
        let within = |text: &str, size| RequestedRange::parse(text).map(|range| range.within(size));
        assert_eq!(within("bytes=0-4", 10), Some(Some(0..5)));
        assert_eq!(within("bytes=4-", 10), Some(Some(4..10)));
        assert_eq!(within("bytes=4-100", 10), Some(Some(4..10)));
        assert_eq!(within("bytes=-3", 10), Some(Some(7..10)));
        assert_eq!(within("bytes=-30", 10), Some(Some(0..10)));
        assert_eq!(within("bytes=10-", 10), Some(None));
        assert_eq!(within("bytes=-0", 10), Some(None));
        assert_eq!(within("bytes=0-", 0), Some(None));
        for ignored in [
            "bytes=5-4",
            "bytes=a-b",
            "bytes=0-1,3-4",
            "items=0-1",
            "bytes=",
            "bytes=-",
        ] {
            assert_eq!(RequestedRange::parse(ignored), None, "{ignored}");
        }
    }
}
