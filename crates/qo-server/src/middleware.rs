//! The middleware of every request: its id, the checks before its handler, and the log and metrics after it.
//!
//! ```text
//! id ──► stopping? ──► for another broker? ──► from another site? ──► leader? ──► route ──► token and scope ──► handler ──► still leader? ──► id, time, log, metrics
//! ```

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::header::{
    AUTHORIZATION, HOST, ORIGIN, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method};
use qo::TaskId;
use qo_remote::wire::{
    BROKER_HEADER, Condition, READ_HEADER, REQUEST_ID_HEADER, REQUEST_ID_MAX_BYTES, STALE,
    TIME_HEADER,
};
use qo_store::runtime::RuntimeExt;

use crate::app::App;
use crate::body::BodyPermits;
use crate::connection_limiter::OpenConnection;
use crate::response::ApiError;
use crate::tokens::{AuthError, Caller, LimitedAccess, Scope};

/// The id of a request: the client's, or a generated one.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

/// Handles every request.
pub(crate) async fn handle(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let started = app.runtime().monotonic();
    let request_id = client_request_id(request.headers())
        .unwrap_or_else(|| app.runtime().new_op_id().to_string());
    request
        .extensions_mut()
        .insert(RequestId(request_id.clone()));
    // What the request takes of the shared memory is returned when it has ended, after its values are dropped.
    let permits = BodyPermits::default();
    request.extensions_mut().insert(permits.clone());
    let method = request.method().clone();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    // Blobs are in the store, which every process of the queue uses, or in the rows of a cluster, which its leader writes. Every node of a
    // cluster shows its own state, and finds out itself whether it can change the members.
    let needs_leader = (route.starts_with("/v1/")
        && !route.starts_with("/v1/cluster")
        && route != "/v1/openapi.json")
        || route.starts_with("/jobs/")
        || (app.cluster.is_some() && route.starts_with("/blobs"));
    let mut checked = check_request(&app, &request);
    let mut epoch = None;
    if checked.is_ok() && needs_leader {
        epoch = app.confirm_leader().await;
        if epoch.is_none() {
            checked = Err(not_leader(&app));
        }
    }
    let mut response = match checked {
        Err(error) => error.into_response(),
        Ok(()) => match AssertUnwindSafe(next.run(request)).catch_unwind().await {
            Ok(response) => response,
            Err(panic) => {
                tracing::error!(
                    request_id,
                    route,
                    panic = message_of(&*panic),
                    "a request panicked"
                );
                ApiError::new(
                    Condition::Internal,
                    "internal server error; the server's log has details under this request id",
                )
                .into_response()
            }
        },
    };
    // A result of one epoch must not be sent in a later one: another process may have led in between.
    if epoch.is_some() && app.confirm_leader().await != epoch {
        response = not_leader(&app).into_response();
    }
    let token = response
        .extensions_mut()
        .remove::<Caller>()
        .map_or_else(String::new, |caller| caller.token);
    let mut is_standby = false;
    if let Some(ApiError(mut problem)) = response.extensions_mut().remove::<ApiError>() {
        is_standby = matches!(problem.condition, Condition::NotLeader { .. });
        problem.request_id = Some(request_id.clone());
        response = ApiError(problem).to_response();
    }
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        headers.insert(REQUEST_ID_HEADER, value);
    }
    if let Ok(value) = HeaderValue::from_str(&app.now().to_string()) {
        headers.insert(TIME_HEADER, value);
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if app.is_stale {
        headers.insert(READ_HEADER, HeaderValue::from_static(STALE));
    }
    if app.has_tls {
        let value = HeaderValue::from_static("max-age=31536000");
        headers.insert(STRICT_TRANSPORT_SECURITY, value);
    }
    let took = app.runtime().monotonic().saturating_sub(started);
    let status = response.status().as_u16();
    app.metrics.request(&route, &method, status, took);
    drop(permits);
    let elapsed_ms = took.as_millis();
    // The refusals of a standby are normal. The handler of /readyz logs why the process is not ready, and the election why a leader is
    // not confirmed.
    let is_health_check = matches!(route.as_str(), "/readyz" | "/healthz");
    if status >= 500 && !is_standby && !is_health_check {
        tracing::warn!(request_id, %method, route, status, elapsed_ms, token, "request");
    } else {
        tracing::debug!(request_id, %method, route, status, elapsed_ms, token, "request");
    }
    response
}

