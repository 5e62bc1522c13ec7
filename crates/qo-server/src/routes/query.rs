//! Looking at queues, workers and the server itself.

use axum::Extension;
use axum::extract::State;
use qo::WorkerInfo;
use qo_remote::wire::{Info, StatsAnswer, schema};
use serde::Serialize;

use crate::answer::{Answer, json};
use crate::app::App;
use crate::tokens::Caller;

/// Ask who answers
///
/// The version, the queue's time, the limits, and what the caller's token allows.
#[utoipa::path(
    get, path = "/v1/info", tag = "look", operation_id = "info",
    responses((status = 200, description = "Who answers", body = Info))
)]
pub(crate) async fn info(State(app): State<App>, Extension(caller): Extension<Caller>) -> Answer {
    json(&Info {
        service: "qo".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now: app.now(),
        scopes: caller.scopes.iter().map(ToString::to_string).collect(),
        wait_max_ms: u64::try_from(app.limits.wait_max.as_millis()).unwrap_or(u64::MAX),
        body_max_bytes: app.limits.body_max_bytes as u64,
    })
}

/// Count tasks
///
/// By queue, status and type. In direct mode this reads the tasks, and costs accordingly.
#[utoipa::path(
    get, path = "/v1/stats", tag = "look", operation_id = "stats",
    responses((status = 200, description = "How many there are", body = StatsAnswer))
)]
pub(crate) async fn stats(State(app): State<App>) -> Answer {
    json(&StatsAnswer::from(app.engine().stats().await?))
}

#[derive(Serialize)]
struct Workers {
    workers: Vec<WorkerInfo>,
}

/// Look at the workers
#[utoipa::path(
    get, path = "/v1/workers", tag = "look", operation_id = "workers",
    responses((status = 200, description = "Those that said that they are there", body = schema::WorkersAnswer))
)]
pub(crate) async fn workers(State(app): State<App>) -> Answer {
    let workers = app.engine().workers().await?;
    json(&Workers { workers })
}
