//! Documents, such as schedules, as they are stored. [`super::schedule`] has the public form.

use qo_core::{DocumentId, DocumentKind, DocumentName, Json, OpId, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::{Document, DocumentWrite};
use serde::{Deserialize, Serialize};

use super::SubmitBody;
use super::bounded;

#[cfg(feature = "openapi")]
use super::schema;

/// Which settings to read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct SettingsQuery {
    /// The name of one; all of the kind by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<schema::Name>))]
    pub name: Option<DocumentName>,
}

/// A named JSON document that is kept with the queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettingsEntry {
    /// The name.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Name))]
    pub name: DocumentName,
    /// The version, which a change must name.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub version: OpId,
    /// How often it was written.
    pub revision: u64,
    /// When it was last written.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub updated_at: Timestamp,
    /// The document.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::AnyJson))]
    pub body: Json,
}

impl From<Document> for SettingsEntry {
    fn from(document: Document) -> Self {
        Self {
            name: document.id.name,
            version: document.version,
            revision: document.revision,
            updated_at: document.updated_at,
            body: document.body,
        }
    }
}

impl SettingsEntry {
    /// Converts to the engine's document.
    pub fn into_document(self, kind: DocumentKind) -> Document {
        Document {
            id: DocumentId {
                kind,
                name: self.name,
            },
            version: self.version,
            revision: self.revision,
            updated_at: self.updated_at,
            body: self.body,
        }
    }
}

/// Settings, ordered by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettingsResponse {
    /// The documents.
    pub settings: Vec<SettingsEntry>,
}

/// A change of a document by compare-and-swap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettingsBody {
    /// The name.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Name))]
    pub name: DocumentName,
    /// The version that the change is based on; absent if the document must not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Id>))]
    pub version: Option<OpId>,
    /// Identifies the change and becomes the new version. A repeated change with the same id has no second effect.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub op_id: OpId,
    /// The new document, a JSON object; absent to remove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::AnyJson>))]
    pub body: Option<Json>,
    /// Tasks to submit with the change.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
    #[cfg_attr(feature = "openapi", schema(max_items = 256))]
    pub submits: Vec<SubmitBody>,
    /// The document once these tasks are submitted; `body` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::AnyJson>))]
    pub settled: Option<Json>,
}

impl SettingsBody {
    /// Converts from the engine's request.
    pub fn from_write(write: DocumentWrite) -> Self {
        let submits = write.submits.into_iter().map(SubmitBody::from_request);
        Self {
            name: write.id.name,
            version: write.expected,
            op_id: write.op,
            body: write.body,
            submits: submits.collect(),
            settled: write.settled,
        }
    }

    /// Converts to the engine's request.
    pub fn into_write(self, kind: DocumentKind) -> Result<DocumentWrite, EngineError> {
        for json in self.body.iter().chain(&self.settled) {
            json.check_depth()
                .map_err(|error| EngineError::BadRequest(error.to_string()))?;
        }
        let submits = self.submits.into_iter().map(SubmitBody::into_request);
        let write = DocumentWrite {
            id: DocumentId {
                kind,
                name: self.name,
            },
            expected: self.version,
            body: self.body,
            op: self.op_id,
            submits: submits.collect::<Result<_, _>>()?,
            settled: self.settled,
        };
        write.validate()?;
        Ok(write)
    }
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettingsWritten {
    /// The document; absent if it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<SettingsEntry>,
}
