//! The HTTP clients for requests and pings.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Certificate, Client};

use super::config::{InvalidServer, Token};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(15);
const POOL_MAX_IDLE: usize = 64;

/// A client for servers that may or may not use TLS. If the system's certificates are unusable, it works without them.
pub(crate) fn client_for_any(
    token: Option<&Token>,
    ca_pem: Option<&[u8]>,
) -> Result<Client, InvalidServer> {
    client(token, ca_pem, true).or_else(|error| {
        tracing::debug!(%error, "cannot use the system's certificates");
        client(token, ca_pem, false)
    })
}

/// A client that does not retry and does not follow redirects.
pub(crate) fn client(
    token: Option<&Token>,
    ca_pem: Option<&[u8]>,
    https: bool,
) -> Result<Client, InvalidServer> {
    // reqwest uses the cryptography provider of the process. An error means that one is installed already: keep it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut headers = HeaderMap::new();
    if let Some(token) = token {
        let value = format!("Bearer {}", token.as_str());
        let mut value = HeaderValue::from_str(&value).map_err(|_| InvalidServer::Token)?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let mut builder = Client::builder()
        .user_agent(concat!("qo/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .pool_max_idle_per_host(POOL_MAX_IDLE)
        .tcp_nodelay(true);
    if let Some(pem) = ca_pem {
        let bad = |error: reqwest::Error| InvalidServer::Certificates(error.to_string());
        let certificates = Certificate::from_pem_bundle(pem).map_err(bad)?;
        if certificates.is_empty() {
            let empty = "the file contains no certificate".to_owned();
            return Err(InvalidServer::Certificates(empty));
        }
        builder = builder.tls_certs_merge(certificates);
    } else if !https {
        // A minimal container has no certificates, and plain HTTP needs none.
        builder = builder.tls_certs_only(Vec::new());
    }
    builder
        .build()
        .map_err(|error| InvalidServer::Client(causes(&error)))
}

/// The error and all its causes.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
