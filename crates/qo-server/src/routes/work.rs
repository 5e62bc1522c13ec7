//! Claims, and the registration of workers.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use qo::{Task, WorkerAction, WorkerId, WorkerInfo, WorkerRequest};
use qo_remote::wire::{ClaimBody, ClaimResponse, HeartbeatResponse, schema};

use crate::app::App;
use crate::author::Author;
use crate::body::{JsonBody, PathParam};
use crate::claims::ClaimKey;
use crate::middleware::RequestId;
use crate::response::{ApiError, ApiResult, json, no_content};
use crate::routes::change_route::change_route;
use crate::routes::tasks::size_of;
use crate::tokens::Caller;

/// How long a claim may take to end when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Claim tasks
///
/// Returns due tasks, the most urgent first, and waits up to `wait_ms` for the first one. The tasks of one response have at most 8 MiB,
/// unless the server is configured otherwise; larger tasks therefore come in smaller numbers. A request that is repeated with the same
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
    caller.limits.narrow_claim(&mut request)?;
    let wait_max_ms = u64::try_from(app.limits.wait_max.as_millis()).unwrap_or(u64::MAX);
    request.wait_ms = request.wait_ms.min(wait_max_ms);
    let _waiting = if request.wait_ms > 0 {
        Some(app.admit_waiting()?)
    } else {
        None
    };
    let key = ClaimKey {
        token: caller.token,
        request_id,
    };
    let started = app.runtime().monotonic();
    let result = {
        let mut claim = std::pin::pin!(app.claims.claim(key, request));
        let stopped = async {
            app.stopped().await;
            app.runtime().sleep(STOP_GRACE).await;
        };
        tokio::select! {
            biased;
            result = &mut claim => result?,
            // The store does not respond. Whatever this claim still gets is released.
            () = stopped => return json(&ClaimResponse { tasks: Vec::new() }),
        }
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
        app.publish("claim", task);
    }
    let bytes = tasks.iter().map(size_of).sum();
    let room = app.response_room.wait(bytes).await;
    room.json(bytes, &Claimed { tasks })
}

/// The response to a claim, without a copy of its tasks.
#[derive(serde::Serialize)]
struct Claimed<'a> {
    tasks: &'a [Task],
}

/// Register a worker or renew its registration
///
/// If an operator asks the worker to claim no more tasks or to stop, the response says so.
#[utoipa::path(
    put, path = "/v1/workers/{worker}", tag = "work", operation_id = "heartbeat", request_body = schema::WorkerRecord,
    params(("worker" = schema::Name, Path, description = "The worker")),
    responses(
        (status = 200, description = "The worker is registered, and an operator asks it for something", body = HeartbeatResponse),
        (status = 204, description = "The worker is registered"),
    )
)]
pub(crate) async fn heartbeat(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParam(worker): PathParam<WorkerId>,
    JsonBody(info): JsonBody<WorkerInfo>,
) -> ApiResult {
    caller.limits.check_worker(&info.queues, &info.types)?;
    if info.worker_id != worker {
        return Err(ApiError::bad_request(
            "the body's worker_id differs from the worker in the path",
        ));
    }
    match app.engine().heartbeat(&info).await? {
        None => Ok(no_content()),
        request => json(&HeartbeatResponse { request }),
    }
}

async fn ask(
    app: &App,
    worker: &WorkerId,
    action: Option<WorkerAction>,
    author: &Author,
) -> ApiResult {
    let request = action.map(|action| WorkerRequest::new(action, app.now(), author.0.clone()));
    let info = app.engine().ask_worker(worker, request).await?;
    author.log(action.map_or("resume", WorkerAction::name), worker);
    json(&info)
}

/// The route of a request to a worker.
macro_rules! request_route {
    ($(#[doc = $doc:literal])* $name:ident, $path:literal, $id:literal, $action:expr) => {
        change_route!(
            $(#[doc = $doc])*
            $name, [
                path = $path, tag = "operate", operation_id = $id,
                params(("worker" = schema::Name, Path, description = "The worker")),
                responses((status = 200, description = "The worker's record", body = schema::WorkerRecord))
            ],
            |app, worker: WorkerId, author| ask(&app, &worker, $action, &author)
        );
    };
}

request_route!(
    /// Quiet a worker
    ///
    /// Asks the worker to claim no more tasks. It sees the request with its next heartbeat, and finishes the tasks that it runs.
    quiet, "/v1/workers/{worker}/quiet", "quiet_worker", Some(WorkerAction::Quiet)
);
request_route!(
    /// Stop a worker
    ///
    /// Asks the worker to claim no more tasks, to finish those that it runs, and to exit. It sees the request with its next heartbeat.
    stop, "/v1/workers/{worker}/stop", "stop_worker", Some(WorkerAction::Stop)
);
request_route!(
    /// Resume a worker
    ///
    /// Takes back the request to claim no more tasks.
    resume, "/v1/workers/{worker}/resume", "resume_worker", None
);

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
