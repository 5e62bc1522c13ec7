//! Compresses responses with gzip for clients that accept it.
//!
//! Only bodies that are complete in memory and consist of text are compressed: JSON, and the files of the dashboard. Streams and blobs
//! are sent as they are.

use std::io::Write;

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};

/// A smaller body fits into one or two packets anyway.
const MIN_BYTES: u64 = 1_024;
/// A larger body is compressed on a thread of its own, because it would delay other requests.
const INLINE_MAX_BYTES: usize = 64 * 1_024;

/// Compresses the response if that is worthwhile and the client accepts it.
pub(crate) async fn compress(request: Request, next: Next) -> Response {
    let is_accepted = accepts_gzip(request.headers());
    let mut response = next.run(request).await;
    if !is_compressible(&response) {
        return response;
    }
    let headers = response.headers_mut();
    headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    if !is_accepted {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // The body is complete in memory, so this copies nothing and cannot fail.
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let compressed = if body.len() <= INLINE_MAX_BYTES {
        gzip(&body)
    } else {
        let copy = body.clone();
        let compressing = tokio::task::spawn_blocking(move || gzip(&copy));
        compressing.await.ok().flatten()
    };
    let Some(compressed) = compressed else {
        return Response::from_parts(parts, Body::from(body));
    };
    parts
        .headers
        .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.remove(CONTENT_LENGTH);
    // A strong tag names exact bytes, and these are different ones.
    if let Some(weak) = parts.headers.get(ETAG).and_then(weak_tag) {
        parts.headers.insert(ETAG, weak);
    }
    Response::from_parts(parts, Body::from(compressed))
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let mut codings = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','));
    codings.any(|coding| {
        let mut words = coding.split(';').map(str::trim);
        let is_gzip = words
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let is_refused = words.any(|word| {
            let weight = word.strip_prefix("q=").or_else(|| word.strip_prefix("Q="));
            weight.is_some_and(|weight| weight.parse() == Ok(0.0_f32))
        });
        is_gzip && !is_refused
    })
}

fn is_compressible(response: &Response) -> bool {
    let headers = response.headers();
    let is_text = headers.get(CONTENT_TYPE).is_some_and(|value| {
        let text = value.to_str().unwrap_or_default();
        let kind = text.split(';').next().unwrap_or_default().trim();
        matches!(
            kind,
            "application/json"
                | "application/problem+json"
                | "image/svg+xml"
                | "application/javascript"
        ) || (kind.starts_with("text/") && kind != "text/event-stream")
    });
    is_text
        && response.status() != StatusCode::PARTIAL_CONTENT
        && !headers.contains_key(CONTENT_ENCODING)
        && response.body().size_hint().exact() >= Some(MIN_BYTES)
}

fn gzip(body: &Bytes) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body).ok()?;
    encoder.finish().ok()
}

fn weak_tag(tag: &HeaderValue) -> Option<HeaderValue> {
    let text = tag.to_str().ok()?;
    let is_strong = !text.starts_with("W/");
    is_strong.then(|| HeaderValue::from_str(&format!("W/{text}")).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_understood() {
        let accepts = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(text));
            accepts_gzip(&headers)
        };
        assert!(accepts("gzip"));
        assert!(accepts("br, GZIP;q=0.5"));
        assert!(!accepts("br"));
        assert!(!accepts("gzip;q=0"));
        assert!(!accepts("gzip; q=0.000"));
        assert!(!accepts("xgzip"));
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
