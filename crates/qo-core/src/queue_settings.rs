//! The settings of a queue: defaults for its tasks, how long finished tasks are kept, and bounds on how long and how many tasks wait.
//!
//! They are the body of a document ([`DocumentKind::Queues`](crate::DocumentKind::Queues)) that has the name of the queue. A submit takes the
//! values that it does not specify from the settings, and the task keeps them: a later change of the settings applies to later submits. The
//! retention is the exception: engines look it up when a task has finished.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::document::{DocumentId, DocumentKind};
use crate::extra::Extra;
use crate::json::Json;
use crate::limits::{DELAY_MAX_MS, RETRIES_MAX, TIMEOUT_MAX_SECONDS};
use crate::names::{DocumentName, FairnessGroup, QueueName};
use crate::transition::{Rejection, Submission};

/// The longest retention: ten years.
pub const RETENTION_MAX_SECONDS: u64 = 10 * 366 * 24 * 60 * 60;
/// The highest limit on the number of waiting tasks.
pub const WAITING_MAX: u64 = 1_000_000_000;
/// The highest weight of a group.
pub const GROUP_WEIGHT_MAX: u32 = 1_000;
/// The most groups of a queue that have a weight.
pub const GROUP_WEIGHTS_MAX: usize = 1_000;

/// The settings of a queue. Each is optional.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueueSettings {
    /// The maximum number of retries of a task whose submit does not name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// The maximum duration of an attempt of a task whose submit does not name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// How long finished tasks are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_seconds: Option<u64>,
    /// How long a task may wait after it became due. Then it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wait_ms: Option<u64>,
    /// How many tasks may wait. Further submits are rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_waiting: Option<u64>,
    /// How many turns groups get per round. Those that are not named get one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub group_weights: BTreeMap<FairnessGroup, u32>,
    /// Fields of newer versions of qo, kept as they are.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Why settings are invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidQueueSettings {
    /// A value is out of range.
    #[error("{field} must be {allowed}")]
    OutOfBounds {
        /// The field.
        field: &'static str,
        /// The allowed values.
        allowed: &'static str,
    },
    /// The document is not an object with these fields.
    #[error("these are not the settings of a queue: {detail}")]
    Unreadable {
        /// What is wrong.
        detail: String,
    },
}

impl QueueSettings {
    /// No settings.
    pub const NONE: Self = Self {
        max_retries: None,
        timeout_seconds: None,
        retention_seconds: None,
        max_wait_ms: None,
        max_waiting: None,
        group_weights: BTreeMap::new(),
        extra: Extra::NONE,
    };

    /// The document with the settings of a queue.
    pub fn document_id(queue: &QueueName) -> DocumentId {
        DocumentId {
            kind: DocumentKind::Queues,
            name: DocumentName::of_queue(queue),
        }
    }

    /// Parses and checks the body of a document.
    pub fn parse(body: &Json) -> Result<Self, InvalidQueueSettings> {
        // A sequence of values would also deserialize into a struct.
        if !body.as_str().trim_start().starts_with('{') {
            return Err(InvalidQueueSettings::Unreadable {
                detail: "expected an object".to_owned(),
            });
        }
        let settings: Self = serde_json::from_str(body.as_str()).map_err(|error| {
            InvalidQueueSettings::Unreadable {
                detail: error.to_string(),
            }
        })?;
        settings.validate()?;
        Ok(settings)
    }

