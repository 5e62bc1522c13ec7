//! The OpenAPI document and the page that shows it.
//!
//! The page consists of three files that are compiled into the program: it works without internet access, and its content security
//! policy forbids to load anything else.

use std::sync::OnceLock;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use http::{HeaderValue, StatusCode};

use crate::openapi;
use crate::response::{ApiResult, raw_json};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

fn file(content_type: &'static str, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Read this document
#[utoipa::path(
    get, path = "/v1/openapi.json", tag = "run", operation_id = "document", security(()),
    responses((status = 200, description = "The OpenAPI document", body = serde_json::Value))
)]
pub(crate) async fn document() -> ApiResult {
    // The document does not change while the process runs.
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let text = TEXT.get_or_init(|| Bytes::from(openapi::document_json().to_string()));
    Ok(raw_json(StatusCode::OK, text.clone()))
}

/// Read the reference
///
/// A page that shows this document.
#[utoipa::path(
    get, path = "/docs", tag = "run", operation_id = "page", security(()),
    responses((status = 200, description = "The page", body = String, content_type = "text/html"))
)]
pub(crate) async fn page() -> Response {
    file(
        "text/html; charset=utf-8",
        include_str!("../reference/reference.html"),
    )
}

/// Read the page's script
#[utoipa::path(
    get, path = "/docs/reference.js", tag = "run", operation_id = "script", security(()),
    responses((status = 200, description = "The script", body = String, content_type = "text/javascript"))
)]
pub(crate) async fn script() -> Response {
    file(
        "text/javascript; charset=utf-8",
        include_str!("../reference/reference.js"),
    )
}

/// Read the page's style
#[utoipa::path(
    get, path = "/docs/reference.css", tag = "run", operation_id = "style", security(()),
    responses((status = 200, description = "The style", body = String, content_type = "text/css"))
)]
pub(crate) async fn style() -> Response {
    file(
        "text/css; charset=utf-8",
        include_str!("../reference/reference.css"),
    )
}
