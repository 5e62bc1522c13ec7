//! What a user defines.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::extra::Extra;
use crate::json::Json;
use crate::limits::{RETRIES_MAX, TAGS_MAX, TIMEOUT_MAX_SECONDS};
use crate::names::{FairnessGroup, LimitKey, OrderingKey, QueueName, Tag, TaskType};
use crate::retry::{InvalidRetryPolicy, RetryPolicy};
use crate::task::{OnFailure, OrderingRule, PRIORITY_MAX};
use crate::time::Timestamp;

use super::ticks::Ticks;

/// The maximum length of a cron line in bytes.
const CRON_MAX_BYTES: usize = 256;
/// The maximum number of listed times.
const TIMES_MAX: usize = 500;
/// The shortest interval.
const EVERY_MIN_MS: u64 = 1_000;
/// The longest interval, catch-up window and time to start.
const SPAN_MAX_MS: u64 = 365 * 24 * 60 * 60 * 1_000;
/// The longest jitter.
const JITTER_MAX_MS: u64 = 24 * 60 * 60 * 1_000;
/// The shortest catch-up window: another process needs that long to notice that one has died.
const CATCH_UP_MIN_MS: u64 = 60_000;
/// The catch-up window of schedules without one.
const CATCH_UP_DEFAULT_MS: u64 = 60 * 60 * 1_000;
/// The largest input of a schedule's task, which is part of its record.
const INPUT_MAX_BYTES: usize = 8 * 1024;

/// The definition of a schedule. It has exactly one of `cron`, `every_ms` and `at`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleSpec {
    /// A cron line with five fields, or six with seconds first, or an alias such as `@daily`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The IANA time zone of the cron line, such as `Europe/Berlin`; UTC if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// A fixed interval. Its ticks are counted from `start`, or from 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// A list of times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<Timestamp>,
    /// No tick is before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    /// No tick is after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    /// What happens at a tick while a task of an earlier one is unfinished.
    #[serde(default)]
    pub overlap: Overlap,
    /// How late a tick may still be fired, after an outage of all processes.
    #[serde(default = "catch_up_default")]
    pub catch_up_ms: u64,
    /// Each task becomes due up to this much later than its tick. How much follows from its id.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jitter_ms: u64,
    /// The task to submit.
    pub task: TaskTemplate,
    /// Fields of newer versions of qo, kept as they are.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The task of a schedule. Absent values have the defaults of a submit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskTemplate {
    /// Its type.
    pub task_type: TaskType,
    /// Its input; `null` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Json>,
    /// Its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// Its priority, 0 to 9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// The timeout of an attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// The most retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// The delays before retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<RetryPolicy>,
    /// How long after its submit the task may be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// Tags, besides `schedule:` and the name of the schedule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    /// Its ordering key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<OrderingKey>,
    /// What happens to the next tasks with this ordering key if this one fails permanently. Needs a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_on_failure: Option<OnFailure>,
    /// Its limit key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_key: Option<LimitKey>,
    /// Its group, such as a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness_group: Option<FairnessGroup>,
    /// Fields of newer versions of qo, kept as they are.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What happens at a tick while a task of an earlier one is unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The next task is submitted as well.
    #[default]
    Allow,
    /// The tick is skipped.
    Skip,
    /// One tick waits until the earlier tasks are finished. Further ticks are skipped.
    BufferOne,
    /// The earlier tasks are cancelled, and the next one is submitted.
    CancelRunning,
}

impl Overlap {
    /// All policies.
    pub const ALL: [Self; 4] = [
        Self::Allow,
        Self::Skip,
        Self::BufferOne,
        Self::CancelRunning,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
            Self::BufferOne => "buffer_one",
            Self::CancelRunning => "cancel_running",
        }
    }
}

/// Why a schedule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidSchedule {
    /// It has none or several of the rules.
    #[error("a schedule needs exactly one of a cron line, an interval and a list of times")]
    Rule,
    /// The cron line cannot be parsed.
    #[error(
        "{line:?} is not a cron line: {problem}; expected five fields such as '30 2 * * *', or six with seconds first"
    )]
    Cron {
        /// The line.
        line: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The time zone is unknown.
    #[error(
        "{name:?} is not a time zone; expected a name of the IANA database, such as Europe/Berlin or UTC"
    )]
    TimeZone {
        /// The name.
        name: String,
    },
    /// A time zone without a cron line.
    #[error("only a cron line has a time zone; intervals and times are independent of time zones")]
    ZoneWithoutCron,
    /// A number is out of bounds.
    #[error("{field} must be {allowed}")]
    OutOfBounds {
        /// The field.
        field: &'static str,
        /// What it may be.
        allowed: &'static str,
    },
    /// The end is not after the start.
    #[error("the end must be after the start")]
    EndBeforeStart,
    /// It has no tick after the current time.
    #[error("the schedule never fires: it has no time after now")]
    NeverFires,
    /// A policy for failures without an ordering key.
    #[error(
        "a task without an ordering key cannot say what happens to the next tasks of the key when it fails"
    )]
    FailurePolicyWithoutKey,
    /// The retry policy is invalid.
    #[error(transparent)]
    RetryPolicy(#[from] InvalidRetryPolicy),
    /// It has a field that this version does not know.
    #[error("unknown field {name:?}")]
    UnknownField {
        /// The field.
        name: String,
    },
}