/// The request id of the client, if it has one that is valid in headers and logs.
fn client_request_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(REQUEST_ID_HEADER)?.to_str().ok()?;
    let is_allowed = |byte: u8| byte.is_ascii_graphic();
    let is_valid = (1..=REQUEST_ID_MAX_BYTES).contains(&text.len()) && text.bytes().all(is_allowed);
    is_valid.then(|| text.to_owned())
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

fn check_request(app: &App, request: &Request) -> Result<(), ApiError> {
    // The HTTP library bounds its buffer, which may hold more than one head.
    let limit = app.limits.header_max_bytes;
    if head_bytes(request) > limit {
        let detail = format!(
            "the request's line and headers have more than {limit} bytes; send fewer or shorter headers, or a shorter query"
        );
        let limit = limit as u64;
        return Err(ApiError::new(Condition::HeadTooLarge { limit }, detail));
    }
    // A leader that finishes its requests before it stops still leads: standbys that ping it need not challenge it.
    let is_ping =
        request.uri().path() == "/healthz" && request.headers().contains_key(BROKER_HEADER);
    if app.is_stopping() && !is_ping {
        return Err(ApiError::new(
            Condition::Stopping,
            "the server is stopping; use another server, or try again a little later",
        ));
    }
    let is_health_check = matches!(request.uri().path(), "/healthz" | "/readyz");
    let is_reserve = request
        .extensions()
        .get::<Arc<OpenConnection>>()
        .is_some_and(|connection| connection.is_reserve());
    if is_reserve && !is_health_check {
        return Err(ApiError::new(
            Condition::Overloaded,
            "the server has the maximum number of connections; this one can be used for health checks only",
        ));
    }
    if let Some(broker) = request.headers().get(BROKER_HEADER) {
        let is_this = app
            .leader
            .as_ref()
            .is_some_and(|leader| broker.as_bytes() == leader.id().as_bytes());
        if !is_this {
            return Err(ApiError::new(
                Condition::Misdirected,
                "the request is for another broker than the process at this address; the leader record names an outdated address, or one \
                 that leads different clients to different machines",
            ));
        }
    }
    // A browser does not add tokens to the requests of other sites. Without tokens, it would send the requests of any site.
    if app.guard.is_open() {
        from_this_site(app, request)?;
    }
    Ok(())
}

/// The size of the request's line and headers.
fn head_bytes(request: &Request) -> usize {
    let headers = request.headers().iter();
    // A colon, a space and the end of the line.
    let lines = headers.map(|(name, value)| name.as_str().len() + value.len() + 4);
    let target = request.uri().path_and_query();
    let target = target.map_or(0, |target| target.as_str().len());
    request.method().as_str().len() + target + " HTTP/1.1\r\n".len() + 1 + lines.sum::<usize>()
}

fn not_leader(app: &App) -> ApiError {
    let leader = app
        .leader
        .as_ref()
        .and_then(|leader| leader.leader_address());
    let detail = match &leader {
        Some(address) => format!("this process is a standby; the leader is at {address}"),
        None => "this process does not lead and knows no leader; try again in a moment".to_owned(),
    };
    ApiError::new(Condition::NotLeader { leader }, detail)
}

/// Rejects requests that a browser sends on behalf of another site: by `Sec-Fetch-Site`, by the origin, and by the host name, since
/// the owner of another site could let a name of their own resolve to this server.
fn from_this_site(app: &App, request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let refuse = |detail: &str| Err(ApiError::new(Condition::CrossSite, detail));
    let authority =
        text(HOST.as_str()).or_else(|| request.uri().authority().map(http::uri::Authority::as_str));
    let Some(authority) = authority else {
        return refuse("the request has no Host header");
    };
    if !is_own_host(app, host_of(authority)) {
        return refuse(
            "the request's host is not a name of this server; use localhost, or configure the server's host names",
        );
    }
    if let Some(site) = text("sec-fetch-site")
        && !matches!(site, "same-origin" | "none")
        && !opens_a_page(request)
    {
        return refuse(
            "a browser sent this request for another site; a server without tokens rejects such requests",
        );
    }
    if let Some(origin) = text(ORIGIN.as_str()) {
        let origin_authority = origin.split_once("://").map_or(origin, |(_, rest)| rest);
        if !origin_authority.eq_ignore_ascii_case(authority) {
            return refuse(
                "the request is from another origin; a server without tokens rejects such requests",
            );
        }
    }
    Ok(())
}

