//! The routes: one table of paths, who may use them, and what serves them.
//!
//! The router is built from the table, and a test holds the OpenAPI document against it.

pub(crate) mod bulk;
pub(crate) mod dashboard;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod operation;
pub(crate) mod query;
pub(crate) mod queues;
pub(crate) mod reference;
pub(crate) mod tasks;
pub(crate) mod work;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, post, put};
use http::Method;
use qo_remote::wire::Condition;

use crate::answer::Refusal;
use crate::app::App;
use crate::middleware::{Access, authorize, envelope};
use crate::tokens::Scope;

/// One route.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    serve: MethodRouter<App>,
}

const SUBMIT: Access = Access::AnyOf(&[Scope::Submit]);
const WORK: Access = Access::AnyOf(&[Scope::Work]);
const READ: Access = Access::AnyOf(&[Scope::Read]);
/// A worker reads the task that it does, and whether it is asked to stop.
const READ_OR_WORK: Access = Access::AnyOf(&[Scope::Read, Scope::Work]);
const ADMIN: Access = Access::AnyOf(&[Scope::Admin]);

/// Every route there is.
pub(crate) fn table() -> Vec<Route> {
    let mut table = about_tasks();
    table.extend(about_work());
    table.extend(about_the_rest());
    table
}

fn reads(path: &'static str, access: Access, serve: MethodRouter<App>) -> Route {
    row(Method::GET, path, access, serve)
}

fn writes(path: &'static str, access: Access, serve: MethodRouter<App>) -> Route {
    row(Method::POST, path, access, serve)
}

fn row(method: Method, path: &'static str, access: Access, serve: MethodRouter<App>) -> Route {
    Route {
        method,
        path,
        access,
        serve,
    }
}

fn about_tasks() -> Vec<Route> {
    use operation::{archive, cancel, purge, replay, run_now, unarchive};
    use tasks::{history, input, list, output, read, submit, versions};
    vec![
        writes("/v1/tasks", SUBMIT, post(submit)),
        reads("/v1/tasks", READ, get(list)),
        reads("/v1/tasks/{id}", READ_OR_WORK, get(read)),
        row(Method::DELETE, "/v1/tasks/{id}", ADMIN, delete(purge)),
        reads("/v1/tasks/{id}/input", READ_OR_WORK, get(input)),
        reads("/v1/tasks/{id}/output", READ_OR_WORK, get(output)),
        reads("/v1/tasks/{id}/history", READ, get(history)),
        reads("/v1/tasks/{id}/versions", READ, get(versions)),
        writes("/v1/tasks/{id}/cancel", ADMIN, post(cancel)),
        writes("/v1/tasks/{id}/run_now", ADMIN, post(run_now)),
        writes("/v1/tasks/{id}/replay", ADMIN, post(replay)),
        writes("/v1/tasks/{id}/archive", ADMIN, post(archive)),
        writes("/v1/tasks/{id}/unarchive", ADMIN, post(unarchive)),
        writes("/v1/bulk", ADMIN, post(bulk::bulk)),
    ]
}

fn about_work() -> Vec<Route> {
    use operation::{complete, fail, outcomes, progress, release, renew, snooze};
    use work::{claim, deregister, heartbeat};
    const WORKER: &str = "/v1/workers/{worker}";
    vec![
        writes("/v1/claim", WORK, post(claim)),
        writes("/v1/outcomes", WORK, post(outcomes)),
        writes("/v1/tasks/{id}/complete", WORK, post(complete)),
        writes("/v1/tasks/{id}/fail", WORK, post(fail)),
        writes("/v1/tasks/{id}/release", WORK, post(release)),
        writes("/v1/tasks/{id}/renew", WORK, post(renew)),
        writes("/v1/tasks/{id}/snooze", WORK, post(snooze)),
        writes("/v1/tasks/{id}/progress", WORK, post(progress)),
        row(Method::PUT, WORKER, WORK, put(heartbeat)),
        row(Method::DELETE, WORKER, WORK, delete(deregister)),
    ]
}

fn about_the_rest() -> Vec<Route> {
    use health::{health, metrics, ready};
    use queues::{pause, resume};
    use reference::{document, page, script, style};
    vec![
        reads("/v1/info", Access::Known, get(query::info)),
        reads("/v1/stats", READ, get(query::stats)),
        reads("/v1/workers", READ, get(query::workers)),
        reads("/v1/events", READ, get(events::events)),
        writes("/v1/queues/{queue}/pause", ADMIN, post(pause)),
        writes("/v1/queues/{queue}/resume", ADMIN, post(resume)),
        reads("/v1/openapi.json", Access::Free, get(document)),
        reads("/docs", Access::Free, get(page)),
        reads("/docs/reference.js", Access::Free, get(script)),
        reads("/docs/reference.css", Access::Free, get(style)),
        reads("/healthz", Access::Free, get(health)),
        reads("/readyz", Access::Free, get(ready)),
        reads("/metrics", READ, get(metrics)),
    ]
}

/// The router of all routes.
pub(crate) fn router(app: &App) -> Router {
    let mut router = Router::new();
    for route in table() {
        let guard = from_fn_with_state((app.clone(), route.access), authorize);
        router = router.route(route.path, route.serve.route_layer(guard));
    }
    // The dashboard's files are no part of the API, and of its document: everybody may read them, and they hold nothing.
    router
        .route("/", get(dashboard::redirect))
        .route("/ui", get(dashboard::redirect))
        .route("/ui/", get(dashboard::page))
        .route("/ui/{*path}", get(dashboard::file))
        .fallback(async || {
            Refusal::new(
                Condition::NoRoute,
                "there is no such route; /docs shows those that there are",
            )
        })
        .method_not_allowed_fallback(async || {
            Refusal::new(
                Condition::NoMethod,
                "the route does not take this method; /docs shows those that it takes",
            )
        })
        .layer(from_fn_with_state(app.clone(), envelope))
        .with_state(app.clone())
}
