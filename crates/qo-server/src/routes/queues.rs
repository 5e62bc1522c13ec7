//! The settings of queues.

use axum::extract::State;
use qo::{QueueInfo, QueueName};
use qo_remote::wire::queue_settings::forms::{QueueForm, QueuesForm};
use qo_remote::wire::{QueueSettingsBody, schema};
use serde::Serialize;

use crate::app::App;
use crate::author::Author;
use crate::body::{JsonBody, PathParam};
use crate::response::{ApiResult, json};

#[derive(Serialize)]
struct QueuesResponse {
    queues: Vec<QueueInfo>,
}

/// List the settings of queues
///
/// The queues that have settings, ordered by name. `/v1/stats` lists all queues that have tasks.
#[utoipa::path(
    get, path = "/v1/queues", tag = "operate", operation_id = "queues",
    responses((status = 200, description = "The queues", body = QueuesForm))
)]
pub(crate) async fn list(State(app): State<App>) -> ApiResult {
    let queues = app.queue.queues().list().await?;
    json(&QueuesResponse { queues })
}

/// Read the settings of a queue
#[utoipa::path(
    get, path = "/v1/queues/{queue}", tag = "operate", operation_id = "queue",
    params(("queue" = schema::Name, Path, description = "The queue")),
    responses((status = 200, description = "The queue", body = QueueForm))
)]
pub(crate) async fn read(
    State(app): State<App>,
    PathParam(queue): PathParam<QueueName>,
) -> ApiResult {
    json(&app.queue.queues().get(queue.as_str()).await?)
}

/// Set the settings of a queue
///
/// Replaces all of them: what is absent gets its default, and `{}` removes them. They apply to tasks that are submitted from now on, and in
/// direct mode within ten seconds in all processes. Tasks that wait keep what they were submitted with.
#[utoipa::path(
    put, path = "/v1/queues/{queue}", tag = "operate", operation_id = "put_queue", request_body = QueueSettingsBody,
    params(("queue" = schema::Name, Path, description = "The queue")),
    responses((status = 200, description = "The queue", body = QueueForm))
)]
pub(crate) async fn put(
    State(app): State<App>,
    PathParam(queue): PathParam<QueueName>,
    author: Author,
    JsonBody(body): JsonBody<QueueSettingsBody>,
) -> ApiResult {
    let queues = app.queue.queues();
    let info = queues.set(queue.as_str(), body.into_settings()).await?;
    author.log("set", &queue);
    json(&info)
}
