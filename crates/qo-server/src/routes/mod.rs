//! The table of routes: paths, access rules and handlers.
//!
//! The router is built from the table, and a test compares the OpenAPI document with it.

pub(crate) mod blobs;
pub(crate) mod bulk;
mod change_route;
pub(crate) mod cluster;
pub(crate) mod dashboard;
mod document_route;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod jobs;
pub(crate) mod limits;
pub(crate) mod list;
pub(crate) mod operation;
pub(crate) mod pauses;
pub(crate) mod query;
pub(crate) mod queues;
pub(crate) mod reference;
pub(crate) mod schedules;
pub(crate) mod settings;
pub(crate) mod tasks;
pub(crate) mod tokens;
pub(crate) mod webhooks;
pub(crate) mod work;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, delete, get, head, post, put};
use http::Method;
use qo_remote::wire::Condition;

use crate::app::App;
use crate::compression::compress;
use crate::middleware::{Access, authorize, handle};
use crate::other_origins;
use crate::response::ApiError;
use crate::tokens::{LimitedAccess, Scope};

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
/// A worker reads the task that it runs, for example to see a cancel request.
const READ_OR_WORK: Access = Access::AnyOf(&[Scope::Read, Scope::Work]);
/// Submitters upload inputs, and workers outputs.
const SUBMIT_OR_WORK: Access = Access::AnyOf(&[Scope::Submit, Scope::Work]);
const ADMIN: Access = Access::AnyOf(&[Scope::Admin]);

/// All routes.
pub(crate) fn table() -> Vec<Route> {
    let mut table = task_routes();
    table.extend(worker_routes());
    table.extend(cluster_routes());
    table.extend(token_routes());
    table.extend(blob_routes());
    table.extend(job_routes());
    table.extend(settings_routes());
    table.extend(queue_routes());
    table.extend(schedule_routes());
    table.extend(limit_routes());
    table.extend(webhook_routes());
    table.extend(other_routes());
    table
}

fn get_route(path: &'static str, access: Access, serve: MethodRouter<App>) -> Route {
    route(Method::GET, path, access, serve)
}

fn post_route(path: &'static str, access: Access, serve: MethodRouter<App>) -> Route {
    route(Method::POST, path, access, serve)
}

fn route(method: Method, path: &'static str, access: Access, serve: MethodRouter<App>) -> Route {
    Route {
        method,
        path,
        access,
        serve,
    }
}

fn task_routes() -> Vec<Route> {
    use list::list;
    use operation::{archive, cancel, purge, redrive, replay, run_now, unarchive};
    use tasks::{history, input, logs, output, read, submit, versions, waits_for};
    vec![
        post_route("/v1/tasks", SUBMIT, post(submit)),
        get_route("/v1/tasks", READ, get(list)),
        get_route("/v1/tasks/{id}", READ_OR_WORK, get(read)),
        route(Method::DELETE, "/v1/tasks/{id}", ADMIN, delete(purge)),
        get_route("/v1/tasks/{id}/input", READ_OR_WORK, get(input)),
        get_route("/v1/tasks/{id}/output", READ_OR_WORK, get(output)),
        get_route("/v1/tasks/{id}/history", READ, get(history)),
        get_route("/v1/tasks/{id}/logs", READ, get(logs)),
        get_route("/v1/tasks/{id}/waits_for", READ, get(waits_for)),
        get_route("/v1/tasks/{id}/versions", READ, get(versions)),
        post_route("/v1/tasks/{id}/cancel", ADMIN, post(cancel)),
        post_route("/v1/tasks/{id}/run_now", ADMIN, post(run_now)),
        post_route("/v1/tasks/{id}/redrive", ADMIN, post(redrive)),
        post_route("/v1/tasks/{id}/replay", ADMIN, post(replay)),
        post_route("/v1/tasks/{id}/archive", ADMIN, post(archive)),
        post_route("/v1/tasks/{id}/unarchive", ADMIN, post(unarchive)),
        post_route("/v1/bulk", ADMIN, post(bulk::bulk)),
        get_route("/v1/bulk", ADMIN, get(bulk::list)),
        get_route("/v1/bulk/{operation}", ADMIN, get(bulk::progress)),
        route(
            Method::DELETE,
            "/v1/bulk/{operation}",
            ADMIN,
            delete(bulk::cancel),
        ),
    ]
}

