//! One operation on all tasks that match a filter, in the request or in the background.

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use qo_core::OpId;
use qo_remote::wire::{BulkBody, BulkJobResponse, BulkJobsResponse, BulkResponse, schema};

use crate::app::App;
use crate::author::Author;
use crate::body::{JsonBody, PathParam};
use crate::bulk_jobs::response;
use crate::response::{ApiResult, json, json_with_status};
use crate::tokens::Caller;

/// Apply an operation to all matching tasks
///
/// With `dry_run` it only counts the tasks. Each task is changed separately, and the response comes when all have been processed. The
/// operation stops if the client goes away. With `limit` it stops after that number of tasks, and `more` says whether others match. Sending the request again continues, because changed tasks no longer match.
///
/// With `background` the response comes at once with an id, and `GET /v1/bulk/{id}` shows the progress. Up to four operations are at work at the
/// same time. They end with the server.
#[utoipa::path(
    post, path = "/v1/bulk", tag = "operate", operation_id = "bulk", request_body = BulkBody,
    responses(
        (status = 200, description = "The result", body = BulkResponse),
        (status = 202, description = "The operation works in the background", body = BulkJobResponse),
    )
)]
pub(crate) async fn bulk(
    State(app): State<App>,
    author: Author,
    Extension(caller): Extension<Caller>,
    JsonBody(body): JsonBody<BulkBody>,
) -> ApiResult {
    let (dry_run, background) = (body.dry_run, body.background);
    let mut request = body.into_request(app.now())?;
    request.actor.clone_from(&author.0);
    if let Some(to) = &request.to {
        caller.limits.check_target(to)?;
    }
    if background {
        // Whoever shows or cancels it later would have to be compared with who started it.
        if !caller.limits.is_empty() {
            return Err(caller.limits.refuse_route());
        }
        let job = app.bulk_jobs.start(&app, request, author)?;
        return json_with_status(StatusCode::ACCEPTED, &job);
    }
    if request.ids.is_empty() {
        caller.limits.narrow_filter(&mut request.filter)?;
    } else if !caller.limits.is_empty() {
        for id in &request.ids {
            caller.limits.check_task(&app.engine().get(*id).await?)?;
        }
    }
    if dry_run {
        return json(&BulkResponse {
            dry_run: true,
            matched: app.queue.count_bulk(&request).await?,
            ..response(&qo::BulkReport::default())
        });
    }
    let report = app.queue.bulk(&request, |_| ()).await;
    let count = format!("{} of {} tasks", report.done, report.matched);
    author.log(request.operation.name(), &count);
    json(&response(&report))
}

/// List bulk operations in the background
///
/// Those that are running, and the last hundred that have ended, the newest first.
#[utoipa::path(
    get, path = "/v1/bulk", tag = "operate", operation_id = "bulk_list",
    responses((status = 200, description = "The operations", body = BulkJobsResponse))
)]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> ApiResult {
    // A limited token has started none.
    let operations = if caller.limits.is_empty() {
        app.bulk_jobs.list()
    } else {
        Vec::new()
    };
    json(&BulkJobsResponse { operations })
}

/// Show a bulk operation in the background
#[utoipa::path(
    get, path = "/v1/bulk/{operation}", tag = "operate", operation_id = "bulk_progress",
    params(("operation" = schema::Id, Path, description = "The id of the operation")),
    responses((status = 200, description = "The operation", body = BulkJobResponse))
)]
pub(crate) async fn progress(State(app): State<App>, PathParam(id): PathParam<OpId>) -> ApiResult {
    json(&app.bulk_jobs.get(id)?.shown())
}

/// Cancel a bulk operation in the background
///
/// It ends after the changes that are under way. A repeated request changes nothing.
#[utoipa::path(
    delete, path = "/v1/bulk/{operation}", tag = "operate", operation_id = "bulk_cancel",
    params(("operation" = schema::Id, Path, description = "The id of the operation")),
    responses((status = 200, description = "The operation", body = BulkJobResponse))
)]
pub(crate) async fn cancel(
    State(app): State<App>,
    PathParam(id): PathParam<OpId>,
    author: Author,
) -> ApiResult {
    let job = app.bulk_jobs.get(id)?;
    job.cancel();
    author.log("cancel of a bulk operation", &id);
    json(&job.shown())
}
