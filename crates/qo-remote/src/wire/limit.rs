//! Limits.

use std::collections::BTreeMap;

use qo_core::extra::Extra;
use qo_core::limit::LimitUsage;
use qo_core::{DocumentName, Limit, LimitKey, QueueName, StartLimit, TaskType};
use serde::{Deserialize, Serialize};

#[cfg(feature = "openapi")]
use super::schema;

/// What a limit applies to, and its bounds. It names at least one of `queue`, `task_type` and `limit_key`, and has at least one bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LimitBody {
    /// It applies to the tasks of this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub queue: Option<QueueName>,
    /// It applies to the tasks of this type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub task_type: Option<TaskType>,
    /// It applies to the tasks that were submitted with this limit key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub limit_key: Option<LimitKey>,
    /// How many of these tasks may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 10_000))]
    pub concurrent: Option<u32>,
    /// How many of them may start within a time window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<StartLimitBody>,
}

/// A bound on starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = StartLimit))]
pub struct StartLimitBody {
    /// How many attempts may start within the window. Each attempt counts, also one that fails.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000))]
    pub max: u32,
    /// The length of the window in milliseconds, from a second to 31 days.
    #[cfg_attr(
        feature = "openapi",
        schema(minimum = 1_000, maximum = 2_678_400_000_u64)
    )]
    pub window_ms: u64,
}

impl LimitBody {
    /// Converts to the core's limit.
    pub fn into_limit(self) -> Limit {
        Limit {
            queue: self.queue,
            task_type: self.task_type,
            limit_key: self.limit_key,
            concurrent: self.concurrent,
            starts: self.starts.map(|starts| StartLimit {
                max: starts.max,
                window_ms: starts.window_ms,
            }),
            extra: Extra::NONE,
        }
    }
}

/// What a list of limits says about their use. Older servers say nothing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LimitUsageResponse {
    limits: Vec<NamedUsage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct NamedUsage {
    name: DocumentName,
    #[serde(default)]
    usage: Option<LimitUsage>,
}

impl LimitUsageResponse {
    /// What is used of each limit.
    pub fn into_usage(self) -> BTreeMap<DocumentName, LimitUsage> {
        let limits = self.limits.into_iter();
        limits
            .filter_map(|limit| Some((limit.name, limit.usage?)))
            .collect()
    }
}

/// The forms of responses, for the API document.
#[cfg(feature = "openapi")]
pub mod forms {
    use utoipa::ToSchema;

    use super::super::schema;
    use super::StartLimitBody;

    /// A limit.
    #[derive(Debug, ToSchema)]
    #[schema(as = Limit)]
    pub struct LimitForm {
        /// Its name.
        #[schema(value_type = schema::Name)]
        pub name: String,
        /// The queue that it applies to.
        #[schema(value_type = Option<schema::Name>)]
        pub queue: Option<String>,
        /// The type that it applies to.
        #[schema(value_type = Option<schema::Name>)]
        pub task_type: Option<String>,
        /// The limit key that it applies to.
        #[schema(value_type = Option<schema::Name>)]
        pub limit_key: Option<String>,
        /// How many tasks may run at once.
        pub concurrent: Option<u32>,
        /// How many tasks may start within a time window.
        pub starts: Option<StartLimitBody>,
        /// When it was last changed.
        #[schema(value_type = schema::Time)]
        pub updated_at: String,
        /// What is used of it now. Absent in the response to a change.
        pub usage: Option<LimitUsageForm>,
    }

    /// What is used of a limit.
    #[derive(Debug, ToSchema)]
    #[schema(as = LimitUsage)]
    pub struct LimitUsageForm {
        /// How many slots for concurrent tasks are taken, if the limit has such a bound.
        pub running: Option<u32>,
        /// How many attempts have started within the window that ends now, if the limit has such a bound.
        pub started: Option<u32>,
    }

    /// All limits.
    #[derive(Debug, ToSchema)]
    #[schema(as = Limits)]
    pub struct LimitsForm {
        /// The limits, ordered by name.
        pub limits: Vec<LimitForm>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_usage_is_read() {
        let text = r#"{"limits":[{"name":"a","queue":"q","concurrent":1,"updated_at":"x"},
            {"name":"b","usage":{"running":2,"later":1}}]}"#;
        let response: LimitUsageResponse = serde_json::from_str(text).unwrap();
        let used = LimitUsage {
            running: Some(2),
            started: None,
        };
        assert_eq!(response.into_usage(), [("b".parse().unwrap(), used)].into());
    }

    #[test]
    fn a_body_becomes_the_core_s_limit() {
        let text =
            r#"{"limit_key":"stripe","concurrent":5,"starts":{"max":100,"window_ms":60000}}"#;
        let body: LimitBody = serde_json::from_str(text).unwrap();
        let limit = body.into_limit();
        limit.validate().unwrap();
        assert_eq!(limit.to_json().unwrap().as_str(), text);
        for bad in [
            r#"{"queue":"a/b","concurrent":1}"#,
            r#"{"queue":"a","concurrency":1}"#,
            r#"{"queue":"a","starts":{"max":1}}"#,
            r#"{"queue":"a","concurrent":-1}"#,
        ] {
            assert!(serde_json::from_str::<LimitBody>(bad).is_err(), "{bad}");
        }
    }
}
