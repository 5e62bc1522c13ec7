//! Claims, and the registration of workers.

use axum::Extension;
use axum::extract::State;
use qo::{Task, WorkerId, WorkerInfo};
use qo_remote::wire::{ClaimBody, ClaimResponse, schema};

use crate::app::App;
use crate::body::{JsonBody, PathParam};
use crate::claims::ClaimKey;
use crate::middleware::RequestId;
use crate::response::{ApiError, ApiResult, json, json_with_capacity, no_content};
use crate::routes::tasks::size_of;
use crate::tokens::Caller;

/// Claim tasks
///
/// Returns due tasks, the most urgent first, and waits up to `wait_ms` for the first one. A request that is repeated with the same
/// `X-Request-Id` within ten seconds gets the same tasks again. The tasks of a client that has gone are released after five seconds.
#[utoipa::path(
    post, path = "/v1/claim", tag = "work", operation_id = "claim", request_body = ClaimBody,
    params(("X-Request-Id" = Option<String>, Header, description = "The id of the request, so that it can be repeated")),
    responses((status = 200, description = "The tasks; empty if none became due in time", body = ClaimResponse))
)]
pub(crate) async fn claim(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    JsonBody(body): JsonBody<ClaimBody>,
) -> ApiResult {
    let mut request = body.into_request()?;
    let wait_max_ms = u64::try_from(app.limits.wait_max.as_millis()).unwrap_or(u64::MAX);
    request.wait_ms = request.wait_ms.min(wait_max_ms);
    let key = ClaimKey {
        token: caller.token,
        request_id,
    };
    let started = app.runtime().monotonic();
    let result = tokio::select! {
        biased;
        result = app.claims.claim(key, request) => result?,
        () = app.stopped() => return json(&ClaimResponse { tasks: Vec::new() }),
    };
    let tasks = match result.as_ref() {
        Ok(tasks) => tasks,
        Err(error) => return Err(error.clone().into()),
    };
    if !tasks.is_empty() {
        let took = app.runtime().monotonic().saturating_sub(started);
        app.metrics.claim_seconds.observe(took);
    }
    for task in tasks {
        app.metrics.claimed(task);
        app.events.publish("claim", task);
    }
    json_with_capacity(tasks.iter().map(size_of).sum(), &Claimed { tasks })
}

/// The response to a claim, without a copy of its tasks.
#[derive(serde::Serialize)]
struct Claimed<'a> {
    tasks: &'a [Task],
}

/// Register a worker or renew its registration
#[utoipa::path(
    put, path = "/v1/workers/{worker}", tag = "work", operation_id = "heartbeat", request_body = schema::WorkerRecord,
    params(("worker" = schema::Name, Path, description = "The worker")),
    responses((status = 204, description = "The worker is registered"))
)]
pub(crate) async fn heartbeat(
    State(app): State<App>,
    PathParam(worker): PathParam<WorkerId>,
    JsonBody(info): JsonBody<WorkerInfo>,
) -> ApiResult {
    if info.worker_id != worker {
        return Err(ApiError::bad_request(
            "the body's worker_id differs from the worker in the path",
        ));
    }
    app.engine().heartbeat(&info).await?;
    Ok(no_content())
}

/// Deregister a worker
#[utoipa::path(
    delete, path = "/v1/workers/{worker}", tag = "work", operation_id = "deregister",
    params(("worker" = schema::Name, Path, description = "The worker")),
    responses((status = 204, description = "The worker is not registered any more; also if it never was"))
)]
pub(crate) async fn deregister(
    State(app): State<App>,
    PathParam(worker): PathParam<WorkerId>,
) -> ApiResult {
    app.engine().deregister(&worker).await?;
    Ok(no_content())
}