impl ScheduleSpec {
    /// A schedule with a cron line in UTC.
    pub fn cron(line: impl Into<String>, task: TaskTemplate) -> Self {
        Self {
            cron: Some(line.into()),
            ..Self::without_rule(task)
        }
    }

    /// A schedule with a fixed interval.
    pub fn every_ms(every_ms: u64, task: TaskTemplate) -> Self {
        Self {
            every_ms: Some(every_ms),
            ..Self::without_rule(task)
        }
    }

    /// A schedule with a list of times.
    pub fn at(times: Vec<Timestamp>, task: TaskTemplate) -> Self {
        Self {
            at: times,
            ..Self::without_rule(task)
        }
    }

    /// A definition with the default policies, and no rule yet.
    pub fn without_rule(task: TaskTemplate) -> Self {
        Self {
            cron: None,
            time_zone: None,
            every_ms: None,
            at: Vec::new(),
            start: None,
            end: None,
            overlap: Overlap::default(),
            catch_up_ms: CATCH_UP_DEFAULT_MS,
            jitter_ms: 0,
            task,
            extra: Extra::NONE,
        }
    }

    /// Validates everything, and returns the times of the schedule.
    pub fn ticks(&self) -> Result<Ticks, InvalidSchedule> {
        let rules = [
            self.cron.is_some(),
            self.every_ms.is_some(),
            !self.at.is_empty(),
        ];
        if rules.into_iter().filter(|is_set| *is_set).count() != 1 {
            return Err(InvalidSchedule::Rule);
        }
        if self.cron.is_none() && self.time_zone.is_some() {
            return Err(InvalidSchedule::ZoneWithoutCron);
        }
        let line_bytes = self.cron.as_ref().map_or(0, String::len);
        check("cron", line_bytes <= CRON_MAX_BYTES, "at most 256 bytes")?;
        let every_ms = self.every_ms.unwrap_or(EVERY_MIN_MS);
        let is_span = (EVERY_MIN_MS..=SPAN_MAX_MS).contains(&every_ms);
        check("the interval", is_span, "1 second to 365 days")?;
        check("at", self.at.len() <= TIMES_MAX, "at most 500 times")?;
        if self
            .start
            .zip(self.end)
            .is_some_and(|(start, end)| end <= start)
        {
            return Err(InvalidSchedule::EndBeforeStart);
        }
        let is_window = (CATCH_UP_MIN_MS..=SPAN_MAX_MS).contains(&self.catch_up_ms);
        check("the catch-up window", is_window, "1 minute to 365 days")?;
        check(
            "the jitter",
            self.jitter_ms <= JITTER_MAX_MS,
            "at most 24 hours",
        )?;
        self.task.validate()?;
        Ticks::of(self)
    }

    /// Refuses fields that this version does not know, in definitions that users write.
    pub fn check_known(&self) -> Result<(), InvalidSchedule> {
        let unknown = [&self.extra, &self.task.extra].into_iter();
        match unknown.flat_map(Extra::names).next() {
            None => Ok(()),
            Some(name) => Err(InvalidSchedule::UnknownField {
                name: name.chars().take(64).collect(),
            }),
        }
    }
}

impl TaskTemplate {
    /// A task with the defaults of a submit.
    pub fn new(task_type: TaskType) -> Self {
        Self {
            task_type,
            input: None,
            queue: None,
            priority: None,
            timeout_seconds: None,
            max_retries: None,
            retry_policy: None,
            expires_in_ms: None,
            tags: Vec::new(),
            ordering_key: None,
            ordering_on_failure: None,
            limit_key: None,
            fairness_group: None,
            extra: Extra::NONE,
        }
    }

    /// The order of its tasks.
    pub fn ordering(&self) -> Option<OrderingRule> {
        let key = self.ordering_key.clone()?;
        Some(OrderingRule {
            key,
            on_failure: self.ordering_on_failure.unwrap_or_default(),
        })
    }

    fn validate(&self) -> Result<(), InvalidSchedule> {
        if self.ordering_key.is_none() && self.ordering_on_failure.is_some() {
            return Err(InvalidSchedule::FailurePolicyWithoutKey);
        }
        let input_bytes = self.input.as_ref().map_or(0, Json::size);
        check(
            "the input",
            input_bytes <= INPUT_MAX_BYTES,
            "at most 8 KiB; submit a reference to larger data",
        )?;
        let is_flat = self
            .input
            .as_ref()
            .is_none_or(|input| input.check_depth().is_ok());
        check("the input", is_flat, "nested at most 128 levels deep")?;
        let is_interoperable = self
            .input
            .as_ref()
            .is_none_or(|input| input.check_interoperable().is_ok());
        check(
            "the input",
            is_interoperable,
            "JSON that other programs can read: no name twice in an object, no half of a surrogate pair, no number with thousands of digits",
        )?;
        let priority = self.priority.unwrap_or(0);
        check("priority", priority <= PRIORITY_MAX, "0 to 9")?;
        let timeout = self.timeout_seconds.unwrap_or(1);
        check(
            "timeout_seconds",
            (1..=TIMEOUT_MAX_SECONDS).contains(&timeout),
            "1 second to 30 days",
        )?;
        let retries = self.max_retries.unwrap_or(0);
        check("max_retries", retries <= RETRIES_MAX, "at most 10,000")?;
        let expires = self.expires_in_ms.unwrap_or(1_000);
        check(
            "expires_in_ms",
            (1_000..=SPAN_MAX_MS).contains(&expires),
            "1 second to 365 days",
        )?;
        check("tags", self.tags.len() < TAGS_MAX, "at most 15")?;
        if let Some(policy) = &self.retry_policy {
            policy.validate()?;
        }
        Ok(())
    }
}

