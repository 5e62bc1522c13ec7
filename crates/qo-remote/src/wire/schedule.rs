//! Schedules.

use qo_core::extra::Extra;
use qo_core::schedule::{Overlap, ScheduleSpec, TaskTemplate};
use qo_core::task::OnFailure;
use qo_core::{
    FairnessGroup, Json, LimitKey, OrderingKey, QueueName, Tag, TaskId, TaskType, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::{RetryPolicyBody, bounded};

#[cfg(feature = "openapi")]
use super::schema;

/// The definition of a schedule. It has exactly one of `cron`, `every_ms` and `at`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleBody {
    /// A cron line with five fields, or six with seconds first, or an alias such as `@daily`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 256))]
    pub cron: Option<String>,
    /// The IANA time zone of the cron line, such as `Europe/Berlin`; UTC by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 64))]
    pub time_zone: Option<String>,
    /// A fixed interval of at least a second. Its ticks are counted from `start`, or from 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(minimum = 1_000, maximum = 31_536_000_000_u64)
    )]
    pub every_ms: Option<u64>,
    /// A list of times.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::Time>, max_items = 256))]
    pub at: Vec<Timestamp>,
    /// No tick is before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Time>))]
    pub start: Option<Timestamp>,
    /// No tick is after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Time>))]
    pub end: Option<Timestamp>,
    /// What happens at a tick while a task of an earlier one is unfinished: `allow`, `skip`, `buffer_one` or `cancel_running`; `allow` by
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub overlap: Option<Overlap>,
    /// How late a tick may still be fired, after an outage; an hour by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(minimum = 60_000, maximum = 31_536_000_000_u64)
    )]
    pub catch_up_ms: Option<u64>,
    /// Each task becomes due up to this much later than its tick; 0 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 86_400_000))]
    pub jitter_ms: Option<u64>,
    /// The task to submit.
    pub task: TaskTemplateBody,
}

/// The task of a schedule. Omitted fields have the defaults of a submit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskTemplateBody {
    /// The task type.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Name))]
    pub task_type: TaskType,
    /// The input, up to 8 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::AnyJson>))]
    pub input: Option<Json>,
    /// The queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub queue: Option<QueueName>,
    /// The priority, 0 to 9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 9))]
    pub priority: Option<u8>,
    /// The longest duration of an attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 2_592_000))]
    pub timeout_seconds: Option<u64>,
    /// The most retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 10_000))]
    pub max_retries: Option<u32>,
    /// The delays between retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<RetryPolicyBody>,
    /// How long after its submit the task may be started, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(minimum = 1_000, maximum = 31_536_000_000_u64)
    )]
    pub expires_in_ms: Option<u64>,
    /// Tags. The task also gets `schedule:` and the name of the schedule.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::Label>, max_items = 15))]
    pub tags: Vec<Tag>,
    /// The ordering key: tasks of one queue with the same key run one at a time, in submit order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Key>))]
    pub ordering_key: Option<OrderingKey>,
    /// What happens to the next tasks with this ordering key if this one fails permanently; `continue` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::FailurePolicy>))]
    pub ordering_on_failure: Option<OnFailure>,
    /// The limit key: the limits with this key apply to the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub limit_key: Option<LimitKey>,
    /// The group of the task, such as a tenant: the groups of a queue are served in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub fairness_group: Option<FairnessGroup>,
}

impl ScheduleBody {
    /// Converts to the core's definition.
    pub fn into_spec(self) -> ScheduleSpec {
        let task = self.task;
        let default = ScheduleSpec::without_rule(TaskTemplate {
            task_type: task.task_type,
            input: task.input,
            queue: task.queue,
            priority: task.priority,
            timeout_seconds: task.timeout_seconds,
            max_retries: task.max_retries,
            retry_policy: task.retry_policy.map(RetryPolicyBody::into_policy),
            expires_in_ms: task.expires_in_ms,
            tags: task.tags,
            ordering_key: task.ordering_key,
            ordering_on_failure: task.ordering_on_failure,
            limit_key: task.limit_key,
            fairness_group: task.fairness_group,
            extra: Extra::NONE,
        });
        ScheduleSpec {
            cron: self.cron,
            time_zone: self.time_zone,
            every_ms: self.every_ms,
            at: self.at,
            start: self.start,
            end: self.end,
            overlap: self.overlap.unwrap_or_default(),
            catch_up_ms: self.catch_up_ms.unwrap_or(default.catch_up_ms),
            jitter_ms: self.jitter_ms.unwrap_or(0),
            ..default
        }
    }
}

