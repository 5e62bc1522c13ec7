//! One operation on all tasks that match a filter.

use axum::extract::State;
use qo::BulkOperation;
use qo_remote::wire::{BulkBody, BulkFailure, BulkResponse, REASON_MAX_BYTES};

use crate::app::App;
use crate::body::JsonBody;
use crate::response::{ApiError, ApiResult, json, problem_of};

/// The most failures in a response.
const FAILURES_SHOWN: usize = 100;

/// Apply an operation to all matching tasks
///
/// With `dry_run` it only counts the tasks. Each task is changed separately, and the response comes when all have been processed. The
/// operation stops if the client goes away. Sending the request again continues, because changed tasks no longer match.
#[utoipa::path(
    post, path = "/v1/bulk", tag = "operate", operation_id = "bulk", request_body = BulkBody,
    responses((status = 200, description = "The result", body = BulkResponse))
)]
pub(crate) async fn bulk(State(app): State<App>, JsonBody(body): JsonBody<BulkBody>) -> ApiResult {
    let dry_run = body.dry_run;
    let request = body.into_request();
    if let Some(reason) = &request.reason {
        if reason.len() > REASON_MAX_BYTES {
            return Err(ApiError::bad_request(format!(
                "the reason is longer than {REASON_MAX_BYTES} bytes"
            )));
        }
        if request.operation != BulkOperation::Cancel {
            return Err(ApiError::bad_request("only a cancel can have a reason"));
        }
    }
    if dry_run {
        return json(&BulkResponse {
            dry_run: true,
            matched: app.queue.count_bulk(&request).await?,
            done: 0,
            failed: 0,
            failures: Vec::new(),
            stopped: None,
        });
    }
    let report = app.queue.bulk(&request, |_| ()).await;
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
        stopped: report.stopped.as_ref().map(problem_of),
    })
}