fn worker_routes() -> Vec<Route> {
    use operation::{complete, fail, outcomes, progress, release, renew, snooze};
    use work::{claim, deregister, heartbeat, quiet, resume, stop};
    const WORKER: &str = "/v1/workers/{worker}";
    vec![
        post_route("/v1/claim", WORK, post(claim)),
        post_route("/v1/outcomes", WORK, post(outcomes)),
        post_route("/v1/tasks/{id}/complete", WORK, post(complete)),
        post_route("/v1/tasks/{id}/fail", WORK, post(fail)),
        post_route("/v1/tasks/{id}/release", WORK, post(release)),
        post_route("/v1/tasks/{id}/renew", WORK, post(renew)),
        post_route("/v1/tasks/{id}/snooze", WORK, post(snooze)),
        post_route("/v1/tasks/{id}/progress", WORK, post(progress)),
        route(Method::PUT, WORKER, WORK, put(heartbeat)),
        route(Method::DELETE, WORKER, WORK, delete(deregister)),
        post_route("/v1/workers/{worker}/quiet", ADMIN, post(quiet)),
        post_route("/v1/workers/{worker}/stop", ADMIN, post(stop)),
        post_route("/v1/workers/{worker}/resume", ADMIN, post(resume)),
    ]
}

fn cluster_routes() -> Vec<Route> {
    use cluster::{add, log, promote, remove, snapshot, status};
    const MEMBER: &str = "/v1/cluster/members/{node}";
    vec![
        get_route("/v1/cluster", READ, get(status)),
        get_route("/v1/cluster/log", READ, get(log)),
        route(Method::PUT, MEMBER, ADMIN, put(add)),
        route(Method::DELETE, MEMBER, ADMIN, delete(remove)),
        post_route("/v1/cluster/members/{node}/promote", ADMIN, post(promote)),
        post_route("/v1/cluster/snapshot", ADMIN, post(snapshot)),
    ]
}

fn token_routes() -> Vec<Route> {
    use tokens::{create, list, revoke};
    const TOKEN: &str = "/v1/tokens/{token}";
    vec![
        get_route("/v1/tokens", ADMIN, get(list)),
        route(Method::PUT, TOKEN, ADMIN, put(create)),
        route(Method::DELETE, TOKEN, ADMIN, delete(revoke)),
    ]
}

fn blob_routes() -> Vec<Route> {
    const BLOB: &str = "/blobs/{address}";
    vec![
        route(Method::PUT, "/blobs", SUBMIT_OR_WORK, put(blobs::put)),
        get_route("/blobs", READ, get(blobs::list)),
        post_route("/blobs/gc", ADMIN, post(blobs::collect)),
        route(Method::PUT, BLOB, SUBMIT_OR_WORK, put(blobs::put_at)),
        get_route(BLOB, READ_OR_WORK, get(blobs::get)),
        route(Method::HEAD, BLOB, READ_OR_WORK, head(blobs::head)),
        route(Method::DELETE, BLOB, ADMIN, delete(blobs::delete)),
        post_route("/blobs/{address}/touch", SUBMIT_OR_WORK, post(blobs::touch)),
    ]
}

fn job_routes() -> Vec<Route> {
    vec![
        post_route("/jobs/create", SUBMIT, post(jobs::create)),
        post_route("/jobs/claim", WORK, post(jobs::claim)),
        get_route("/jobs/{id}", READ_OR_WORK, get(jobs::read)),
        post_route("/jobs/{id}/tickle", WORK, post(jobs::tickle)),
        post_route("/jobs/{id}/complete", WORK, post(jobs::complete)),
        get_route("/ping", Access::Public, get(jobs::ping)),
    ]
}

fn settings_routes() -> Vec<Route> {
    const SETTINGS: &str = "/v1/settings/{kind}";
    vec![
        get_route(SETTINGS, READ, get(settings::read)),
        post_route(SETTINGS, ADMIN, post(settings::change)),
    ]
}

fn queue_routes() -> Vec<Route> {
    use pauses::{pause, pause_type, resume, resume_type};
    use queues::{list, put as set, read};
    const QUEUE: &str = "/v1/queues/{queue}";
    vec![
        get_route("/v1/queues", READ, get(list)),
        get_route(QUEUE, READ, get(read)),
        route(Method::PUT, QUEUE, ADMIN, put(set)),
        post_route("/v1/queues/{queue}/pause", ADMIN, post(pause)),
        post_route("/v1/queues/{queue}/resume", ADMIN, post(resume)),
        post_route("/v1/types/{type}/pause", ADMIN, post(pause_type)),
        post_route("/v1/types/{type}/resume", ADMIN, post(resume_type)),
    ]
}

