//! Operations on one task, each with its path, body and description.

use axum::Extension;
use axum::extract::State;
use qo::{EngineError, Operation, Task, TaskId};
use qo_remote::wire::operation::{
    CancelBody, CompleteBody, FailBody, OperationBody, ProgressBody, RedriveBody, ReleaseBody,
    RenewBody, SnoozeBody,
};
use qo_remote::wire::{OutcomeItem, OutcomeResult, Problem, schema};

use crate::app::App;
use crate::author::Author;
use crate::body::{JsonBody, JsonText, OptionalBody, PathParam};
use crate::response::{ApiError, ApiResult, json, json_results, no_content};
use crate::routes::change_route::change_route;
use crate::routes::tasks::{array_items, within};
use crate::tokens::Caller;

async fn act(app: &App, id: TaskId, operation: Operation, author: &Author) -> ApiResult {
    let kind = OperationKind::of(&operation);
    let operation = if kind.is_worker {
        operation
    } else {
        operation.by(author.0.as_ref())
    };
    let task = app.engine().act(id, operation).await?;
    if !kind.is_worker {
        author.log(kind.name, &id);
    }
    kind.record(app, &task);
    json(&task)
}

/// What metrics and events need to know about a completed operation.
#[derive(Clone, Copy)]
struct OperationKind {
    name: &'static str,
    /// Workers present a lease, operators do not.
    is_worker: bool,
}

impl OperationKind {
    fn of(operation: &Operation) -> Self {
        Self {
            name: operation.name(),
            is_worker: operation.lease().is_some(),
        }
    }

    fn record(self, app: &App, task: &Task) {
        if self.name != "renew" {
            app.publish(self.name, task);
        }
    }
}

