//! Pausing and resuming queues.

use axum::extract::State;
use qo::QueueName;
use qo_remote::wire::schema;

use crate::answer::{Answer, nothing};
use crate::app::App;
use crate::body::Named;

/// Pause a queue
///
/// Workers get no tasks from it until it is resumed.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/pause", tag = "operate", operation_id = "pause",
    params(("queue" = schema::Name, Path, description = "The queue")),
    responses((status = 204, description = "It is paused"))
)]
pub(crate) async fn pause(State(app): State<App>, Named(queue): Named<QueueName>) -> Answer {
    app.engine().pause(&queue).await?;
    Ok(nothing())
}

/// Resume a queue
#[utoipa::path(
    post, path = "/v1/queues/{queue}/resume", tag = "operate", operation_id = "resume",
    params(("queue" = schema::Name, Path, description = "The queue")),
    responses((status = 204, description = "It is served"))
)]
pub(crate) async fn resume(State(app): State<App>, Named(queue): Named<QueueName>) -> Answer {
    app.engine().resume(&queue).await?;
    Ok(nothing())
}
