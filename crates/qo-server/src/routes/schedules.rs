//! Schedules. This process fires them while it serves the queue.

use axum::extract::State;
use qo::ScheduleInfo;
use qo_core::DocumentName;
use qo_remote::wire::schedule::forms::{BackfillForm, ScheduleForm, SchedulesForm};
use qo_remote::wire::{BackfillBody, ScheduleBody, TriggeredResponse, schema};
use serde::Serialize;

use crate::app::App;
use crate::body::{JsonBody, PathParam};
use crate::response::{ApiResult, json, no_content};

#[derive(Serialize)]
struct SchedulesResponse {
    schedules: Vec<ScheduleInfo>,
}

/// List schedules
///
/// Each with its next and last runs, ordered by name.
#[utoipa::path(
    get, path = "/v1/schedules", tag = "schedules", operation_id = "schedules",
    responses((status = 200, description = "The schedules", body = SchedulesForm))
)]
pub(crate) async fn list(State(app): State<App>) -> ApiResult {
    let schedules = app.queue.schedules().list().await?;
    json(&SchedulesResponse { schedules })
}

/// Read a schedule
#[utoipa::path(
    get, path = "/v1/schedules/{name}", tag = "schedules", operation_id = "schedule",
    params(("name" = schema::Name, Path, description = "The schedule")),
    responses((status = 200, description = "The schedule", body = ScheduleForm))
)]
pub(crate) async fn read(
    State(app): State<App>,
    PathParam(name): PathParam<DocumentName>,
) -> ApiResult {
    json(&app.queue.schedules().get(name.as_str()).await?)
}

/// Define a schedule
///
/// Adds it, or replaces the definition of the one with this name. The ticks of a new definition begin now. If the definition is the same,
/// nothing changes.
#[utoipa::path(
    put, path = "/v1/schedules/{name}", tag = "schedules", operation_id = "put_schedule", request_body = ScheduleBody,
    params(("name" = schema::Name, Path, description = "The schedule")),
    responses((status = 200, description = "The schedule", body = ScheduleForm))
)]
pub(crate) async fn put(
    State(app): State<App>,
    PathParam(name): PathParam<DocumentName>,
    JsonBody(body): JsonBody<ScheduleBody>,
) -> ApiResult {
    let spec = body.into_spec();
    json(&app.queue.schedules().put(name.as_str(), spec).await?)
}

/// Remove a schedule
///
/// Tasks that are submitted stay.
#[utoipa::path(
    delete, path = "/v1/schedules/{name}", tag = "schedules", operation_id = "remove_schedule",
    params(("name" = schema::Name, Path, description = "The schedule")),
    responses((status = 204, description = "The schedule is removed"))
)]
pub(crate) async fn remove(
    State(app): State<App>,
    PathParam(name): PathParam<DocumentName>,
) -> ApiResult {
    app.queue.schedules().remove(name.as_str()).await?;
    Ok(no_content())
}

/// Pause a schedule
///
/// It has no runs until it is resumed. Tasks that are submitted stay.
#[utoipa::path(
    post, path = "/v1/schedules/{name}/pause", tag = "schedules", operation_id = "pause_schedule",
    params(("name" = schema::Name, Path, description = "The schedule")),
    responses((status = 200, description = "The schedule is paused", body = ScheduleForm))
)]
pub(crate) async fn pause(
    State(app): State<App>,
    PathParam(name): PathParam<DocumentName>,
) -> ApiResult {
    json(&app.queue.schedules().pause(name.as_str()).await?)
}

/// Resume a schedule
///
/// It continues with the runs from now on. Those of the pause are left out.
#[utoipa::path(
    post, path = "/v1/schedules/{name}/resume", tag = "schedules", operation_id = "resume_schedule",
    params(("name" = schema::Name, Path, description = "The schedule")),
    responses((status = 200, description = "The schedule is not paused any more", body = ScheduleForm))
)]
pub(crate) async fn resume(
    State(app): State<App>,
    PathParam(name): PathParam<DocumentName>,
) -> ApiResult {
    json(&app.queue.schedules().resume(name.as_str()).await?)
}

/// Trigger a schedule
///
/// Submits one task now, even if the schedule is paused. A repeated request submits another one.
#[utoipa::path(
    post, path = "/v1/schedules/{name}/trigger", tag = "schedules", operation_id = "trigger_schedule",
    params(("name" = schema::Name, Path, description = "The schedule")),
    responses((status = 200, description = "The task is submitted", body = TriggeredResponse))
)]
pub(crate) async fn trigger(
    State(app): State<App>,
    PathParam(name): PathParam<DocumentName>,
) -> ApiResult {
    let task_id = app.queue.schedules().trigger(name.as_str()).await?;
    json(&TriggeredResponse { task_id })
}

/// Backfill a past range
///
/// Submits the tasks of all ticks of a range, at most 1,000, whether they were fired before or not. A repeated request for the same range
/// finds the tasks of the first one, as long as they are kept.
#[utoipa::path(
    post, path = "/v1/schedules/{name}/backfill", tag = "schedules", operation_id = "backfill_schedule", request_body = BackfillBody,
    params(("name" = schema::Name, Path, description = "The schedule")),
    responses((status = 200, description = "The tasks are submitted", body = BackfillForm))
)]
pub(crate) async fn backfill(
    State(app): State<App>,
    PathParam(name): PathParam<DocumentName>,
    JsonBody(body): JsonBody<BackfillBody>,
) -> ApiResult {
    let schedules = app.queue.schedules();
    json(
        &schedules
            .backfill(name.as_str(), body.from, body.to)
            .await?,
    )
}
