//! Pages of other origins that may use the API: a dashboard in a bucket that asks a server.
//!
//! A browser lets a page read the responses of another origin only if these name the page's origin, and asks first whether a request with a
//! token is allowed. Such a request still needs its token. Therefore only a server with tokens can allow other origins.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Method, Uri};
use thiserror::Error;
use tower_http::cors::CorsLayer;

/// How long a browser remembers what is allowed.
const MAX_AGE: Duration = Duration::from_hours(1);

/// The origin of a page: scheme, host and port, as a browser sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(HeaderValue);

/// A text is not an origin.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not an origin; it consists of http:// or https://, a host and perhaps a port, such as https://bucket.example.org"
)]
pub struct BadOrigin {
    text: String,
}

impl FromStr for Origin {
    type Err = BadOrigin;

    fn from_str(text: &str) -> Result<Self, BadOrigin> {
        let bad = || BadOrigin {
            text: text.to_owned(),
        };
        let uri: Uri = text.parse().map_err(|_| bad())?;
        let scheme = uri.scheme_str().unwrap_or_default();
        let authority = uri.authority().ok_or_else(bad)?.as_str();
        let is_web = matches!(scheme, "http" | "https");
        if !is_web || authority.contains('@') || uri.path() != "/" || uri.query().is_some() {
            return Err(bad());
        }
        // A browser sends no default port.
        let default_port = if scheme == "http" { ":80" } else { ":443" };
        let authority = authority.strip_suffix(default_port).unwrap_or(authority);
        let origin = format!("{scheme}://{authority}").to_ascii_lowercase();
        HeaderValue::try_from(origin).map(Self).map_err(|_| bad())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or_default())
    }
}

/// Answers the questions of browsers, and names the origin in responses to the pages of these origins.
pub(crate) fn layer(origins: &[Origin]) -> CorsLayer {
    let request_headers = [
        AUTHORIZATION,
        CONTENT_TYPE,
        HeaderName::from_static("qo-actor"),
    ];
    CorsLayer::new()
        .allow_origin(
            origins
                .iter()
                .map(|origin| origin.0.clone())
                .collect::<Vec<_>>(),
        )
        .allow_methods([
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ])
        .allow_headers(request_headers)
        .expose_headers([RETRY_AFTER, HeaderName::from_static("qo-time")])
        .max_age(MAX_AGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_a_browser_sends() {
        for (text, origin) in [
            ("https://bucket.example.org", "https://bucket.example.org"),
            ("https://Bucket.example.org/", "https://bucket.example.org"),
            (
                "https://bucket.example.org:443",
                "https://bucket.example.org",
            ),
            ("http://127.0.0.1:8333", "http://127.0.0.1:8333"),
        ] {
            assert_eq!(text.parse::<Origin>().unwrap().to_string(), origin);
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "*",
            "null",
            "bucket.example.org",
            "ftp://bucket.example.org",
            "https://",
            "https://user@bucket.example.org",
            "https://bucket.example.org/ui/",
            "https://bucket.example.org/?a",
            "https://bucket.example.org\r\nx: y",
        ] {
            assert!(text.parse::<Origin>().is_err(), "{text:?}");
        }
    }
}
