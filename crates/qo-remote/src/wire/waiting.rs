//! Why a task waits.

use qo_engine::api::WaitReason;
use serde::{Deserialize, Serialize};

#[cfg(feature = "openapi")]
use super::schema;

/// What a pending task waits for besides its due time and a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaitsForResponse {
    /// The reason; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::WaitReasonRecord>))]
    pub waits_for: Option<WaitReason>,
}
