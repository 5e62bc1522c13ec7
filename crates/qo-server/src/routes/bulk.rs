//! One operation on all tasks that match a filter.

use axum::extract::State;
use qo::BulkReport;
use qo_remote::wire::{BulkAnswer, BulkBody, BulkFailure, BulkOperation, REASON_MAX_BYTES};

use crate::answer::{Answer, Refusal, json, problem_of};
use crate::app::App;
use crate::body::JsonBody;

/// How many failures are named.
const FAILURES_SHOWN: usize = 100;

/// Do one thing with all tasks that match
///
/// With `dry_run` it only counts. Each task is changed on its own, and the answer comes when all were tried; a client that goes away
/// stops the walk. Asking again goes on where it stopped, because what is done no longer matches.
#[utoipa::path(
    post, path = "/v1/bulk", tag = "operate", operation_id = "bulk", request_body = BulkBody,
    responses((status = 200, description = "What came of it", body = BulkAnswer))
)]
pub(crate) async fn bulk(State(app): State<App>, JsonBody(body): JsonBody<BulkBody>) -> Answer {
    let reason = body.reason;
    if reason
        .as_ref()
        .is_some_and(|text| text.len() > REASON_MAX_BYTES)
    {
        return Err(Refusal::bad_request(format!(
            "the reason has more than {REASON_MAX_BYTES} bytes"
        )));
    }
    if reason.is_some() && body.operation != BulkOperation::Cancel {
        return Err(Refusal::bad_request("only a cancel takes a reason"));
    }
    let filter = body.filter.into_filter(body.operation);
    let queue = &app.queue;
    if body.dry_run {
        return json(&BulkAnswer {
            dry_run: true,
            matched: queue.count(&filter).await?,
            done: 0,
            failed: 0,
            failures: Vec::new(),
            stopped: None,
        });
    }
    let unheard = |_: &BulkReport| ();
    let report = match body.operation {
        BulkOperation::Cancel => queue.cancel_all(filter, reason.as_deref(), unheard).await,
        BulkOperation::Replay => queue.replay_all(filter, unheard).await,
        BulkOperation::Archive => queue.archive_all(filter, unheard).await,
        BulkOperation::Unarchive => queue.unarchive_all(filter, unheard).await,
        BulkOperation::Purge => queue.purge_all(filter, unheard).await,
    };
    let failures = report.failed.iter().take(FAILURES_SHOWN);
    json(&BulkAnswer {
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