    /// Checks the bounds of all values.
    pub fn validate(&self) -> Result<(), InvalidQueueSettings> {
        let within = |value: Option<u64>, min: u64, max: u64| {
            value.is_none_or(|value| (min..=max).contains(&value))
        };
        let retries = self.max_retries.map(u64::from);
        let bounds = [
            (
                within(retries, 0, RETRIES_MAX.into()),
                "max_retries",
                "0 to 10000",
            ),
            (
                within(self.timeout_seconds, 1, TIMEOUT_MAX_SECONDS),
                "timeout_seconds",
                "1 to 2592000 (30 days)",
            ),
            (
                within(self.retention_seconds, 1, RETENTION_MAX_SECONDS),
                "retention_seconds",
                "1 to 316224000 (ten years)",
            ),
            (
                within(self.max_wait_ms, 1, DELAY_MAX_MS),
                "max_wait_ms",
                "1 to 31536000000 (a year)",
            ),
            (
                within(self.max_waiting, 1, WAITING_MAX),
                "max_waiting",
                "1 to 1000000000",
            ),
            (
                (self.group_weights.values()).all(|weight| (1..=GROUP_WEIGHT_MAX).contains(weight)),
                "the weight of a group",
                "1 to 1000",
            ),
            (
                self.group_weights.len() <= GROUP_WEIGHTS_MAX,
                "group_weights",
                "at most 1000 groups",
            ),
        ];
        for (holds, field, allowed) in bounds {
            if !holds {
                return Err(InvalidQueueSettings::OutOfBounds { field, allowed });
            }
        }
        Ok(())
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// How long finished tasks are kept, if it is set.
    pub fn retention_ms(&self) -> Option<u64> {
        self.retention_seconds
            .map(|seconds| seconds.saturating_mul(1_000))
    }

    /// Gives a submission what it does not say itself.
    pub fn complete(&self, submission: &mut Submission) {
        submission.max_retries = submission.max_retries.or(self.max_retries);
        submission.timeout_seconds = submission.timeout_seconds.or(self.timeout_seconds);
        submission.max_wait_ms = submission.max_wait_ms.or(self.max_wait_ms);
    }

    /// Rejects a new task of a queue in which this many tasks wait already.
    pub fn admit(&self, queue: &QueueName, waiting: u64) -> Result<(), Rejection> {
        match self.max_waiting {
            Some(limit) if waiting >= limit => Err(Rejection::QueueFull {
                queue: queue.clone(),
                limit,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<QueueSettings, InvalidQueueSettings> {
        QueueSettings::parse(&Json::parse(text).unwrap())
    }

    fn field_of(text: &str) -> &'static str {
        match parse(text) {
            Err(InvalidQueueSettings::OutOfBounds { field, .. }) => field,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn settings_round_trip_with_fields_of_later_versions() {
        let text = r#"{"max_retries":0,"timeout_seconds":60,"retention_seconds":3600,"max_wait_ms":500,"max_waiting":10,"group_weights":{"big":3},"later":[1]}"#;
        let settings = parse(text).unwrap();
        assert_eq!(serde_json::to_string(&settings).unwrap(), text);
        assert_eq!(settings.retention_ms(), Some(3_600_000));
        assert!(!settings.is_empty());
        assert!(parse("{}").unwrap().is_empty());
    }

    #[test]
    fn every_value_is_bounded() {
        for (text, field) in [
            (r#"{"max_retries":10001}"#, "max_retries"),
            (r#"{"timeout_seconds":0}"#, "timeout_seconds"),
            (r#"{"timeout_seconds":2592001}"#, "timeout_seconds"),
            (r#"{"retention_seconds":0}"#, "retention_seconds"),
            (r#"{"retention_seconds":316224001}"#, "retention_seconds"),
            (r#"{"max_wait_ms":0}"#, "max_wait_ms"),
            (r#"{"max_wait_ms":31536000001}"#, "max_wait_ms"),
            (r#"{"max_waiting":0}"#, "max_waiting"),
            (r#"{"max_waiting":1000000001}"#, "max_waiting"),
            (r#"{"group_weights":{"a":0}}"#, "the weight of a group"),
            (
                r#"{"group_weights":{"a":1,"b":1001}}"#,
                "the weight of a group",
            ),
        ] {
            assert_eq!(field_of(text), field, "{text}");
        }
        for text in [
            "[]",
            "[1,2,3,4,5]",
            "null",
            "7",
            r#"{"max_retries":-1}"#,
            r#"{"max_waiting":-5}"#,
            r#"{"max_waiting":1.5}"#,
            r#"{"timeout_seconds":"60"}"#,
            r#"{"max_wait_ms":1e3}"#,
            r#"{"group_weights":{"no/slash":1}}"#,
            r#"{"group_weights":{"a":-1}}"#,
            r#"{"group_weights":[1]}"#,
        ] {
            let refused = parse(text);
            assert!(
                matches!(refused, Err(InvalidQueueSettings::Unreadable { .. })),
                "{text}: {refused:?}"
            );
        }
    }

    #[test]
    fn the_document_has_the_name_of_the_queue() {
        let queue = QueueName::new("mail.v2").unwrap();
        let id = QueueSettings::document_id(&queue);
        assert_eq!(id.to_string(), "queues/mail.v2");
        assert_eq!(DocumentId::parse(&id.to_string()), Some(id));
    }

    #[test]
    fn a_queue_is_full_at_its_limit() {
        let queue = QueueName::default();
        let settings = parse(r#"{"max_waiting":2}"#).unwrap();
        assert_eq!(settings.admit(&queue, 1), Ok(()));
        for waiting in [2, 3, u64::MAX] {
            assert_eq!(
                settings.admit(&queue, waiting),
                Err(Rejection::QueueFull {
                    queue: queue.clone(),
                    limit: 2
                })
            );
        }
        assert_eq!(QueueSettings::NONE.admit(&queue, u64::MAX), Ok(()));
    }
}
