//! What operators do with one task or one queue.

use axum::extract::State;
use qo::{QueueName, Task, TaskId};
use qo_remote::wire::{CancelBody, REASON_MAX_BYTES, schema};

use crate::answer::{Answer, Refusal, json, nothing};
use crate::app::App;
use crate::body::{MaybeBody, Named};

fn done(app: &App, operation: &'static str, task: &Task) -> Answer {
    app.events.tell(operation, task);
    json(task)
}

/// Call a task off
///
/// A pending one at once, a running one by asking its worker.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/cancel", tag = "operate", operation_id = "cancel", request_body = Option<CancelBody>,
    params(("id" = schema::Id, Path, description = "The task")),
    responses((status = 200, description = "The task as it is now", body = schema::TaskRecord))
)]
pub(crate) async fn cancel(
    State(app): State<App>,
    Named(id): Named<TaskId>,
    MaybeBody(body): MaybeBody<CancelBody>,
) -> Answer {
    let reason = bounded(body.reason)?;
    done(&app, "cancel", &app.engine().cancel(id, reason).await?)
}

/// A reason that is not too long.
pub(super) fn bounded(reason: Option<String>) -> Result<Option<String>, Refusal> {
    match reason {
        Some(text) if text.len() > REASON_MAX_BYTES => Err(Refusal::bad_request(format!(
            "the reason has more than {REASON_MAX_BYTES} bytes"
        ))),
        reason => Ok(reason),
    }
}

/// Start a task over
///
/// One that has come to its end.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/replay", tag = "operate", operation_id = "replay",
    params(("id" = schema::Id, Path, description = "The task")),
    responses((status = 200, description = "The task as it is now", body = schema::TaskRecord))
)]
pub(crate) async fn replay(State(app): State<App>, Named(id): Named<TaskId>) -> Answer {
    done(&app, "replay", &app.engine().replay(id).await?)
}

/// Make a waiting task due
///
/// One that waits for its time: a delay, a retry or a snooze.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/run_now", tag = "operate", operation_id = "run_now",
    params(("id" = schema::Id, Path, description = "The task")),
    responses((status = 200, description = "The task as it is now", body = schema::TaskRecord))
)]
pub(crate) async fn run_now(State(app): State<App>, Named(id): Named<TaskId>) -> Answer {
    done(&app, "run_now", &app.engine().run_now(id).await?)
}

/// Put a task away
///
/// One that has come to its end.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/archive", tag = "operate", operation_id = "archive",
    params(("id" = schema::Id, Path, description = "The task")),
    responses((status = 200, description = "The task as it is now", body = schema::TaskRecord))
)]
pub(crate) async fn archive(State(app): State<App>, Named(id): Named<TaskId>) -> Answer {
    done(&app, "archive", &app.engine().archive(id).await?)
}

/// Undo an archive
#[utoipa::path(
    post, path = "/v1/tasks/{id}/unarchive", tag = "operate", operation_id = "unarchive",
    params(("id" = schema::Id, Path, description = "The task")),
    responses((status = 200, description = "The task as it is now", body = schema::TaskRecord))
)]
pub(crate) async fn unarchive(State(app): State<App>, Named(id): Named<TaskId>) -> Answer {
    done(&app, "unarchive", &app.engine().unarchive(id).await?)
}

/// Remove a task for good
///
/// One that has come to its end, with its payloads and its versions.
#[utoipa::path(
    delete, path = "/v1/tasks/{id}", tag = "operate", operation_id = "purge",
    params(("id" = schema::Id, Path, description = "The task")),
    responses((status = 204, description = "It is gone"))
)]
pub(crate) async fn purge(State(app): State<App>, Named(id): Named<TaskId>) -> Answer {
    app.engine().purge(id).await?;
    Ok(nothing())
}

/// Let claims pass a queue by
#[utoipa::path(
    post, path = "/v1/queues/{queue}/pause", tag = "operate", operation_id = "pause",
    params(("queue" = schema::Name, Path, description = "The queue")),
    responses((status = 204, description = "It is paused"))
)]
pub(crate) async fn pause(State(app): State<App>, Named(queue): Named<QueueName>) -> Answer {
    app.engine().pause(&queue).await?;
    Ok(nothing())
}

/// Let claims serve a queue again
#[utoipa::path(
    post, path = "/v1/queues/{queue}/resume", tag = "operate", operation_id = "resume",
    params(("queue" = schema::Name, Path, description = "The queue")),
    responses((status = 204, description = "It is served"))
)]
pub(crate) async fn resume(State(app): State<App>, Named(queue): Named<QueueName>) -> Answer {
    app.engine().resume(&queue).await?;
    Ok(nothing())
}
