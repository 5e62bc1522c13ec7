//! Reads queues, workers and the server itself.

use axum::Extension;
use axum::extract::State;
use qo::WorkerInfo;
use qo_remote::wire::activity::{ActivityQuery, ActivityResponse, Coverage};
use qo_remote::wire::{Info, StatsResponse, schema};
use serde::Serialize;

use crate::app::App;
use crate::body::QueryParams;
use crate::response::{ApiResult, json};
use crate::tokens::Caller;

/// Describe the server
///
/// The version, the queue's time, the limits, and the scopes of the caller's token.
#[utoipa::path(
    get, path = "/v1/info", tag = "inspect", operation_id = "info",
    responses((status = 200, description = "The server", body = Info))
)]
pub(crate) async fn info(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> ApiResult {
    json(&Info {
        service: "qo".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now: app.now(),
        scopes: caller.scopes.iter().map(ToString::to_string).collect(),
        wait_max_ms: u64::try_from(app.limits.wait_max.as_millis()).unwrap_or(u64::MAX),
        body_max_bytes: app.limits.body_max_bytes as u64,
        cluster: app.cluster.is_some(),
    })
}

/// Count tasks
///
/// By queue, status and type. In direct mode this reads all tasks, which costs store requests.
#[utoipa::path(
    get, path = "/v1/stats", tag = "inspect", operation_id = "stats",
    responses((status = 200, description = "The counts", body = StatsResponse))
)]
pub(crate) async fn stats(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> ApiResult {
    let mut stats = app.engine().stats().await?;
    caller.limits.narrow_stats(&mut stats);
    json(&StatsResponse::from(stats))
}

/// Show the activity
///
/// How many tasks were submitted, completed, failed and retried in the last hour, day or week, how long they waited and ran, by queue and
/// type and over time. The server counts this in memory while it runs, so it costs no store requests: `since` says from when on. `covers`
/// says whose changes are counted: in direct mode only those that this server made. A token that is limited to queues or types gets their
/// counters only; what is counted under the shared name `other` is left out.
#[utoipa::path(
    get, path = "/v1/activity", tag = "inspect", operation_id = "activity", params(ActivityQuery),
    responses((status = 200, description = "The activity", body = ActivityResponse))
)]
pub(crate) async fn activity(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ActivityQuery>,
) -> ApiResult {
    // A leader makes all changes of its queue.
    let covers = if app.leader.is_some() {
        Coverage::Queue
    } else {
        Coverage::Server
    };
    json(&app.activity.report(
        query.period,
        query.queue.as_ref(),
        query.task_type.as_ref(),
        &caller.limits,
        covers,
        app.now(),
    ))
}

#[derive(Serialize)]
struct Workers {
    workers: Vec<WorkerInfo>,
}

/// List workers
#[utoipa::path(
    get, path = "/v1/workers", tag = "inspect", operation_id = "workers",
    responses((status = 200, description = "The registered workers", body = schema::WorkersResponse))
)]
pub(crate) async fn workers(State(app): State<App>) -> ApiResult {
    let workers = app.engine().workers().await?;
    json(&Workers { workers })
}
