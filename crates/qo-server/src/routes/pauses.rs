//! Pauses and resumes queues and types.

use axum::Extension;
use axum::extract::State;
use qo::{EngineError, PauseNote, PauseTarget, QueueName, TaskType};
use qo_remote::wire::{PauseBody, PausesResponse, REASON_MAX_BYTES, schema};

use crate::app::App;
use crate::author::Author;
use crate::body::OptionalBody;
use crate::response::{ApiResult, json, no_content};
use crate::routes::change_route::change_route;
use crate::tokens::Caller;

async fn set(
    app: &App,
    target: PauseTarget,
    body: Option<PauseBody>,
    author: &Author,
) -> ApiResult {
    let note = body.map(|body| PauseNote {
        by: author.0.clone(),
        reason: body.reason,
    });
    let reason = note.as_ref().and_then(|note| note.reason.as_deref());
    if reason.is_some_and(|reason| reason.len() > REASON_MAX_BYTES) {
        let detail = format!("the reason is longer than {REASON_MAX_BYTES} bytes");
        return Err(EngineError::BadRequest(detail).into());
    }
    let name = if note.is_some() { "pause" } else { "resume" };
    app.engine().set_pause(&target, note).await?;
    author.log(name, &target);
    Ok(no_content())
}

change_route!(
    /// Pause a queue
    ///
    /// Workers get no tasks from it until it is resumed. Running tasks continue. A repeated pause changes only the reason.
    pause, [
        path = "/v1/queues/{queue}/pause", tag = "operate", operation_id = "pause", request_body = Option<PauseBody>,
        params(("queue" = schema::Name, Path, description = "The queue")),
        responses((status = 204, description = "The queue is paused"))
    ],
    |app, queue: QueueName, author, OptionalBody(body): PauseBody| set(&app, queue.into(), Some(body), &author)
);
change_route!(
    /// Resume a queue
    resume, [
        path = "/v1/queues/{queue}/resume", tag = "operate", operation_id = "resume",
        params(("queue" = schema::Name, Path, description = "The queue")),
        responses((status = 204, description = "The queue is not paused any more"))
    ],
    |app, queue: QueueName, author| set(&app, queue.into(), None, &author)
);
change_route!(
    /// Pause a type
    ///
    /// Workers get no tasks of this type, from any queue, until it is resumed. Running tasks continue. A repeated pause changes only the
    /// reason.
    pause_type, [
        path = "/v1/types/{type}/pause", tag = "operate", operation_id = "pause_type", request_body = Option<PauseBody>,
        params(("type" = schema::Name, Path, description = "The type")),
        responses((status = 204, description = "The type is paused"))
    ],
    |app, task_type: TaskType, author, OptionalBody(body): PauseBody| set(&app, task_type.into(), Some(body), &author)
);
change_route!(
    /// Resume a type
    resume_type, [
        path = "/v1/types/{type}/resume", tag = "operate", operation_id = "resume_type",
        params(("type" = schema::Name, Path, description = "The type")),
        responses((status = 204, description = "The type is not paused any more"))
    ],
    |app, task_type: TaskType, author| set(&app, task_type.into(), None, &author)
);

/// List pauses
///
/// The paused queues and types, with who paused them, when and why.
#[utoipa::path(
    get, path = "/v1/pauses", tag = "inspect", operation_id = "pauses",
    responses((status = 200, description = "The pauses", body = PausesResponse))
)]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> ApiResult {
    let mut pauses = app.engine().pauses().await?;
    caller.limits.narrow_pauses(&mut pauses);
    json(&PausesResponse::from(pauses))
}
