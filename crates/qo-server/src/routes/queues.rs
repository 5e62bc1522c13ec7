//! Pauses and resumes queues.

use axum::extract::State;
use qo::QueueName;
use qo_remote::wire::schema;

use crate::app::App;
use crate::author::Author;
use crate::body::PathParam;
use crate::response::{ApiResult, no_content};

/// Pause a queue
///
/// Workers get no tasks from it until it is resumed.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/pause", tag = "operate", operation_id = "pause",
    params(("queue" = schema::Name, Path, description = "The queue")),
    responses((status = 204, description = "The queue is paused"))
)]
pub(crate) async fn pause(
    State(app): State<App>,
    PathParam(queue): PathParam<QueueName>,
    author: Author,
) -> ApiResult {
    app.engine().pause(&queue).await?;
    author.log("pause", &queue);
    Ok(no_content())
}

/// Resume a queue
#[utoipa::path(
    post, path = "/v1/queues/{queue}/resume", tag = "operate", operation_id = "resume",
    params(("queue" = schema::Name, Path, description = "The queue")),
    responses((status = 204, description = "The queue is not paused any more"))
)]
pub(crate) async fn resume(
    State(app): State<App>,
    PathParam(queue): PathParam<QueueName>,
    author: Author,
) -> ApiResult {
    app.engine().resume(&queue).await?;
    author.log("resume", &queue);
    Ok(no_content())
}
