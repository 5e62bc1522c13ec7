//! A task's stored form: compact JSON.

use thiserror::Error;

use super::{PRIORITY_MAX, Status, Task};
use crate::limits::{COUNT_MAX, RECORD_MAX_BYTES};

/// Why bytes are not a task that this version can use.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// It is larger than any record that qo writes.
    #[error("the record has {size} bytes; at most {RECORD_MAX_BYTES} are read")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
    },
    /// It is not the JSON of a task.
    #[error("the record does not parse: {0}")]
    Syntax(String),
    /// It parses, but no sequence of transitions produces it.
    #[error("the record is inconsistent: {0}")]
    Inconsistent(&'static str),
}

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
    let task: Task =
        serde_json::from_slice(bytes).map_err(|error| DecodeError::Syntax(error.to_string()))?;
    check(&task).map_err(DecodeError::Inconsistent)?;
    Ok(task)
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
    } else if [task.revision, task.sequence, task.events_dropped]
        .into_iter()
        .any(|count| count > COUNT_MAX)
        || task.attempt.max(task.retry_count) == u32::MAX
    {
        Err("a counter is out of range")
    } else {
        Ok(())
    }
}
