//! What is the same for every request: its name, the checks before it is served, and what is noted after it.
//!
//! ```text
//! name ──► stopping? ──► meant for another? ──► from another site? ──► leader? ──► route ──► token and scope ──► handler ──► still leader? ──► name, time, log, metrics
//! ```

use std::panic::AssertUnwindSafe;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::header::{AUTHORIZATION, HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue};
use qo_remote::wire::{
    BROKER_HEADER, Condition, REQUEST_ID_HEADER, REQUEST_ID_MAX_BYTES, TIME_HEADER,
};
use qo_store::runtime::RuntimeExt;

use crate::answer::Refusal;
use crate::app::App;
use crate::tokens::{Barred, Caller, Scope};

/// The name of a request: the client's, or one that was drawn here.
#[derive(Debug, Clone)]
pub(crate) struct RequestName(pub(crate) String);

/// What every request passes through.
pub(crate) async fn envelope(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let started = app.runtime().monotonic();
    let name = name_of(request.headers()).unwrap_or_else(|| app.runtime().new_op_id().to_string());
    request.extensions_mut().insert(RequestName(name.clone()));
    let method = request.method().clone();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let needs_leader = route.starts_with("/v1/") && route != "/v1/openapi.json";
    let mut checked = before(&app, &request);
    let mut epoch = None;
    if checked.is_ok() && needs_leader {
        epoch = app.lead().await;
        if epoch.is_none() {
            checked = Err(not_leader(&app));
        }
    }
    let mut response = match checked {
        Err(refusal) => refusal.into_response(),
        Ok(()) => match AssertUnwindSafe(next.run(request)).catch_unwind().await {
            Ok(response) => response,
            Err(panic) => {
                tracing::error!(
                    request_id = name,
                    route,
                    panic = message_of(&*panic),
                    "a request panicked"
                );
                Refusal::new(
                    Condition::Internal,
                    "something broke in the server; its log says more under this request's id",
                )
                .into_response()
            }
        },
    };
    // What was found out as one leader is not told as a later one: another process may have led in between.
    if epoch.is_some() && app.lead().await != epoch {
        response = not_leader(&app).into_response();
    }
    let token = response
        .extensions_mut()
        .remove::<Caller>()
        .map_or_else(String::new, |caller| caller.token);
    let mut stands_by = false;
    if let Some(Refusal(mut problem)) = response.extensions_mut().remove::<Refusal>() {
        stands_by = matches!(problem.condition, Condition::NotLeader { .. });
        problem.request_id = Some(name.clone());
        response = Refusal(problem).write();
    }
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&name) {
        headers.insert(REQUEST_ID_HEADER, value);
    }
    if let Ok(value) = HeaderValue::from_str(&app.now().to_string()) {
        headers.insert(TIME_HEADER, value);
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let took = app.runtime().monotonic().saturating_sub(started);
    let status = response.status().as_u16();
    app.metrics.request(&route, method.as_str(), status, took);
    let elapsed_ms = took.as_millis();
    // A standby refuses everything, which is no trouble; and why a process is not ready is said where that is found out.
    if status >= 500 && !stands_by && route != "/readyz" {
        tracing::warn!(request_id = name, %method, route, status, elapsed_ms, token, "request");
    } else {
        tracing::debug!(request_id = name, %method, route, status, elapsed_ms, token, "request");
    }
    response
}

