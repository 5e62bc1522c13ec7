//! Webhooks. Only operators see them: the path of a URL is often a secret of its own.

use axum::extract::State;
use qo::WebhookInfo;
use qo_core::DocumentName;
use qo_remote::wire::webhook::forms::{WebhookForm, WebhooksForm};
use qo_remote::wire::{WebhookBody, WebhookTestResponse, schema};
use serde::Serialize;

use crate::app::App;
use crate::author::Author;
use crate::body::{JsonBody, PathParam};
use crate::response::{ApiResult, json, no_content};

#[derive(Serialize)]
struct WebhooksResponse {
    webhooks: Vec<WebhookInfo>,
}

/// List webhooks
///
/// Ordered by name, without their secrets.
#[utoipa::path(
    get, path = "/v1/webhooks", tag = "webhooks", operation_id = "webhooks",
    responses((status = 200, description = "The webhooks", body = WebhooksForm))
)]
pub(crate) async fn list(State(app): State<App>) -> ApiResult {
    let webhooks = app.queue.webhooks().list().await?;
    json(&WebhooksResponse { webhooks })
}

/// Read a webhook
///
/// Without its secret.
#[utoipa::path(
    get, path = "/v1/webhooks/{name}", tag = "webhooks", operation_id = "webhook",
    params(("name" = schema::Name, Path, description = "The webhook")),
    responses((status = 200, description = "The webhook", body = WebhookForm))
)]
pub(crate) async fn read(
    State(app): State<App>,
    PathParam(name): PathParam<DocumentName>,
) -> ApiResult {
    json(&app.queue.webhooks().get(name.as_str()).await?)
}

/// Set a webhook
///
/// Creates it, or replaces the one with this name. The response has the secret if it is new; no other response has it. At most 32 webhooks
/// can exist. A process that delivers notifications must run: `qo serve --webhooks` or `qo worker --webhooks`.
#[utoipa::path(
    put, path = "/v1/webhooks/{name}", tag = "webhooks", operation_id = "put_webhook", request_body = WebhookBody,
    params(("name" = schema::Name, Path, description = "The webhook")),
    responses((status = 200, description = "The webhook, with its secret if that is new", body = WebhookForm))
)]
pub(crate) async fn put(
    State(app): State<App>,
    PathParam(name): PathParam<DocumentName>,
    author: Author,
    JsonBody(body): JsonBody<WebhookBody>,
) -> ApiResult {
    let webhook = body.into_webhook().map_err(qo::Error::from)?;
    let put = app.queue.webhooks().put(name.as_str(), webhook).await?;
    author.log("set webhook", &name);
    json(&put)
}

/// Remove a webhook
///
/// Notifications that wait are not sent any more.
#[utoipa::path(
    delete, path = "/v1/webhooks/{name}", tag = "webhooks", operation_id = "remove_webhook",
    params(("name" = schema::Name, Path, description = "The webhook")),
    responses((status = 204, description = "The webhook is removed"))
)]
pub(crate) async fn remove(
    State(app): State<App>,
    PathParam(name): PathParam<DocumentName>,
    author: Author,
) -> ApiResult {
    app.queue.webhooks().remove(name.as_str()).await?;
    author.log("remove webhook", &name);
    Ok(no_content())
}

/// Test a webhook
///
/// Sends a notification of the type `webhook.test`, as a task like any other delivery. The response names that task.
#[utoipa::path(
    post, path = "/v1/webhooks/{name}/test", tag = "webhooks", operation_id = "test_webhook",
    params(("name" = schema::Name, Path, description = "The webhook")),
    responses((status = 200, description = "The notification is submitted", body = WebhookTestResponse))
)]
pub(crate) async fn test(
    State(app): State<App>,
    PathParam(name): PathParam<DocumentName>,
) -> ApiResult {
    let delivery = app.queue.webhooks().test(name.as_str()).await?;
    json(&WebhookTestResponse { delivery })
}