fn schedule_routes() -> Vec<Route> {
    use schedules::{backfill, list, pause, put as define, read, remove, resume, trigger};
    const SCHEDULE: &str = "/v1/schedules/{name}";
    vec![
        get_route("/v1/schedules", READ, get(list)),
        get_route(SCHEDULE, READ, get(read)),
        route(Method::PUT, SCHEDULE, ADMIN, put(define)),
        route(Method::DELETE, SCHEDULE, ADMIN, delete(remove)),
        post_route("/v1/schedules/{name}/pause", ADMIN, post(pause)),
        post_route("/v1/schedules/{name}/resume", ADMIN, post(resume)),
        post_route("/v1/schedules/{name}/trigger", ADMIN, post(trigger)),
        post_route("/v1/schedules/{name}/backfill", ADMIN, post(backfill)),
    ]
}

fn limit_routes() -> Vec<Route> {
    use limits::{list, put as set, read, remove};
    const LIMIT: &str = "/v1/limits/{name}";
    vec![
        get_route("/v1/limits", READ, get(list)),
        get_route(LIMIT, READ, get(read)),
        route(Method::PUT, LIMIT, ADMIN, put(set)),
        route(Method::DELETE, LIMIT, ADMIN, delete(remove)),
    ]
}

fn webhook_routes() -> Vec<Route> {
    use webhooks::{list, put as set, read, remove, test};
    const WEBHOOK: &str = "/v1/webhooks/{name}";
    vec![
        get_route("/v1/webhooks", ADMIN, get(list)),
        get_route(WEBHOOK, ADMIN, get(read)),
        route(Method::PUT, WEBHOOK, ADMIN, put(set)),
        route(Method::DELETE, WEBHOOK, ADMIN, delete(remove)),
        post_route("/v1/webhooks/{name}/test", ADMIN, post(test)),
    ]
}

fn other_routes() -> Vec<Route> {
    use health::{health, metrics, ready};
    use reference::{document, page, script, style};
    vec![
        get_route("/v1/info", Access::AnyToken, get(query::info)),
        get_route("/v1/stats", READ, get(query::stats)),
        get_route("/v1/activity", READ, get(query::activity)),
        get_route("/v1/workers", READ, get(query::workers)),
        get_route("/v1/events", READ, get(events::events)),
        get_route("/v1/pauses", READ, get(pauses::list)),
        get_route("/v1/openapi.json", Access::Public, get(document)),
        get_route("/docs", Access::Public, get(page)),
        get_route("/docs/reference.js", Access::Public, get(script)),
        get_route("/docs/reference.css", Access::Public, get(style)),
        get_route("/healthz", Access::Public, get(health)),
        get_route("/readyz", Access::Public, get(ready)),
        get_route("/metrics", READ, get(metrics)),
    ]
}

/// The router of all routes.
pub(crate) fn router(app: &App) -> Router {
    let mut router = Router::new();
    for route in table() {
        let limited = LimitedAccess::of(&route.method, route.path);
        let guard = from_fn_with_state((app.clone(), route.access, limited), authorize);
        router = router.route(route.path, route.serve.route_layer(guard));
    }
    // The dashboard's files are not part of the API or its document. They are public and contain no data.
    let router = router
        .route("/", get(dashboard::redirect))
        .route("/ui", get(dashboard::redirect))
        .route("/ui/", get(dashboard::page))
        .route("/ui/{*path}", get(dashboard::file))
        .fallback(async || {
            ApiError::new(Condition::NoRoute, "no such route; /docs lists the routes")
        })
        .method_not_allowed_fallback(async || {
            ApiError::new(
                Condition::NoMethod,
                "the route does not support this method; /docs lists the supported ones",
            )
        })
        .layer(from_fn_with_state(app.clone(), handle))
        .layer(from_fn(compress));
    let router = if app.origins.is_empty() {
        router
    } else {
        router.layer(other_origins::layer(&app.origins))
    };
    router.with_state(app.clone())
}
