//! Selects the fields of tasks in a list, so that a page of tasks with large inputs stays small.

use std::collections::BTreeMap;

use qo::Task;
use qo_core::limits::INLINE_PAYLOAD_MAX_BYTES;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::response::{ApiError, unwritable};
use crate::routes::tasks::{RECORD_BYTES, size_of};

/// The names of a task's fields in JSON.
pub(crate) const NAMES: [&str; 48] = [
    "attempt",
    "available_at",
    "cancel_requested",
    "completed_at",
    "created_at",
    "events",
    "events_dropped",
    "expires_at",
    "fairness_group",
    "fairness_rank",
    "id",
    "idempotency_hold",
    "idempotency_key",
    "idempotency_scope",
    "idempotency_until",
    "input",
    "input_ref",
    "last_error",
    "lease_expires_at",
    "lease_id",
    "limit_key",
    "log_index",
    "logs",
    "max_retries",
    "max_wait_ms",
    "min_reader",
    "op_id",
    "ordering_key",
    "ordering_on_failure",
    "ordering_turn",
    "output",
    "output_ref",
    "priority",
    "progress",
    "queue",
    "retry_count",
    "retry_policy",
    "revision",
    "sequence",
    "shard",
    "started_at",
    "status",
    "tags",
    "task_type",
    "timeout_seconds",
    "traceparent",
    "updated_at",
    "worker_id",
];

/// The selected fields of tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskFields(Vec<&'static str>);

/// Some fields of a task, with their text as it is stored.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct SelectedTask(BTreeMap<&'static str, Box<RawValue>>);

impl TaskFields {
    /// Parses names that are separated by commas.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let names = text.split(',').map(|name| {
            let known = NAMES.iter().find(|known| **known == name);
            known.copied().ok_or_else(|| {
                ApiError::bad_request(format!(
                    "a task has no field {name:?}; the fields are {}",
                    NAMES.join(", ")
                ))
            })
        });
        Ok(Self(names.collect::<Result<_, _>>()?))
    }

    /// The approximate size of a task with these fields.
    pub(crate) fn size_of(&self, task: &Task) -> usize {
        let has = |name| self.0.contains(&name);
        let logs = if has("logs") { task.log_bytes() } else { 0 };
        let size = size_of(task) - task.log_bytes();
        logs + match (has("input"), has("output")) {
            (false, false) => RECORD_BYTES,
            (true, true) => size,
            _ => size.min(RECORD_BYTES + INLINE_PAYLOAD_MAX_BYTES),
        }
    }

    /// The selected fields of a task.
    pub(crate) fn select(&self, task: Task) -> Result<SelectedTask, ApiError> {
        let has = |name| self.0.contains(&name);
        let task = if has("input") {
            task
        } else {
            task.without_input()
        };
        let task = if has("logs") {
            task
        } else {
            task.without_logs()
        };
        let text = serde_json::to_string(&task).map_err(|error| unwritable(&error))?;
        let mut fields: BTreeMap<&str, &RawValue> =
            serde_json::from_str(&text).map_err(|error| unwritable(&error))?;
        let selected = self.0.iter();
        let selected = selected.filter_map(|name| Some((*name, fields.remove(name)?.to_owned())));
        Ok(SelectedTask(selected.collect()))
    }
}

#[cfg(test)]
mod tests {
    use qo_core::transition::{Submission, submit};
    use qo_core::{Json, OpId, Payload, TaskId, Timestamp};
    use serde_json::Value;

    use super::*;

    fn task() -> Task {
        let id = TaskId::from_random(5);
        let input = Payload::Inline(Json::parse("{\"n\": 1.10}").unwrap());
        let submission = Submission::new(id, "mail".parse().unwrap(), input);
        submit(
            submission,
            OpId::from_random(7),
            Timestamp::from_millis(1_763_238_840_123),
        )
        .unwrap()
    }

    #[test]
    fn only_the_selected_fields_are_kept_byte_for_byte() {
        let fields = TaskFields::parse("status,input,last_error").unwrap();
        let text = serde_json::to_string(&fields.select(task()).unwrap()).unwrap();
        assert_eq!(text, r#"{"input":{"n": 1.10},"status":"pending"}"#);
        let fields = TaskFields::parse("status").unwrap();
        let text = serde_json::to_string(&fields.select(task()).unwrap()).unwrap();
        assert_eq!(text, r#"{"status":"pending"}"#);
    }

    #[test]
    fn unknown_fields_are_refused_with_the_known_ones() {
        for text in ["", "id,", "ID", "id,stauts"] {
            let error = TaskFields::parse(text).unwrap_err();
            assert!(error.0.detail.contains("status"), "{text}");
        }
    }

    #[test]
    fn every_field_of_a_record_can_be_selected() {
        let Value::Object(record) = serde_json::to_value(task()).unwrap() else {
            panic!("a task is an object");
        };
        for name in record.keys() {
            assert!(NAMES.contains(&name.as_str()), "{name}");
        }
        assert!(NAMES.is_sorted());
    }
}