fn check(field: &'static str, holds: bool, allowed: &'static str) -> Result<(), InvalidSchedule> {
    if holds {
        return Ok(());
    }
    Err(InvalidSchedule::OutOfBounds { field, allowed })
}

fn catch_up_default() -> u64 {
    CATCH_UP_DEFAULT_MS
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> TaskTemplate {
        TaskTemplate::new("report".parse().unwrap())
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn valid_definitions_are_accepted_and_round_trip() {
        let mut spec = ScheduleSpec::cron("0 30 2 * * MON-FRI", template());
        spec.time_zone = Some("Europe/Berlin".to_owned());
        spec.task.input = Some(Json::parse("{\"n\": 1.0}").unwrap());
        spec.task.ordering_key = Some("account 17".parse().unwrap());
        spec.task.ordering_on_failure = Some(OnFailure::Stop);
        let every = ScheduleSpec::every_ms(60_000, template());
        let at = ScheduleSpec::at(vec![time("2026-01-01T00:00:00Z")], template());
        for spec in [spec, every, at, ScheduleSpec::cron("@daily", template())] {
            spec.ticks().unwrap();
            let text = serde_json::to_string(&spec).unwrap();
            assert_eq!(serde_json::from_str::<ScheduleSpec>(&text).unwrap(), spec);
            spec.check_known().unwrap();
        }
    }

    #[test]
    fn invalid_definitions_are_refused_with_a_reason() {
        let valid = || ScheduleSpec::every_ms(60_000, template());
        let cases: Vec<(ScheduleSpec, &str)> = vec![
            (ScheduleSpec::without_rule(template()), "exactly one"),
            (
                ScheduleSpec {
                    cron: Some("* * * * *".to_owned()),
                    ..valid()
                },
                "exactly one",
            ),
            (ScheduleSpec::every_ms(0, template()), "interval"),
            (ScheduleSpec::every_ms(999, template()), "interval"),
            (
                ScheduleSpec::cron("61 * * * *", template()),
                "not a cron line: Number out of bounds; expected five fields",
            ),
            (
                ScheduleSpec::cron("every day", template()),
                "not a cron line: it has 2 fields; expected five",
            ),
            (
                ScheduleSpec::cron("* * * *", template()),
                "not a cron line: it has 4 fields",
            ),
            (ScheduleSpec::cron("", template()), "not a cron line"),
            (ScheduleSpec::cron("@often", template()), "not a cron line"),
            (ScheduleSpec::cron("*".repeat(300), template()), "cron"),
            (
                ScheduleSpec {
                    time_zone: Some("Europe/Atlantis".to_owned()),
                    ..ScheduleSpec::cron("* * * * *", template())
                },
                "not a time zone",
            ),
            (
                ScheduleSpec {
                    time_zone: Some("UTC".to_owned()),
                    ..valid()
                },
                "only a cron line",
            ),
            (
                ScheduleSpec {
                    start: Some(time("2026-01-02T00:00:00Z")),
                    end: Some(time("2026-01-01T00:00:00Z")),
                    ..valid()
                },
                "end must be after the start",
            ),
            (
                ScheduleSpec {
                    catch_up_ms: 0,
                    ..valid()
                },
                "catch-up",
            ),
            (
                ScheduleSpec {
                    task: TaskTemplate {
                        priority: Some(10),
                        ..template()
                    },
                    ..valid()
                },
                "priority",
            ),
            (
                ScheduleSpec {
                    task: TaskTemplate {
                        ordering_on_failure: Some(OnFailure::Stop),
                        ..template()
                    },
                    ..valid()
                },
                "without an ordering key",
            ),
        ];
        for (spec, reason) in cases {
            let error = spec.ticks().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let text = r#"{"every_ms":1000,"everry":1,"task":{"task_type":"t"}}"#;
        let unknown: ScheduleSpec = serde_json::from_str(text).unwrap();
        assert!(unknown.check_known().is_err());
        let oversize = format!(
            r#"{{"every_ms":1000,"task":{{"task_type":"t","ordering_key":"{}"}}}}"#,
            "k".repeat(257)
        );
        assert!(serde_json::from_str::<ScheduleSpec>(&oversize).is_err());
    }
}