/// The client's own name of a request, if it has one that can be repeated in headers and logs.
fn name_of(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(REQUEST_ID_HEADER)?.to_str().ok()?;
    let good = |byte: u8| byte.is_ascii_graphic();
    let holds = (1..=REQUEST_ID_MAX_BYTES).contains(&text.len()) && text.bytes().all(good);
    holds.then(|| text.to_owned())
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

fn before(app: &App, request: &Request) -> Result<(), Refusal> {
    if app.is_stopping() {
        return Err(Refusal::new(
            Condition::Stopping,
            "the server is stopping; ask another one, or this one a little later",
        ));
    }
    if let Some(meant) = request.headers().get(BROKER_HEADER) {
        let is_this = app
            .leader
            .as_ref()
            .is_some_and(|leader| meant.as_bytes() == leader.id().as_bytes());
        if !is_this {
            return Err(Refusal::new(
                Condition::Misdirected,
                "at this address is another process than the broker that was meant; the record of who leads names an address that \
                 means different machines to different clients, or an old one",
            ));
        }
    }
    // A token has to be put into a request by whoever sends it. Without tokens, a browser would send requests of any site.
    if app.guard.is_open() {
        from_this_site(app, request)?;
    }
    Ok(())
}

fn not_leader(app: &App) -> Refusal {
    let leader = app.leader.as_ref().and_then(|leader| leader.elsewhere());
    let detail = match &leader {
        Some(address) => format!("this process stands by; the leader is at {address}"),
        None => {
            "this process does not lead, and knows of no leader; ask again in a moment".to_owned()
        }
    };
    Refusal::new(Condition::NotLeader { leader }, detail)
}

/// Refuses what a browser sends on behalf of another site: by its own word, by its origin, and by the name under which it reached
/// the server, which another site's owner could have pointed here.
fn from_this_site(app: &App, request: &Request) -> Result<(), Refusal> {
    let headers = request.headers();
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let refuse = |detail: &str| Err(Refusal::new(Condition::CrossSite, detail));
    let authority =
        text(HOST.as_str()).or_else(|| request.uri().authority().map(http::uri::Authority::as_str));
    let Some(authority) = authority else {
        return refuse("the request names no host");
    };
    if !is_own_host(app, host_of(authority)) {
        return refuse(
            "the request names a host that is not this machine; reach the server as localhost, or tell it its names",
        );
    }
    if let Some(site) = text("sec-fetch-site")
        && !matches!(site, "same-origin" | "none")
    {
        return refuse(
            "a browser sent this for another site; a server without tokens takes none of those",
        );
    }
    if let Some(origin) = text(ORIGIN.as_str()) {
        let place = origin.split_once("://").map_or(origin, |(_, place)| place);
        if !place.eq_ignore_ascii_case(authority) {
            return refuse(
                "the request comes from another origin; a server without tokens takes none of those",
            );
        }
    }
    Ok(())
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
    let is_loopback = |address: std::net::IpAddr| address.is_loopback();
    host == "localhost" || host.parse().is_ok_and(is_loopback) || app.hosts.contains(&host)
}

/// Who may use a route.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Access {
    /// Everybody.
    Free,
    /// Everybody with a token.
    Known,
    /// Whoever has one of these scopes.
    AnyOf(&'static [Scope]),
}

/// Lets a request through to its handler if its token allows it. Its body has not been read by then.
pub(crate) async fn authorize(
    State((app, access)): State<(App, Access)>,
    mut request: Request,
    next: Next,
) -> Response {
    match admit(&app, access, request.headers()).await {
        Err(refusal) => refusal.into_response(),
        Ok(None) => next.run(request).await,
        Ok(Some(caller)) => {
            request.extensions_mut().insert(caller.clone());
            let mut response = next.run(request).await;
            // For the log.
            response.extensions_mut().insert(caller);
            response
        }
    }
}

async fn admit(app: &App, access: Access, headers: &HeaderMap) -> Result<Option<Caller>, Refusal> {
    let needed: &[Scope] = match access {
        Access::Free => return Ok(None),
        Access::Known => &Scope::ALL,
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
        .map_err(|barred| match barred {
            Barred::Unknown(detail) => Refusal::new(Condition::Unauthorized, detail),
            Barred::Unreadable(detail) => Refusal::new(Condition::Overloaded, detail),
        })?;
    if caller.may(needed) {
        return Ok(Some(caller));
    }
    let names: Vec<_> = needed.iter().map(|scope| scope.as_str()).collect();
    Err(Refusal::new(
        Condition::Forbidden,
        format!(
            "the token {} has not the scope {}",
            caller.token,
            names.join(" or ")
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_from_ports() {
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
    fn names_of_requests_are_bounded() {
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID_HEADER, HeaderValue::from_str(value).unwrap());
            name_of(&headers)
        };
        assert_eq!(with("abc-1"), Some("abc-1".to_owned()));
        assert_eq!(with("a b"), None);
        assert_eq!(with(""), None);
        assert_eq!(with(&"x".repeat(REQUEST_ID_MAX_BYTES + 1)), None);
    }
}
