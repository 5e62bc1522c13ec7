//! The bodies of the blob routes, in addition to those of the crate `qo-blob`.

use qo_core::BlobAddress;
use serde::{Deserialize, Serialize};

/// The query of a list of blobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlobListQuery {
    /// The `next` of the page before.
    #[serde(default)]
    pub after: Option<BlobAddress>,
    /// The most blobs to return; 100 by default.
    #[serde(default)]
    pub limit: Option<usize>,
}

/// A garbage collection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BlobGcBody {
    /// Blobs that were uploaded or touched within this time are kept; a day by default, at least an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 3600))]
    pub grace_seconds: Option<u64>,
    /// Whether to only count what would be collected.
    #[serde(default)]
    pub dry_run: bool,
}

/// Whether a blob was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BlobDeleted {
    /// Whether the blob existed.
    pub deleted: bool,
}
