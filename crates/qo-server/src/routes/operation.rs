//! Operations on one task: a row for each, with its path, its body and its description.

use axum::extract::State;
use qo::{EngineError, Operation, Status, Task, TaskId};
use qo_remote::wire::operation::{
    CancelBody, CompleteBody, FailBody, OperationBody, ProgressBody, ReleaseBody, RenewBody,
    SnoozeBody,
};
use qo_remote::wire::{OutcomeAnswer, OutcomeItem, Problem, schema};

use crate::answer::{Answer, Refusal, json, json_of_parts, nothing};
use crate::app::App;
use crate::body::{JsonBody, JsonText, MaybeBody, Named};
use crate::routes::tasks::{parts, size_of};

async fn act(app: &App, id: TaskId, operation: Operation) -> Answer {
    let origin = Origin::of(&operation);
    let task = app.engine().act(id, operation).await?;
    origin.note(app, &task);
    json(&task)
}

/// What counters and listeners need to know of an operation once it is done.
#[derive(Clone, Copy)]
struct Origin {
    name: &'static str,
    /// Workers present a lease, operators do not.
    is_worker: bool,
}

impl Origin {
    fn of(operation: &Operation) -> Self {
        Self {
            name: operation.name(),
            is_worker: operation.lease().is_some(),
        }
    }

    fn note(self, app: &App, task: &Task) {
        if self.is_worker && task.status != Status::Running {
            app.metrics.ended(task);
        }
        if self.name != "renew" {
            app.events.tell(self.name, task);
        }
    }
}

/// The route of one operation: with a body, with an optional body, or without one.
macro_rules! operation_route {
    ($(#[doc = $doc:literal])* $name:ident, $path:literal, $tag:literal, $body:ident) => {
        $(#[doc = $doc])*
        #[utoipa::path(
            post, path = $path, tag = $tag, request_body = $body,
            params(("id" = schema::Id, Path, description = "The task")),
            responses((status = 200, description = "The task as it is now", body = schema::TaskRecord))
        )]
        pub(crate) async fn $name(
            State(app): State<App>,
            Named(id): Named<TaskId>,
            JsonBody(body): JsonBody<$body>,
        ) -> Answer {
            act(&app, id, body.into_operation()?).await
        }
    };
    ($(#[doc = $doc:literal])* $name:ident, $path:literal, $tag:literal, maybe $body:ident) => {
        $(#[doc = $doc])*
        #[utoipa::path(
            post, path = $path, tag = $tag, request_body = Option<$body>,
            params(("id" = schema::Id, Path, description = "The task")),
            responses((status = 200, description = "The task as it is now", body = schema::TaskRecord))
        )]
        pub(crate) async fn $name(
            State(app): State<App>,
            Named(id): Named<TaskId>,
            MaybeBody(body): MaybeBody<$body>,
        ) -> Answer {
            act(&app, id, body.into_operation()?).await
        }
    };
    ($(#[doc = $doc:literal])* $name:ident, $path:literal, $tag:literal, = $operation:ident) => {
        $(#[doc = $doc])*
        #[utoipa::path(
            post, path = $path, tag = $tag,
            params(("id" = schema::Id, Path, description = "The task")),
            responses((status = 200, description = "The task as it is now", body = schema::TaskRecord))
        )]
        pub(crate) async fn $name(State(app): State<App>, Named(id): Named<TaskId>) -> Answer {
            act(&app, id, Operation::$operation).await
        }
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
    /// The task is retried or fails for good, depending on the kind of the failure and on the retries that are left.
    fail, "/v1/tasks/{id}/fail", "work", FailBody
);
operation_route!(
    /// Release a task
    ///
    /// Gives it back at once. This does not count against its retries.
    release, "/v1/tasks/{id}/release", "work", ReleaseBody
);
operation_route!(
    /// Renew a lease
    ///
    /// `cancel_requested` of the response says whether the task is to be cancelled.
    renew, "/v1/tasks/{id}/renew", "work", RenewBody
);
operation_route!(
    /// Snooze a task
    ///
    /// Postpones it. This does not count against its retries.
    snooze, "/v1/tasks/{id}/snooze", "work", SnoozeBody
);
operation_route!(
    /// Report progress
    progress, "/v1/tasks/{id}/progress", "work", ProgressBody
);
operation_route!(
    /// Cancel a task
    ///
    /// A pending task at once, a running task by asking its worker to stop.
    cancel, "/v1/tasks/{id}/cancel", "operate", maybe CancelBody
);
operation_route!(
    /// Run a task now
    ///
    /// Makes a pending task due that waits for its time: a delay, a retry or a snooze.
    run_now, "/v1/tasks/{id}/run_now", "operate", = RunNow
);
operation_route!(
    /// Replay a task
    ///
    /// Starts a finished task over.
    replay, "/v1/tasks/{id}/replay", "operate", = Replay
);
operation_route!(
    /// Archive a task
    ///
    /// A finished task.
    archive, "/v1/tasks/{id}/archive", "operate", = Archive
);
operation_route!(
    /// Unarchive a task
    unarchive, "/v1/tasks/{id}/unarchive", "operate", = Unarchive
);

/// Purge a task
///
/// Removes a finished task for good, with its payloads and its versions.
#[utoipa::path(
    delete, path = "/v1/tasks/{id}", tag = "operate", operation_id = "purge",
    params(("id" = schema::Id, Path, description = "The task")),
    responses((status = 204, description = "It is gone"))
)]
pub(crate) async fn purge(State(app): State<App>, Named(id): Named<TaskId>) -> Answer {
    app.engine().purge(id).await?;
    Ok(nothing())
}

/// Report many outcomes
///
/// An array of up to 1,000. Each has a result of its own, in order: a failure of one says nothing about the others.
#[utoipa::path(
    post, path = "/v1/outcomes", tag = "work", operation_id = "outcomes", request_body = Vec<OutcomeItem>,
    responses((status = 200, description = "A result for each", body = Vec<OutcomeAnswer>))
)]
pub(crate) async fn outcomes(State(app): State<App>, body: JsonText) -> Answer {
    let parts: Vec<Result<OutcomeItem, Refusal>> = parts(&body)?;
    let mut operations = Vec::with_capacity(parts.len());
    // For each item whether its operation was valid.
    let mut known = Vec::with_capacity(parts.len());
    for part in parts {
        let read = part.and_then(|item| {
            let omits_input = item.omit_input;
            let (id, operation) = item.into_operation()?;
            Ok((omits_input, id, operation))
        });
        known.push(read.map(|(omits_input, id, operation)| {
            let origin = Origin::of(&operation);
            operations.push((id, operation));
            (omits_input, origin)
        }));
    }
    let mut results = app.engine().act_many(operations).await.into_iter();
    let answers: Vec<OutcomeAnswer> = known
        .into_iter()
        .map(|known| {
            let result = known.and_then(|(omits_input, origin)| {
                let task = results.next().unwrap_or(Err(EngineError::Closed))?;
                origin.note(&app, &task);
                Ok(if omits_input {
                    task.without_input()
                } else {
                    task
                })
            });
            let result: Result<Task, Box<Problem>> = result.map_err(|refusal: Refusal| refusal.0);
            OutcomeAnswer::from(result)
        })
        .collect();
    let bytes = answers.iter().filter_map(|answer| answer.task.as_ref());
    let bytes = bytes.map(size_of).sum();
    json_of_parts(bytes, &answers, |answer| answer.problem.as_ref())
}
