//! Limits: how many tasks may run at once, and how many may start within a time window.
//!
//! A limit is a document ([`DocumentKind::Limits`](crate::DocumentKind::Limits)). It applies to the tasks of a queue, the tasks of a type, or
//! the tasks that were submitted with a limit key; if it names several of these, to the tasks that match all of them. A task may be under
//! several limits, and starts only if each of them has room.
//!
//! | bound | a claim is allowed while |
//! | --- | --- |
//! | `concurrent` | fewer tasks of the limit are running. The slot of an attempt returns when the attempt ends, however it ends |
//! | `starts` | fewer attempts have started within the window ([`StartWindow`]). Each attempt counts, also one that fails or is released |

mod rules;
mod window;

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use rules::LimitRules;
pub use window::StartWindow;

use crate::extra::Extra;
use crate::json::Json;
use crate::names::{DocumentName, LimitKey, QueueName, TaskType};
use crate::task::Task;
use crate::time::Timestamp;

/// The highest number of concurrent tasks of a limit. Direct mode writes one line for each of them with every change.
pub const CONCURRENT_MAX: u32 = 10_000;
/// The highest number of starts within a window.
pub const STARTS_MAX: u32 = 1_000_000;
/// The shortest window of starts.
pub const WINDOW_MIN_MS: u64 = 1_000;
/// The longest window of starts: 31 days.
pub const WINDOW_MAX_MS: u64 = 31 * 24 * 3_600_000;

/// What a limit applies to, and its bounds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limit {
    /// The tasks of this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// The tasks of this type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_type: Option<TaskType>,
    /// The tasks that were submitted with this limit key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_key: Option<LimitKey>,
    /// How many of them may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u32>,
    /// How many of them may start within a time window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<StartLimit>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A bound on starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartLimit {
    /// How many attempts may start within the window.
    pub max: u32,
    /// The length of the window.
    pub window_ms: u64,
}

/// What is used of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LimitUsage {
    /// How many slots for concurrent tasks are taken; absent if the limit has no such bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u32>,
    /// How many attempts have started within the window that ends now; absent if the limit has no such bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<u32>,
}

/// Why a task cannot start under a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitWait {
    /// The limit.
    pub limit: DocumentName,
    /// The bound that is reached.
    pub bound: LimitBound,
    /// How many tasks are running, or were started within the window.
    pub used: u32,
    /// How many may.
    pub max: u32,
    /// When the next one may start, if that follows from the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A bound of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitBound {
    /// The number of running tasks.
    Concurrent,
    /// The number of starts within a window.
    Starts,
}