/// The range of a backfill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BackfillBody {
    /// Its first time.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub from: Timestamp,
    /// Its last time, which must be in the past.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub to: Timestamp,
}

/// The task of a triggered run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TriggeredResponse {
    /// The task's id.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub task_id: TaskId,
}

/// The forms of responses, for the OpenAPI document.
#[cfg(feature = "openapi")]
pub mod forms {
    use utoipa::ToSchema;

    use super::super::schema;
    use super::ScheduleBody;

    /// A schedule, its next runs and its last ones.
    #[derive(Debug, ToSchema)]
    pub struct ScheduleForm {
        /// Its name.
        #[schema(value_type = schema::Name)]
        pub name: String,
        /// Its definition.
        pub spec: ScheduleBody,
        /// When it was created.
        #[schema(value_type = schema::Time)]
        pub created_at: String,
        /// Since when it is paused.
        #[schema(value_type = Option<schema::Time>)]
        pub paused_at: Option<String>,
        /// Its next run; null if it is paused or has none left.
        #[schema(value_type = Option<schema::Time>)]
        pub next: Option<String>,
        /// Its next runs.
        #[schema(value_type = Vec<schema::Time>)]
        pub upcoming: Vec<String>,
        /// The last run.
        pub last: Option<RunForm>,
        /// The last runs, oldest first.
        pub recent: Vec<RunForm>,
        /// A tick that waits for earlier tasks to finish.
        #[schema(value_type = Option<schema::Time>)]
        pub buffered: Option<String>,
        /// How many runs there were.
        pub fired: u64,
        /// How many ticks were skipped because of an overlap.
        pub skipped: u64,
        /// How many ticks were missed, because no process was there for longer than the catch-up window.
        pub missed: u64,
    }

    /// One run of a schedule.
    #[derive(Debug, ToSchema)]
    pub struct RunForm {
        /// The time that it is for.
        #[schema(value_type = schema::Time)]
        pub tick: String,
        /// `trigger` or `backfill`; absent for a tick.
        #[schema(required = false)]
        pub kind: String,
        /// Its task.
        #[schema(value_type = schema::Id)]
        pub task: String,
        /// When it was decided.
        #[schema(value_type = schema::Time)]
        pub at: String,
    }

    /// All schedules, ordered by name.
    #[derive(Debug, ToSchema)]
    pub struct SchedulesForm {
        /// The schedules.
        pub schedules: Vec<ScheduleForm>,
    }

    /// What a backfill did.
    #[derive(Debug, ToSchema)]
    pub struct BackfillForm {
        /// The tasks of the range, in the order of their ticks.
        #[schema(value_type = Vec<schema::Id>)]
        pub tasks: Vec<String>,
        /// How many of them an earlier backfill of the same range had submitted.
        pub existing: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_becomes_the_core_s() {
        let text = r#"{"cron":"30 2 * * *","time_zone":"Europe/Berlin","overlap":"buffer_one","jitter_ms":5,
            "task":{"task_type":"report","input":{"n": 1.0},"retry_policy":{"multiplier":3},
            "ordering_key":"account-17","ordering_on_failure":"stop"}}"#;
        let body: ScheduleBody = serde_json::from_str(text).unwrap();
        let spec = body.into_spec();
        spec.ticks().unwrap();
        assert_eq!(spec.overlap, Overlap::BufferOne);
        assert_eq!((spec.jitter_ms, spec.catch_up_ms), (5, 3_600_000));
        let rule = spec.task.ordering().unwrap();
        assert_eq!(
            (rule.key.as_str(), rule.on_failure),
            ("account-17", OnFailure::Stop)
        );
        assert_eq!(spec.task.input.unwrap().as_str(), "{\"n\": 1.0}");
        for bad in [
            r#"{"cron":"* * * * *"}"#,
            r#"{"every":1,"task":{"task_type":"a"}}"#,
            r#"{"every_ms":1000,"overlap":"sometimes","task":{"task_type":"a"}}"#,
            r#"{"every_ms":1000,"task":{"task_type":"a/b"}}"#,
            r#"{"every_ms":1000,"task":{"task_type":"a","ordering_key":""}}"#,
            r#"{"every_ms":1000,"task":{"task_type":"a","ordering_key":"k","ordering_on_failure":"explode"}}"#,
        ] {
            assert!(serde_json::from_str::<ScheduleBody>(bad).is_err(), "{bad}");
        }
    }
}
