//! A task's stored form: compact JSON.
//!
//! # Records of later versions
//!
//! Old and new versions of qo share a store during a rolling update. Unknown fields survive a rewrite ([`Extra`](crate::extra::Extra)), so
//! most changes of the record need nothing else. A version whose records an older one must not change writes `min_reader`: the lowest
//! [`READER`] that may use the record. A status or another word that this version does not know has the same effect. Such a record is
//! [`DecodeError::Newer`]: it is intact and must be skipped, unlike a damaged one.

use serde_json::Value;
use thiserror::Error;

use super::{IdempotencyScope, KeyHold, OnFailure, PRIORITY_MAX, Status, Task};
use crate::limits::{COUNT_MAX, RECORD_MAX_BYTES};

/// Why bytes are not a task that this version can use.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// It is larger than any record that qo writes.
    #[error("the record has {size} bytes; the limit is {RECORD_MAX_BYTES}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
    },
    /// It is not the JSON of a task.
    #[error("cannot parse the record: {0}")]
    Syntax(String),
    /// A later version of qo wrote it, and this version must not use or change it.
    #[error("the record needs a newer version of qo: {0}")]
    Newer(String),
    /// It parses, but no sequence of transitions produces it.
    #[error("the record is inconsistent: {0}")]
    Inconsistent(&'static str),
}

/// The reader that this version is. A record whose `min_reader` is higher is skipped.
///
/// | reader | since |
/// | --- | --- |
/// | 1 | records without `min_reader` |
/// | 2 | ordering keys: an older version would run such tasks out of order |
/// | 3 | limit keys: an older version would run such tasks beyond their limit. Keys that are held while a task waits or is unfinished: an older version would find them held forever. Keys of tasks that were moved to another queue: an older version would look for them there |
/// | 4 | groups: an older version would serve such tasks by their age alone, and delete index entries that it cannot read |
pub const READER: u64 = 4;

/// The lowest reader that may use a task with an ordering key.
pub(crate) const ORDERING_READER: u64 = 2;

/// The lowest reader that may use a task with a limit key.
pub(crate) const LIMIT_READER: u64 = 3;

/// The lowest reader that may use a task that holds its idempotency key for part of its life.
pub(crate) const UNIQUE_READER: u64 = 3;

/// The lowest reader that may use a task with a group.
pub(crate) const FAIRNESS_READER: u64 = 4;

/// The lowest reader that may use a task with an idempotency key that was moved to another queue.
pub(crate) const MOVED_READER: u64 = 3;

/// The field that names the lowest reader of a record.
const MIN_READER: &str = "min_reader";

/// The typical size of a record without payloads. Reserving it at once avoids reallocations.
const RECORD_BYTES: usize = 1_024;

/// Encodes a task for storage.
pub fn encode(task: &Task) -> Result<Vec<u8>, DecodeError> {
    let mut bytes = Vec::with_capacity(RECORD_BYTES + task.inline_bytes());
    serde_json::to_writer(&mut bytes, task)
        .map_err(|error| DecodeError::Syntax(error.to_string()))?;
    Ok(bytes)
}

/// Decodes a stored task from untrusted bytes.
pub fn decode(bytes: &[u8]) -> Result<Task, DecodeError> {
    if bytes.len() > RECORD_MAX_BYTES {
        return Err(DecodeError::TooLarge { size: bytes.len() });
    }
    let task: Task = serde_json::from_slice(bytes).map_err(|error| {
        let record: Option<Value> = serde_json::from_slice(bytes).ok();
        let newer = record.as_ref().and_then(unknown_word);
        newer.unwrap_or_else(|| DecodeError::Syntax(error.to_string()))
    })?;
    if task.min_reader > READER {
        return Err(newer_than(&task.min_reader.to_string()));
    }
    check(&task).map_err(DecodeError::Inconsistent)?;
    Ok(task)
}

/// The error for a record with this `min_reader`, if this version is not sufficient.
fn needs_later(min_reader: &Value) -> Option<DecodeError> {
    // A form that this version does not know is not sufficient either.
    let is_sufficient = min_reader.as_u64().is_some_and(|min| min <= READER);
    (!is_sufficient).then(|| newer_than(&min_reader.to_string()))
}

fn newer_than(min_reader: &str) -> DecodeError {
    DecodeError::Newer(format!("it is for reader {min_reader}, this is {READER}"))
}

/// What makes a record that does not parse one of a later version.
fn unknown_word(record: &Value) -> Option<DecodeError> {
    if let Some(newer) = record.get(MIN_READER).and_then(needs_later) {
        return Some(newer);
    }
    let status = |value: &Value| {
        value
            .as_str()
            .is_some_and(|text| text.parse::<Status>().is_err())
    };
    let scope = |value: &Value| {
        value.is_string() && serde_json::from_value::<IdempotencyScope>(value.clone()).is_err()
    };
    let unknown =
        |what: &str, value: &Value| DecodeError::Newer(format!("{what} {value} is unknown"));
    if let Some(value) = record.get("status").filter(|value| status(value)) {
        return Some(unknown("status", value));
    }
    if let Some(value) = record.get("idempotency_scope").filter(|value| scope(value)) {
        return Some(unknown("scope", value));
    }
    let hold = |value: &Value| {
        value.is_string() && serde_json::from_value::<KeyHold>(value.clone()).is_err()
    };
    if let Some(value) = record.get("idempotency_hold").filter(|value| hold(value)) {
        return Some(unknown("hold of a key", value));
    }
    let on_failure = |value: &Value| {
        value.is_string() && serde_json::from_value::<OnFailure>(value.clone()).is_err()
    };
    if let Some(value) = record
        .get("ordering_on_failure")
        .filter(|value| on_failure(value))
    {
        return Some(unknown("failure policy", value));
    }
    let events = record.get("events").and_then(Value::as_array)?.iter();
    let mut words = events.flat_map(|event| [event.get("from"), event.get("to")]);
    let word = words.find_map(|word| word.filter(|value| status(value)))?;
    Some(unknown("status", word))
}

pub(super) fn check(task: &Task) -> Result<(), &'static str> {
    let running = task.status == Status::Running;
    if task.shard != task.id.shard() {
        Err("its shard is not the first digit of its id")
    } else if task.priority > PRIORITY_MAX {
        Err("its priority is above 9")
    } else if running != task.lease_id.is_some() {
        Err("a task has a lease id exactly while it is running")
    } else if running != task.lease_expires_at.is_some() {
        Err("a task has a lease deadline exactly while it is running")
    } else if running && task.attempt == 0 {
        Err("it is running but was never claimed")
    } else if task.input.is_some() && task.input_ref.is_some() {
        Err("it has both an inline and a stored input")
    } else if task.output.is_some() && task.output_ref.is_some() {
        Err("it has both an inline and a stored output")
    } else if [
        task.revision,
        task.sequence,
        task.events_dropped,
        task.ordering_turn,
    ]
    .into_iter()
    .any(|count| count > COUNT_MAX)
        || task.attempt.max(task.retry_count) == u32::MAX
    {
        Err("a counter is out of range")
    } else {
        Ok(())
    }
}