/// Whether a browser opens one of the server's pages in a window of its own, as it does for a link on another site. The pages contain no
/// data and cannot be framed, and the requests that they send are their own.
fn opens_a_page(request: &Request) -> bool {
    let is = |name: &str, value: &str| {
        request
            .headers()
            .get(name)
            .is_some_and(|found| found == value)
    };
    request.method() == Method::GET
        && matches!(request.uri().path(), "/" | "/ui" | "/ui/" | "/docs")
        && is("sec-fetch-mode", "navigate")
        && is("sec-fetch-dest", "document")
}

fn host_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => authority
            .rsplit_once(':')
            .map_or(authority, |(host, _)| host),
    }
}

fn is_own_host(app: &App, host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    is_local_name(&host) || app.hosts.contains(&host)
}

/// Whether a host name always means the machine that uses it.
pub(crate) fn is_local_name(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let is_loopback = |address: std::net::IpAddr| address.is_loopback();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.ends_with(".localhost") || address.parse().is_ok_and(is_loopback)
}

/// Who may use a route.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Access {
    /// Everyone.
    Public,
    /// Holders of any token.
    AnyToken,
    /// Holders of a token with one of these scopes.
    AnyOf(&'static [Scope]),
}

/// Passes a request to its handler if its token allows it. The body is not read before.
pub(crate) async fn authorize(
    State((app, access, limited)): State<(App, Access, LimitedAccess)>,
    mut request: Request,
    next: Next,
) -> Response {
    let admitted = match admit(&app, access, request.headers()).await {
        Ok(Some(caller)) => enforce_limits(&app, &caller, limited, request.uri().path())
            .await
            .map(|()| Some(caller)),
        admitted => admitted,
    };
    match admitted {
        Err(error) => error.into_response(),
        Ok(None) => next.run(request).await,
        Ok(Some(caller)) => {
            if let Some(connection) = request.extensions().get::<Arc<OpenConnection>>() {
                connection.set_known();
            }
            request.extensions_mut().insert(caller.clone());
            let mut response = next.run(request).await;
            // For the log.
            response.extensions_mut().insert(caller);
            response
        }
    }
}

/// Refuses the holder of a limited token what is beyond its limits, as far as the path says it.
async fn enforce_limits(
    app: &App,
    caller: &Caller,
    limited: LimitedAccess,
    path: &str,
) -> Result<(), ApiError> {
    let limits = &caller.limits;
    if limits.is_empty() {
        return Ok(());
    }
    // `/v1/tasks/{id}`, `/v1/queues/{queue}/...` or `/v1/types/{type}/...`. An encoded name is refused, because it is no valid name as it is.
    let name = path.split('/').nth(3).unwrap_or_default();
    match limited {
        LimitedAccess::Refused => Err(limits.refuse_route()),
        LimitedAccess::Enforced => Ok(()),
        LimitedAccess::OfQueue => limits.check_queue(name),
        LimitedAccess::OfType => limits.check_type(name),
        LimitedAccess::OfTask => {
            let id = name.parse::<TaskId>();
            let id = id.map_err(|error| ApiError::bad_request(error.to_string()))?;
            Ok(limits.check_task(&app.engine().get(id).await?)?)
        }
    }
}

async fn admit(app: &App, access: Access, headers: &HeaderMap) -> Result<Option<Caller>, ApiError> {
    let needed: &[Scope] = match access {
        Access::Public => return Ok(None),
        Access::AnyToken => &Scope::ALL,
        Access::AnyOf(scopes) => scopes,
    };
    let header = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let token = header.and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let caller = app
        .guard
        .identify(token, app.now())
        .await
        .map_err(|error| match error {
            AuthError::InvalidToken(detail) => ApiError::new(Condition::Unauthorized, detail),
        })?;
    if caller.may(needed) {
        return Ok(Some(caller));
    }
    let names: Vec<_> = needed.iter().map(|scope| scope.as_str()).collect();
    Err(ApiError::new(
        Condition::Forbidden,
        format!("token {} lacks scope {}", caller.token, names.join(" or ")),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_removed_from_hosts() {
        for (authority, host) in [
            ("localhost", "localhost"),
            ("localhost:80", "localhost"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("[::1]:80", "::1"),
            ("[::1]", "::1"),
        ] {
            assert_eq!(host_of(authority), host);
        }
    }

    #[test]
    fn request_ids_are_validated() {
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID_HEADER, HeaderValue::from_str(value).unwrap());
            client_request_id(&headers)
        };
        assert_eq!(with("abc-1"), Some("abc-1".to_owned()));
        assert_eq!(with("a b"), None);
        assert_eq!(with(""), None);
        assert_eq!(with(&"x".repeat(REQUEST_ID_MAX_BYTES + 1)), None);
    }
}
