//! Documents of the queue, such as schedules, as they are stored. Remote engines use these routes; people use those of each kind.

use axum::Extension;
use axum::extract::State;
use qo_core::DocumentKind;
use qo_engine::api::DocumentQuery;
use qo_remote::wire::{Condition, SettingsBody, SettingsQuery, SettingsResponse, SettingsWritten};

use crate::app::App;
use crate::author::Author;
use crate::body::{JsonBody, PathParam, QueryParams};
use crate::response::{ApiError, ApiResult, json};
use crate::tokens::Caller;
use crate::webhook_secrets;

/// Read settings
///
/// The stored documents of a kind: `schedules`, `queues`, `limits` or `webhooks`. The last need the scope `admin`, and come without their
/// secrets.
#[utoipa::path(
    get, path = "/v1/settings/{kind}", tag = "operate", operation_id = "settings",
    params(("kind" = String, Path, description = "The kind: `schedules`, `queues`, `limits` or `webhooks`"), SettingsQuery),
    responses((status = 200, description = "The documents, ordered by name", body = SettingsResponse))
)]
pub(crate) async fn read(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathParam(kind): PathParam<DocumentKind>,
    QueryParams(query): QueryParams<SettingsQuery>,
) -> ApiResult {
    if kind == DocumentKind::Webhooks && !caller.may(&[]) {
        return Err(ApiError::new(
            Condition::Forbidden,
            "webhooks need a token with the scope admin",
        ));
    }
    let query = DocumentQuery {
        kind,
        name: query.name,
        cached: false,
    };
    let documents = app.engine().documents(&query).await?;
    let documents = documents.into_iter().map(webhook_secrets::hide);
    let settings = documents.map(Into::into).collect();
    json(&SettingsResponse { settings })
}

/// Change settings
///
/// Writes or removes a stored document by compare-and-swap. A webhook without a secret keeps the stored one. If somebody else has changed it since it was read, nothing is changed, and the
/// code is `settings_conflict`. A repeated request with the same `op_id` has no second effect.
#[utoipa::path(
    post, path = "/v1/settings/{kind}", tag = "operate", operation_id = "change_settings",
    params(("kind" = String, Path, description = "The kind: `schedules`, `queues`, `limits` or `webhooks`")),
    request_body = SettingsBody,
    responses((status = 200, description = "The document is as requested", body = SettingsWritten))
)]
pub(crate) async fn change(
    State(app): State<App>,
    PathParam(kind): PathParam<DocumentKind>,
    author: Author,
    JsonBody(body): JsonBody<SettingsBody>,
) -> ApiResult {
    let write = webhook_secrets::keep(app.engine(), body.into_write(kind)?).await?;
    let id = write.id.clone();
    let written = app.engine().write_document(write).await?;
    let operation = if written.is_some() {
        "change settings"
    } else {
        "remove settings"
    };
    author.log(operation, &id);
    if kind == DocumentKind::Schedules {
        app.queue.ring_schedules();
    }
    json(&SettingsWritten {
        setting: written.map(webhook_secrets::hide).map(Into::into),
    })
}
