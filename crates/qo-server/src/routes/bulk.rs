//! One operation on all tasks that match a filter.

use axum::Extension;
use axum::extract::State;
use qo_remote::wire::{BulkBody, BulkFailure, BulkResponse};

use crate::app::App;
use crate::author::Author;
use crate::body::JsonBody;
use crate::response::{ApiResult, json, problem_of};
use crate::tokens::Caller;

/// The most failures in a response.
const FAILURES_SHOWN: usize = 100;

/// Apply an operation to all matching tasks
///
/// With `dry_run` it only counts the tasks. Each task is changed separately, and the response comes when all have been processed. The
/// operation stops if the client goes away. With `limit` it stops after that number of tasks, and `more` says whether others match. Sending the request again continues, because changed tasks no longer match.
#[utoipa::path(
    post, path = "/v1/bulk", tag = "operate", operation_id = "bulk", request_body = BulkBody,
    responses((status = 200, description = "The result", body = BulkResponse))
)]
pub(crate) async fn bulk(
    State(app): State<App>,
    author: Author,
    Extension(caller): Extension<Caller>,
    JsonBody(body): JsonBody<BulkBody>,
) -> ApiResult {
    let dry_run = body.dry_run;
    let mut request = body.into_request()?;
    request.actor.clone_from(&author.0);
    if let Some(to) = &request.to {
        caller.limits.check_target(to)?;
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
            done: 0,
            failed: 0,
            failures: Vec::new(),
            more: false,
            stopped: None,
        });
    }
    let report = app.queue.bulk(&request, |_| ()).await;
    let count = format!("{} of {} tasks", report.done, report.matched);
    author.log(request.operation.name(), &count);
    let failures = report.failed.iter().take(FAILURES_SHOWN);
    json(&BulkResponse {
        dry_run: false,
        matched: report.matched,
        done: report.done,
        failed: report.failed.len() as u64,
        failures: failures
            .map(|(id, error)| BulkFailure {
                id: *id,
                problem: problem_of(error),
            })
            .collect(),
        more: report.more,
        stopped: report.stopped.as_ref().map(problem_of),
    })
}