/// The route of one operation: with a body, with an optional body, or without one.
macro_rules! operation_route {
    ($(#[doc = $doc:literal])* $name:ident, $path:literal, $tag:literal, $body:ident) => {
        operation_route!(
            @ $(#[doc = $doc])*
            $name, [path = $path, tag = $tag, request_body = $body,],
            [JsonBody(body): $body], body.into_operation()?
        );
    };
    ($(#[doc = $doc:literal])* $name:ident, $path:literal, $tag:literal, optional $body:ident) => {
        operation_route!(
            @ $(#[doc = $doc])*
            $name, [path = $path, tag = $tag, request_body = Option<$body>,],
            [OptionalBody(body): $body], body.into_operation()?
        );
    };
    ($(#[doc = $doc:literal])* $name:ident, $path:literal, $tag:literal, = $operation:ident) => {
        operation_route!(
            @ $(#[doc = $doc])*
            $name, [path = $path, tag = $tag,], [], Operation::$operation
        );
    };
    (
        @ $(#[doc = $doc:literal])*
        $name:ident, [$($openapi:tt)*], [$($extract:ident($body:ident): $Body:ty)?], $operation:expr
    ) => {
        change_route!(
            $(#[doc = $doc])*
            $name, [
                $($openapi)*
                params(("id" = schema::Id, Path, description = "The task")),
                responses((status = 200, description = "The task as it is now", body = schema::TaskRecord))
            ],
            |app, id: TaskId, author $(, $extract($body): $Body)?| act(&app, id, $operation, &author)
        );
    };
}

operation_route!(
    /// Complete a task
    ///
    /// Ends the attempt and the task with success.
    complete, "/v1/tasks/{id}/complete", "work", CompleteBody
);
operation_route!(
    /// Fail an attempt
    ///
    /// The task is retried or fails permanently, depending on the kind of the failure and the remaining retries.
    fail, "/v1/tasks/{id}/fail", "work", FailBody
);
operation_route!(
    /// Release a task
    ///
    /// Returns the task to the queue at once. This does not count as a retry.
    release, "/v1/tasks/{id}/release", "work", ReleaseBody
);
operation_route!(
    /// Renew a lease
    ///
    /// `cancel_requested` in the response tells whether the attempt should stop.
    renew, "/v1/tasks/{id}/renew", "work", RenewBody
);
operation_route!(
    /// Snooze a task
    ///
    /// Delays the task. This does not count as a retry.
    snooze, "/v1/tasks/{id}/snooze", "work", SnoozeBody
);
operation_route!(
    /// Report progress
    progress, "/v1/tasks/{id}/progress", "work", ProgressBody
);
operation_route!(
    /// Cancel a task
    ///
    /// Cancels a pending task at once, and requests the worker of a running task to stop.
    cancel, "/v1/tasks/{id}/cancel", "operate", optional CancelBody
);
operation_route!(
    /// Run a task now
    ///
    /// Makes a pending task due at once that waits for a delay, a retry or a snooze.
    run_now, "/v1/tasks/{id}/run_now", "operate", = RunNow
);
operation_route!(
    /// Replay a task
    ///
    /// Starts a finished task again.
    replay, "/v1/tasks/{id}/replay", "operate", = Replay
);
/// Redrive a task
///
/// Moves a pending task to another queue, with its due time and the retries that it has used. Starts a failed task again there. A task with an
/// ordering key stays in its queue.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/redrive", tag = "operate", request_body = RedriveBody,
    params(("id" = schema::Id, Path, description = "The task")),
    responses((status = 200, description = "The task as it is now", body = schema::TaskRecord))
)]
pub(crate) async fn redrive(
    State(app): State<App>,
    PathParam(id): PathParam<TaskId>,
    author: Author,
    Extension(caller): Extension<Caller>,
    JsonBody(body): JsonBody<RedriveBody>,
) -> ApiResult {
    caller.limits.check_target(&body.to)?;
    act(&app, id, body.into_operation()?, &author).await
}

operation_route!(
    /// Archive a task
    ///
    /// The task must be finished.
    archive, "/v1/tasks/{id}/archive", "operate", = Archive
);
operation_route!(
    /// Unarchive a task
    unarchive, "/v1/tasks/{id}/unarchive", "operate", = Unarchive
);

/// Purge a task
///
/// Deletes a finished task permanently, with its payloads and versions.
#[utoipa::path(
    delete, path = "/v1/tasks/{id}", tag = "operate", operation_id = "purge",
    params(("id" = schema::Id, Path, description = "The task")),
    responses((status = 204, description = "The task is deleted"))
)]
pub(crate) async fn purge(
    State(app): State<App>,
    PathParam(id): PathParam<TaskId>,
    author: Author,
) -> ApiResult {
    app.engine().purge(id).await?;
    author.log("purge", &id);
    Ok(no_content())
}

/// Checks that a task is within the limits of a token.
async fn check(app: &App, caller: &Caller, id: TaskId) -> Result<(), ApiError> {
    Ok(caller.limits.check_task(&app.engine().get(id).await?)?)
}

/// Report many outcomes
///
/// An array of up to 1,000 items. The response has one result per item, in order; the failure of one does not affect the others.
#[utoipa::path(
    post, path = "/v1/outcomes", tag = "work", operation_id = "outcomes", request_body = Vec<OutcomeItem>,
    responses((status = 200, description = "The results", body = Vec<OutcomeResult>))
)]
pub(crate) async fn outcomes(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: JsonText,
) -> ApiResult {
    let mut items: Vec<Result<OutcomeItem, ApiError>> = array_items(&body)?;
    if !caller.limits.is_empty() {
        for item in &mut items {
            if let Ok(outcome) = item
                && let Err(error) = check(&app, &caller, outcome.id).await
            {
                *item = Err(error);
            }
        }
    }
    let mut operations = Vec::with_capacity(items.len());
    // For each item its kind, or the error if the item is invalid.
    let mut parsed = Vec::with_capacity(items.len());
    for item in items {
        let item = item.and_then(|item| {
            let omits_input = item.omit_input;
            let (id, operation) = item.into_operation()?;
            Ok((omits_input, id, operation))
        });
        parsed.push(item.map(|(omits_input, id, operation)| {
            let kind = OperationKind::of(&operation);
            operations.push((id, operation));
            (omits_input, kind)
        }));
    }
    let mut results = app.engine().act_many(operations).await.into_iter();
    let mut bytes = 0;
    let outcome_results: Vec<OutcomeResult> = parsed
        .into_iter()
        .map(|item| {
            let result = item.and_then(|(omits_input, kind)| {
                let task = results.next().unwrap_or(Err(EngineError::Closed))?;
                kind.record(&app, &task);
                Ok(if omits_input {
                    task.without_input()
                } else {
                    task
                })
            });
            let result: Result<Task, Box<Problem>> = result
                .map(|task| within(&app.limits, &mut bytes, task, Task::without_input))
                .map_err(|error: ApiError| error.0);
            OutcomeResult::from(result)
        })
        .collect();
    json_results(&app.response_room, bytes, &outcome_results, |result| {
        result.problem.as_ref()
    })
    .await
}
