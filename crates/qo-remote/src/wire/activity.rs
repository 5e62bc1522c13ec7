//! What happened to tasks: rates and latencies over the last hour, day or week.

use qo_core::{QueueName, TaskType, Timestamp};
use serde::{Deserialize, Serialize};

#[cfg(feature = "openapi")]
use super::schema;

/// A period that ends now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Period {
    /// 60 minutes, in steps of a minute.
    #[default]
    Hour,
    /// 24 hours, in steps of 15 minutes.
    Day,
    /// 7 days, in steps of an hour.
    Week,
}

impl Period {
    /// All periods.
    pub const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Week];

    /// The number of steps.
    pub fn steps(self) -> usize {
        match self {
            Self::Hour => 60,
            Self::Day => 96,
            Self::Week => 168,
        }
    }

    /// The length of a step.
    pub fn step_seconds(self) -> u64 {
        match self {
            Self::Hour => 60,
            Self::Day => 15 * 60,
            Self::Week => 60 * 60,
        }
    }
}

/// Which activity to return.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct ActivityQuery {
    /// The period: `hour`, `day` or `week`; `hour` by default.
    #[serde(default)]
    pub period: Period,
    /// Only this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<schema::Name>))]
    pub queue: Option<QueueName>,
    /// Only this type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<schema::Name>))]
    pub task_type: Option<TaskType>,
}

/// Whose changes are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Coverage {
    /// All changes of the queue.
    Queue,
    /// Those that this server made. Other processes change tasks, too.
    Server,
}

/// Durations. Percentiles are estimates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// Their mean.
    pub mean_ms: u64,
    /// Half of them took no longer.
    pub p50_ms: u64,
    /// 95 of 100 took no longer.
    pub p95_ms: u64,
    /// 99 of 100 took no longer.
    pub p99_ms: u64,
    /// The longest.
    pub max_ms: u64,
}

/// How long tasks waited and ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LatencySummaries {
    /// From the due time of tasks to their claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Latency>,
    /// From the claim of attempts to their end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Latency>,
    /// From the submit of tasks to their end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Latency>,
}

/// Counted changes of tasks, and how long they took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActivityChanges {
    /// Tasks that were submitted.
    pub submitted: u64,
    /// Tasks that were completed.
    pub completed: u64,
    /// Tasks that failed permanently.
    pub failed: u64,
    /// Tasks that were cancelled.
    pub cancelled: u64,
    /// Attempts that failed or expired and are repeated.
    pub retried: u64,
    /// How long the tasks waited and ran.
    #[serde(flatten)]
    pub latencies: LatencySummaries,
}

/// What happened to the tasks of one queue and type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TypeActivity {
    /// The queue; `other` for all beyond a maximum.
    pub queue: String,
    /// The type; `other` for all beyond a maximum.
    pub task_type: String,
    /// What happened.
    #[serde(flatten)]
    pub changes: ActivityChanges,
}

/// What happened in one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActivityPoint {
    /// When the step began.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub changes: ActivityChanges,
}

/// What happened in a period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActivityResponse {
    /// The period.
    pub period: Period,
    /// The length of a step.
    pub step_seconds: u64,
    /// When the period began.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub from: Timestamp,
    /// Now, by the queue's clock.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub to: Timestamp,
    /// Since when changes are counted. If this is later than `from`, the counts cover only a part of the period.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub since: Timestamp,
    /// When this server took over the counters of the one before, if it did. After a crash, what happened in the last five minutes before may
    /// be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Time>))]
    pub resumed_at: Option<Timestamp>,
    /// Whose changes are counted.
    pub covers: Coverage,
    /// How long the tasks of all types waited and ran.
    #[serde(flatten)]
    pub latencies: LatencySummaries,
    /// By queue and type.
    pub types: Vec<TypeActivity>,
    /// By step, oldest first. Steps in which nothing happened are left out.
    pub points: Vec<ActivityPoint>,
}
