//! The dashboard, whose files are compiled into the program.

use axum::body::Body;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use qo_remote::wire::Condition;
use qo_ui::assets::{self, Asset};

use crate::response::ApiError;

/// Redirects to the page. The address is relative, because a proxy may serve the server below a path.
pub(crate) async fn redirect() -> Redirect {
    Redirect::temporary("ui/")
}

/// The page.
pub(crate) async fn page(headers: HeaderMap) -> Response {
    respond(assets::find(""), &headers)
}

/// One of its files.
pub(crate) async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    respond(assets::find(&path), &headers)
}

fn respond(asset: Option<&'static Asset>, request: &HeaderMap) -> Response {
    let Some(asset) = asset else {
        let error = ApiError::new(Condition::NoRoute, "the dashboard has no such file");
        return error.into_response();
    };
    let is_unchanged = request.get(IF_NONE_MATCH).is_some_and(|tag| {
        // The tag of a compressed response is weak.
        let tag = tag.as_bytes();
        tag.strip_prefix(b"W/").unwrap_or(tag) == asset.etag().as_bytes()
    });
    let mut response = Response::new(if is_unchanged {
        Body::empty()
    } else {
        Body::from(asset.bytes)
    });
    if is_unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, asset.content_type()),
        (CACHE_CONTROL, assets::CACHE_CONTROL),
        (ETAG, asset.etag()),
        (CONTENT_SECURITY_POLICY, assets::CONTENT_SECURITY_POLICY),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