impl fmt::Display for LimitWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            limit, used, max, ..
        } = self;
        match self.bound {
            LimitBound::Concurrent => write!(f, "limit {limit}: {used} of {max} running"),
            LimitBound::Starts => {
                write!(f, "limit {limit}: {used} of {max} started")?;
                match self.until {
                    Some(until) => write!(f, ", the next at {until}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Why a limit is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidLimit {
    /// It is not the JSON of a limit.
    #[error("{0}")]
    Syntax(String),
    /// It has a field that this version does not know.
    #[error(
        "{name:?} is not a field of a limit; the fields are queue, task_type, limit_key, concurrent and starts"
    )]
    UnknownField {
        /// The field.
        name: String,
    },
    /// It applies to nothing.
    #[error("it must name a queue, a task_type or a limit_key that it applies to")]
    NoSelector,
    /// It limits nothing.
    #[error("it must have a bound: concurrent, starts, or both")]
    NoBound,
    /// A number is out of range.
    #[error("{field} must be {allowed}")]
    OutOfBounds {
        /// The field.
        field: &'static str,
        /// The allowed values.
        allowed: &'static str,
    },
}

impl Limit {
    /// Reads the body of a document that a user wrote. Rejects fields that this version does not know.
    pub fn parse(body: &Json) -> Result<Self, InvalidLimit> {
        let limit = Self::read(body)?;
        if let Some(name) = limit.extra.names().next() {
            let name = name.chars().take(64).collect();
            return Err(InvalidLimit::UnknownField { name });
        }
        limit.validate()?;
        Ok(limit)
    }

    /// Reads the body of a stored document. Fields of later versions are ignored.
    pub fn read(body: &Json) -> Result<Self, InvalidLimit> {
        serde_json::from_str(body.as_str()).map_err(|error| InvalidLimit::Syntax(error.to_string()))
    }

    /// Checks the fields.
    pub fn validate(&self) -> Result<(), InvalidLimit> {
        if self.queue.is_none() && self.task_type.is_none() && self.limit_key.is_none() {
            return Err(InvalidLimit::NoSelector);
        }
        if self.concurrent.is_none() && self.starts.is_none() {
            return Err(InvalidLimit::NoBound);
        }
        let windows = WINDOW_MIN_MS..=WINDOW_MAX_MS;
        let bounds = [
            (
                self.concurrent
                    .is_none_or(|max| (1..=CONCURRENT_MAX).contains(&max)),
                "concurrent",
                "1 to 10000; pause the queue to run nothing",
            ),
            (
                self.starts
                    .is_none_or(|starts| (1..=STARTS_MAX).contains(&starts.max)),
                "starts.max",
                "1 to 1000000; pause the queue to run nothing",
            ),
            (
                self.starts
                    .is_none_or(|starts| windows.contains(&starts.window_ms)),
                "starts.window_ms",
                "1000 (a second) to 2678400000 (31 days)",
            ),
        ];
        for (holds, field, allowed) in bounds {
            if !holds {
                return Err(InvalidLimit::OutOfBounds { field, allowed });
            }
        }
        Ok(())
    }

    /// Whether it applies to the tasks of a queue and a type with this limit key.
    pub fn applies_to(
        &self,
        queue: &QueueName,
        task_type: &TaskType,
        limit_key: Option<&LimitKey>,
    ) -> bool {
        self.queue.as_ref().is_none_or(|known| known == queue)
            && self
                .task_type
                .as_ref()
                .is_none_or(|known| known == task_type)
            && (self.limit_key.is_none() || self.limit_key.as_ref() == limit_key)
    }

    /// Whether it applies to a task.
    pub fn applies_to_task(&self, task: &Task) -> bool {
        self.applies_to(&task.queue, &task.task_type, task.limit_key.as_ref())
    }

    /// How many more tasks may start at `now`, if this many are running: the rule that every engine follows.
    pub fn room(&self, running: u32, starts: &StartWindow, now: Timestamp) -> u32 {
        let concurrent = self
            .concurrent
            .map_or(u32::MAX, |max| max.saturating_sub(running));
        let started = self
            .starts
            .map_or(u32::MAX, |limit| starts.room(limit, now));
        concurrent.min(started)
    }

    /// What is used of it at `now`, if this many tasks are running.
    pub fn usage(&self, running: u32, starts: &StartWindow, now: Timestamp) -> LimitUsage {
        LimitUsage {
            running: self.concurrent.map(|_| running),
            started: self.starts.map(|limit| starts.count(limit, now)),
        }
    }

    /// Why no task may start at `now`; `None` if one may.
    pub fn wait(
        &self,
        name: &DocumentName,
        running: u32,
        starts: &StartWindow,
        now: Timestamp,
    ) -> Option<LimitWait> {
        if let Some(max) = self.concurrent.filter(|max| running >= *max) {
            return Some(LimitWait {
                limit: name.clone(),
                bound: LimitBound::Concurrent,
                used: running,
                max,
                until: None,
            });
        }
        let limit = self.starts?;
        let used = starts.count(limit, now);
        (used >= limit.max).then(|| LimitWait {
            limit: name.clone(),
            bound: LimitBound::Starts,
            used,
            max: limit.max,
            until: starts.opens_at(limit, now),
        })
    }

    /// Whether another limit applies to the same tasks.
    pub(crate) fn has_selector_of(&self, other: &Self) -> bool {
        self.queue == other.queue
            && self.task_type == other.task_type
            && self.limit_key == other.limit_key
    }

    /// The body of its document.
    pub fn to_json(&self) -> Result<Json, InvalidLimit> {
        let text =
            serde_json::to_string(self).map_err(|error| InvalidLimit::Syntax(error.to_string()))?;
        Json::parse(&text).map_err(|error| InvalidLimit::Syntax(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Limit, InvalidLimit> {
        Limit::parse(&Json::parse(text).unwrap())
    }

    #[test]
    fn a_limit_round_trips() {
        let text =
            r#"{"limit_key":"stripe","concurrent":5,"starts":{"max":100,"window_ms":60000}}"#;
        let limit = parse(text).unwrap();
        assert_eq!(limit.to_json().unwrap().as_str(), text);
    }

    #[test]
    fn bad_limits_are_refused() {
        for (text, problem) in [
            (r#"{"concurrent":5}"#, "queue"),
            (r#"{"queue":"q"}"#, "bound"),
            (r#"{"queue":"q","concurrent":0}"#, "1 to 10000"),
            (r#"{"queue":"q","concurrent":10001}"#, "1 to 10000"),
            (r#"{"queue":"q","concurrent":-1}"#, "invalid value"),
            (r#"{"queue":"q","concurrent":"5"}"#, "invalid type"),
            (r#"{"queue":"a/b","concurrent":5}"#, "queue name"),
            (r#"{"queue":"q","concurrency":5}"#, "concurrency"),
            (
                r#"{"queue":"q","starts":{"max":0,"window_ms":1000}}"#,
                "starts.max",
            ),
            (
                r#"{"queue":"q","starts":{"max":1,"window_ms":999}}"#,
                "window_ms",
            ),
            (
                r#"{"queue":"q","starts":{"max":1,"window":"1m"}}"#,
                "unknown field",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
        let long = format!(r#"{{"limit_key":"{}","concurrent":5}}"#, "x".repeat(65));
        assert!(parse(&long).unwrap_err().to_string().contains("too long"));
    }

    #[test]
    fn a_stored_limit_of_a_later_version_is_used() {
        let body = Json::parse(r#"{"queue":"q","concurrent":5,"later":1}"#).unwrap();
        assert_eq!(Limit::read(&body).unwrap().concurrent, Some(5));
        assert!(Limit::parse(&body).is_err());
    }

    #[test]
    fn all_selectors_must_match() {
        let (q, t): (QueueName, TaskType) = ("q".parse().unwrap(), "t".parse().unwrap());
        let key: LimitKey = "k".parse().unwrap();
        let limit = parse(r#"{"queue":"q","limit_key":"k","concurrent":5}"#).unwrap();
        assert!(limit.applies_to(&q, &t, Some(&key)));
        assert!(!limit.applies_to(&q, &t, None));
        assert!(!limit.applies_to(&"other".parse().unwrap(), &t, Some(&key)));
    }
}
