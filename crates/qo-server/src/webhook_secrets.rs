//! Keeps the secrets of webhooks from clients that read and change stored documents.
//!
//! A document that a client reads has no secret. So a change without one means: keep the stored one.

use qo::EngineError;
use qo_core::{DocumentKind, Json};
use qo_engine::Engine;
use qo_engine::api::{Document, DocumentQuery, DocumentWrite};
use serde_json::{Map, Value};

const SECRET: &str = "secret";

type Fields = Map<String, Value>;

/// The document without its secret, if it is a webhook.
pub(crate) fn hide(mut document: Document) -> Document {
    if document.id.kind == DocumentKind::Webhooks {
        // One that cannot be parsed is shown empty.
        let mut fields: Fields = document.body.to_value().unwrap_or_default();
        fields.remove(SECRET);
        document.body = Json::from_value(&fields).unwrap_or_else(|_| Json::null());
    }
    document
}

/// Adds the stored secret to a change of a webhook that has none.
pub(crate) async fn keep(
    engine: &dyn Engine,
    mut write: DocumentWrite,
) -> Result<DocumentWrite, EngineError> {
    if write.id.kind != DocumentKind::Webhooks {
        return Ok(write);
    }
    let bodies = [&mut write.body, &mut write.settled];
    for body in bodies.into_iter().filter_map(Option::as_mut) {
        let mut fields: Fields = body
            .to_value()
            .map_err(|error| EngineError::BadRequest(error.to_string()))?;
        if fields.contains_key(SECRET) {
            continue;
        }
        let stored = engine.documents(&DocumentQuery::one(&write.id)).await?;
        let stored = stored.first().map(|document| document.body.to_value());
        let mut stored: Fields = stored.transpose().ok().flatten().unwrap_or_default();
        // If another process replaces the webhook right now, the version of the change does not fit any more.
        let secret = stored
            .remove(SECRET)
            .ok_or_else(|| EngineError::BadRequest("a new webhook needs a secret".to_owned()))?;
        fields.insert(SECRET.to_owned(), secret);
        *body = Json::from_value(&fields)
            .map_err(|error| EngineError::BadRequest(error.to_string()))?;
    }
    Ok(write)
}
