//! The settings of queues, in their public form. [`super::settings`] has the documents in which they are stored.

use std::collections::BTreeMap;

use qo_core::{FairnessGroup, QueueSettings};
use serde::{Deserialize, Serialize};

/// The settings of a queue. What is absent has its default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueSettingsBody {
    /// The most retries of a task whose submit does not say; 3 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 10_000))]
    pub max_retries: Option<u32>,
    /// The longest duration of an attempt of a task whose submit does not say; 300 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 2_592_000))]
    pub timeout_seconds: Option<u64>,
    /// How long finished tasks are kept; as long as the server keeps those of other queues by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 316_224_000))]
    pub retention_seconds: Option<u64>,
    /// How long a task may wait after it became due, in milliseconds. Then it fails. Forever by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 31_536_000_000_u64))]
    pub max_wait_ms: Option<u64>,
    /// How many tasks may wait. A further submit gets 429 and the code `queue_full`. Any number by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000_000))]
    pub max_waiting: Option<u64>,
    /// How many turns groups get per round, from 1 to 1000, for at most 1000 groups. The others get one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, u32>))]
    pub group_weights: BTreeMap<FairnessGroup, u32>,
}

impl QueueSettingsBody {
    /// Converts to the core's settings.
    pub fn into_settings(self) -> QueueSettings {
        let mut settings = QueueSettings::NONE;
        settings.max_retries = self.max_retries;
        settings.timeout_seconds = self.timeout_seconds;
        settings.retention_seconds = self.retention_seconds;
        settings.max_wait_ms = self.max_wait_ms;
        settings.max_waiting = self.max_waiting;
        settings.group_weights = self.group_weights;
        settings
    }
}

/// Types of the OpenAPI document.
#[cfg(feature = "openapi")]
pub mod forms {
    use super::QueueSettingsBody;
    use crate::wire::schema;

    /// A queue and its settings.
    #[derive(Debug, utoipa::ToSchema)]
    pub struct QueueForm {
        /// Its name.
        #[schema(value_type = schema::Name)]
        pub queue: String,
        /// Its settings.
        pub settings: QueueSettingsBody,
        /// When the settings were last changed; absent if there are none.
        #[schema(value_type = Option<schema::Time>)]
        pub updated_at: Option<String>,
    }

    /// The queues that have settings.
    #[derive(Debug, utoipa::ToSchema)]
    pub struct QueuesForm {
        /// The queues, ordered by name.
        pub queues: Vec<QueueForm>,
    }
}
