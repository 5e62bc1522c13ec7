//! What workers do: claim tasks, say what becomes of them, and that they are there.

use axum::Extension;
use axum::extract::State;
use qo::{EngineError, Status, Task, TaskId, WorkerId, WorkerInfo};
use qo_remote::wire::outcome::{
    CompleteBody, FailBody, ProgressBody, ReleaseBody, RenewBody, SnoozeBody,
};
use qo_remote::wire::{
    ClaimAnswer, ClaimBody, Outcome, OutcomeAnswer, OutcomeItem, Problem, schema, tell_many,
};

use crate::answer::{Answer, Refusal, json, json_of_about, json_of_parts, nothing};
use crate::app::App;
use crate::body::{JsonBody, JsonText, Named};
use crate::claims::Name;
use crate::middleware::RequestName;
use crate::routes::tasks::{parts, size_of};
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

async fn tell(app: &App, id: TaskId, outcome: Outcome) -> Result<Task, Refusal> {
    let name = outcome.name();
    let task = outcome.tell(app.engine(), id).await?;
    note(app, name, &task);
    Ok(task)
}

fn note(app: &App, name: &'static str, task: &Task) {
    if task.status != Status::Running {
        app.metrics.ended(task);
    }
    if name != "renew" {
        app.events.tell(name, task);
    }
}

/// One route for each outcome.
macro_rules! outcome_route {
    ($(#[doc = $doc:literal])* $handler:ident, $path:literal, $body:ident, $variant:ident) => {
        $(#[doc = $doc])*
        #[utoipa::path(
            post, path = $path, tag = "work", request_body = $body,
            params(("id" = schema::Id, Path, description = "The task")),
            responses((status = 200, description = "The task as it is now", body = schema::TaskRecord))
        )]
        pub(crate) async fn $handler(
            State(app): State<App>,
            Named(id): Named<TaskId>,
            JsonBody(body): JsonBody<$body>,
        ) -> Answer {
            json(&tell(&app, id, Outcome::$variant(body)).await?)
        }
    };
}

outcome_route!(
    /// Complete a task
    ///
    /// Ends the attempt, and the task, with success.
    complete, "/v1/tasks/{id}/complete", CompleteBody, Complete
);
outcome_route!(
    /// Fail an attempt
    ///
    /// The task is retried, or given up, as its kind and its retries say.
    fail, "/v1/tasks/{id}/fail", FailBody, Fail
);
outcome_route!(
    /// Give a task back
    ///
    /// At once, and not counted against its retries.
    release, "/v1/tasks/{id}/release", ReleaseBody, Release
);
outcome_route!(
    /// Keep an attempt alive
    ///
    /// The answer's `cancel_requested` tells whether the task was called off.
    renew, "/v1/tasks/{id}/renew", RenewBody, Renew
);
outcome_route!(
    /// Put a task off
    ///
    /// Not counted against its retries.
    snooze, "/v1/tasks/{id}/snooze", SnoozeBody, Snooze
);
outcome_route!(
    /// Say how far an attempt is
    progress, "/v1/tasks/{id}/progress", ProgressBody, Progress
);

/// Tell many outcomes at once
///
/// An array of up to 1,000. Each has its own answer, in order: a failure of one says nothing about the others.
#[utoipa::path(
    post, path = "/v1/outcomes", tag = "work", operation_id = "outcomes", request_body = Vec<OutcomeItem>,
    responses((status = 200, description = "What became of each", body = Vec<OutcomeAnswer>))
)]
pub(crate) async fn outcomes(State(app): State<App>, body: JsonText) -> Answer {
    let parts: Vec<Result<OutcomeItem, Refusal>> = parts(&body)?;
    let mut outcomes = Vec::with_capacity(parts.len());
    // What is known of each: its place among those that are told, or what is wrong with it.
    let mut known = Vec::with_capacity(parts.len());
    for part in parts {
        let read = part.and_then(|item| {
            let omits_input = item.omit_input;
            let (id, outcome) = item.into_outcome()?;
            Ok((omits_input, id, outcome))
        });
        known.push(read.map(|(omits_input, id, outcome)| {
            let name = outcome.name();
            outcomes.push((id, outcome));
            (omits_input, name)
        }));
    }
    let mut told = tell_many(app.engine(), outcomes).await.into_iter();
    let answers: Vec<OutcomeAnswer> = known
        .into_iter()
        .map(|known| {
            let told = known.and_then(|(omits_input, name)| {
                let task = told.next().unwrap_or(Err(EngineError::Closed))?;
                note(&app, name, &task);
                Ok(if omits_input {
                    task.without_input()
                } else {
                    task
                })
            });
            let result: Result<Task, Box<Problem>> = told.map_err(|refusal: Refusal| refusal.0);
            OutcomeAnswer::from(result)
        })
        .collect();
    let bytes = answers.iter().filter_map(|answer| answer.task.as_ref());
    let bytes = bytes.map(size_of).sum();
    json_of_parts(bytes, &answers, |answer| answer.problem.as_ref())
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
