//! Limits.

use axum::extract::State;
use qo::LimitInfo;
use qo_core::DocumentName;
use qo_remote::wire::limit::forms::{LimitForm, LimitsForm};
use qo_remote::wire::{LimitBody, schema};
use serde::Serialize;

use crate::app::App;
use crate::body::{JsonBody, PathParam};
use crate::response::{ApiResult, json, no_content};

#[derive(Serialize)]
struct LimitsResponse {
    limits: Vec<LimitInfo>,
}

/// List limits
///
/// Ordered by name.
#[utoipa::path(
    get, path = "/v1/limits", tag = "limits", operation_id = "limits",
    responses((status = 200, description = "The limits", body = LimitsForm))
)]
pub(crate) async fn list(State(app): State<App>) -> ApiResult {
    let limits = app.queue.limits().list().await?;
    json(&LimitsResponse { limits })
}

/// Read a limit
#[utoipa::path(
    get, path = "/v1/limits/{name}", tag = "limits", operation_id = "limit",
    params(("name" = schema::Name, Path, description = "The limit")),
    responses((status = 200, description = "The limit", body = LimitForm))
)]
pub(crate) async fn read(
    State(app): State<App>,
    PathParam(name): PathParam<DocumentName>,
) -> ApiResult {
    json(&app.queue.limits().get(name.as_str()).await?)
}

/// Set a limit
///
/// Creates it, or replaces the one with this name. Tasks that run already go on, also if there are more of them than allowed.
#[utoipa::path(
    put, path = "/v1/limits/{name}", tag = "limits", operation_id = "put_limit", request_body = LimitBody,
    params(("name" = schema::Name, Path, description = "The limit")),
    responses((status = 200, description = "The limit", body = LimitForm))
)]
pub(crate) async fn put(
    State(app): State<App>,
    PathParam(name): PathParam<DocumentName>,
    JsonBody(body): JsonBody<LimitBody>,
) -> ApiResult {
    let limit = body.into_limit();
    json(&app.queue.limits().put(name.as_str(), limit).await?)
}

/// Remove a limit
///
/// The tasks that waited for it can start.
#[utoipa::path(
    delete, path = "/v1/limits/{name}", tag = "limits", operation_id = "remove_limit",
    params(("name" = schema::Name, Path, description = "The limit")),
    responses((status = 204, description = "The limit is removed"))
)]
pub(crate) async fn remove(
    State(app): State<App>,
    PathParam(name): PathParam<DocumentName>,
) -> ApiResult {
    app.queue.limits().remove(name.as_str()).await?;
    Ok(no_content())
}
