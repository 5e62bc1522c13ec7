//! Claims, and the registration of workers.

use axum::Extension;
use axum::extract::State;
use qo::{Task, WorkerId, WorkerInfo};
use qo_remote::wire::{ClaimAnswer, ClaimBody, schema};

use crate::answer::{Answer, Refusal, json, json_of_about, nothing};
use crate::app::App;
use crate::body::{JsonBody, Named};
use crate::claims::Name;
use crate::middleware::RequestName;
use crate::routes::tasks::size_of;
use crate::tokens::Caller;

/// Claim tasks
///
/// Hands out what is due, the most urgent first, and waits for the first one up to `wait_ms`. A request that is repeated with the same
/// `X-Request-Id` within ten seconds gets the same tasks again. Tasks of a client that has gone are given back after five.
#[utoipa::path(
    post, path = "/v1/claim", tag = "work", operation_id = "claim", request_body = ClaimBody,
    params(("X-Request-Id" = Option<String>, Header, description = "Names the request, so that it can be repeated")),
    responses((status = 200, description = "The tasks; none, if there were none in time", body = ClaimAnswer))
)]
pub(crate) async fn claim(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(RequestName(request_name)): Extension<RequestName>,
    JsonBody(body): JsonBody<ClaimBody>,
) -> Answer {
    let mut request = body.into_request()?;
    let wait_max_ms = u64::try_from(app.limits.wait_max.as_millis()).unwrap_or(u64::MAX);
    request.wait_ms = request.wait_ms.min(wait_max_ms);
    let name = Name {
        token: caller.token,
        request: request_name,
    };
    let started = app.runtime().monotonic();
    let found = tokio::select! {
        biased;
        found = app.claims.claim(name, request) => found?,
        () = app.stopped() => return json(&ClaimAnswer { tasks: Vec::new() }),
    };
    let tasks = match found.as_ref() {
        Ok(tasks) => tasks,
        Err(error) => return Err(error.clone().into()),
    };
    if !tasks.is_empty() {
        let took = app.runtime().monotonic().saturating_sub(started);
        app.metrics.claim_seconds.observe(took);
    }
    for task in tasks {
        app.metrics.claimed(task);
        app.events.tell("claim", task);
    }
    json_of_about(tasks.iter().map(size_of).sum(), &Claimed { tasks })
}

/// The answer to a claim, without a copy of its tasks.
#[derive(serde::Serialize)]
struct Claimed<'a> {
    tasks: &'a [Task],
}

/// Say that a worker is there, or still there
#[utoipa::path(
    put, path = "/v1/workers/{worker}", tag = "work", operation_id = "heartbeat", request_body = schema::WorkerRecord,
    params(("worker" = schema::Name, Path, description = "The worker")),
    responses((status = 204, description = "It is known"))
)]
pub(crate) async fn heartbeat(
    State(app): State<App>,
    Named(worker): Named<WorkerId>,
    JsonBody(info): JsonBody<WorkerInfo>,
) -> Answer {
    if info.worker_id != worker {
        return Err(Refusal::bad_request(
            "the worker_id of the body is not the worker of the path",
        ));
    }
    app.engine().heartbeat(&info).await?;
    Ok(nothing())
}

/// Say that a worker is gone
#[utoipa::path(
    delete, path = "/v1/workers/{worker}", tag = "work", operation_id = "deregister",
    params(("worker" = schema::Name, Path, description = "The worker")),
    responses((status = 204, description = "It is gone, whether it was there or not"))
)]
pub(crate) async fn deregister(State(app): State<App>, Named(worker): Named<WorkerId>) -> Answer {
    app.engine().deregister(&worker).await?;
    Ok(nothing())
}
