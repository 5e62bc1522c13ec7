//! Pauses of queues and types.

use std::collections::BTreeMap;

use qo_core::{Pause, Pauses, QueueName, TaskType};
use serde::{Deserialize, Serialize};

#[cfg(feature = "openapi")]
use super::schema;

/// The reason of a pause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PauseBody {
    /// Why, for people to read. Truncated to 512 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The paused queues and types.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PausesResponse {
    /// The paused queues.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::HashMap<String, schema::Pause>))]
    pub queues: BTreeMap<QueueName, Pause>,
    /// The paused types.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::HashMap<String, schema::Pause>))]
    pub types: BTreeMap<TaskType, Pause>,
}

impl From<Pauses> for PausesResponse {
    fn from(Pauses { queues, types }: Pauses) -> Self {
        Self { queues, types }
    }
}

impl From<PausesResponse> for Pauses {
    fn from(PausesResponse { queues, types }: PausesResponse) -> Self {
        Self { queues, types }
    }
}
