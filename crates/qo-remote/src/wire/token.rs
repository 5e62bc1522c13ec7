//! The tokens of a server.

use qo_core::{QueueName, TaskType, Timestamp};
use serde::{Deserialize, Serialize};

use super::bounded;

#[cfg(feature = "openapi")]
use super::schema;

/// A token to store under its id. The secret part of the token stays with the client, which sends only its hash, so repeating the request is
/// harmless.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenBody {
    /// The name of the token, for people.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Label))]
    pub name: String,
    /// What it allows: `submit`, `work`, `read`, `admin`.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 4))]
    pub scopes: Vec<String>,
    /// The queues to which it is limited; by default it is for all.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::Name>, max_items = 256))]
    pub queues: Vec<QueueName>,
    /// The types to which it is limited; by default it is for all.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::Name>, max_items = 256))]
    pub types: Vec<TaskType>,
    /// The SHA-256 of the secret part of the token, in hexadecimal digits.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-f]{64}$"))]
    pub sha256: String,
    /// How long the token is valid; by default until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub valid_for_ms: Option<u64>,
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenInfo {
    /// The public part of the token.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it allows.
    pub scopes: Vec<String>,
    /// The queues to which it is limited; empty if it is for all.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::Name>))]
    pub queues: Vec<QueueName>,
    /// The types to which it is limited; empty if it is for all.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::Name>))]
    pub types: Vec<TaskType>,
    /// When it was created.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created_at: Timestamp,
    /// When it expires, if it does.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub expires_at: Option<Timestamp>,
}
