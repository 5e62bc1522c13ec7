//! A compact binary form of a task: a quarter of the size of the JSON and several times as fast.
//!
//! The broker writes a record three times in a task's life and reads all live ones when it opens, so the text of
//! field names would be most of what it writes and parses.
//!
//! ```text
//! form 1 │ flags │ required fields │ optional fields by flag │ events
//! ```
//!
//! Numbers have variable length (seven bits per byte, lowest first). Times are offsets from `created_at`. Texts and
//! lists are preceded by their length. A record with content that this form cannot represent, such as a field of a
//! later version, is stored as JSON, which its first byte identifies. Nothing is ever lost, and the rules of
//! [`super::codec`] need no second copy.

mod read;
mod write;

use self::read::Reader;
use self::write::Writer;
use super::codec::{
    LIMIT_READER, ORDERING_READER, UNIQUE_READER, check, decode as decode_json,
    encode as encode_json,
};
use super::{DecodeError, KeyHold, OnFailure, Progress, Task};
use crate::id::TaskId;
use crate::limits::{EVENTS_MAX, RECORD_MAX_BYTES, TAGS_MAX};
use crate::payload::PayloadRef;

/// The first byte of this form. JSON starts with another byte.
pub(super) const FORM: u8 = 1;
/// The typical size of a record without payloads.
const RECORD_BYTES: usize = 320;

/// The optional fields of a record, each a bit of its flags.
mod has {
    pub(super) const OP_ID: u32 = 1;
    pub(super) const EXPIRES_AT: u32 = 1 << 1;
    pub(super) const STARTED_AT: u32 = 1 << 2;
    pub(super) const LEASE: u32 = 1 << 3;
    pub(super) const INPUT: u32 = 1 << 4;
    pub(super) const INPUT_REF: u32 = 1 << 5;
    pub(super) const OUTPUT: u32 = 1 << 6;
    pub(super) const OUTPUT_REF: u32 = 1 << 7;
    pub(super) const RETRY_POLICY: u32 = 1 << 8;
    pub(super) const COMPLETED_AT: u32 = 1 << 9;
    pub(super) const WORKER: u32 = 1 << 10;
    pub(super) const ERROR: u32 = 1 << 11;
    pub(super) const KEY: u32 = 1 << 12;
    pub(super) const KEY_UNTIL: u32 = 1 << 13;
    pub(super) const TAGS: u32 = 1 << 14;
    pub(super) const TRACE: u32 = 1 << 15;
    pub(super) const PROGRESS: u32 = 1 << 16;
    pub(super) const CANCEL: u32 = 1 << 17;
    pub(super) const DROPPED: u32 = 1 << 18;
    pub(super) const ORDERING: u32 = 1 << 19;
    pub(super) const ORDERING_TURN: u32 = 1 << 20;
    pub(super) const MAX_WAIT: u32 = 1 << 21;
    pub(super) const LIMIT_KEY: u32 = 1 << 22;
    pub(super) const KEY_HOLD: u32 = 1 << 23;
    pub(super) const ALL: u32 = (1 << 24) - 1;
}

/// The optional fields of an event.
mod event_has {
    pub(super) const FROM: u8 = 1;
    pub(super) const WORKER: u8 = 1 << 1;
    pub(super) const ERROR: u8 = 1 << 2;
    pub(super) const OP_ID: u8 = 1 << 3;
    pub(super) const ACTION: u8 = 1 << 4;
    pub(super) const ALL: u8 = (1 << 5) - 1;
}

/// Encodes a task with or without its input.
pub fn encode_compact(task: &Task, with_input: bool) -> Result<Vec<u8>, DecodeError> {
    if !fits(task) {
        if with_input || task.input.is_none() {
            return encode_json(task);
        }
        let mut without = task.clone();
        without.input = None;
        return encode_json(&without);
    }
    let mut out = Writer::new(RECORD_BYTES + task.inline_bytes());
    out.task(task, with_input);
    Ok(out.into_bytes())
}

/// Decodes a task from the untrusted output of [`encode_compact`].
pub fn decode_compact(bytes: &[u8]) -> Result<Task, DecodeError> {
    if bytes.len() > RECORD_MAX_BYTES {
        return Err(DecodeError::TooLarge { size: bytes.len() });
    }
    let rest = match bytes.split_first() {
        Some((&FORM, rest)) => rest,
        // JSON does not start with a control character other than white space.
        Some((&form, _)) if form < b'\t' => return Err(newer(&format!("it has form {form}"))),
        _ => return decode_json(bytes),
    };
    let mut reader = Reader::new(rest);
    let task = reader.task()?;
    if !reader.is_at_end() {
        return Err(broken("it has trailing bytes"));
    }
    check(&task).map_err(DecodeError::Inconsistent)?;
    Ok(task)
}

/// The task id of a record in form 1, from the bytes behind the first one. A later version may have more flags.
pub(super) fn id_behind_flags(bytes: &[u8]) -> Option<TaskId> {
    let mut reader = Reader::new(bytes);
    reader.number().ok()?;
    Some(TaskId::from_bytes(reader.array().ok()?))
}

/// Whether this form can represent the whole record. It has no room for logs, the author of an event and the queue of a submit: few tasks have one, and earlier versions,
/// which refuse a form that they do not know, keep an unknown field of JSON. A record that another program wrote may be unusual in ways other
/// than unknown fields.
fn fits(task: &Task) -> bool {
    let is_plain = |reference: &Option<Box<PayloadRef>>| {
        reference
            .as_ref()
            .is_none_or(|reference| reference.extra.is_empty())
    };
    let is_known = |progress: &Progress| {
        progress.extra.is_empty() && (0.0..=100.0).contains(&progress.percent)
    };
    task.extra.is_empty()
        && task.log_index.is_none()
        && task.logs.is_none()
        && task.idempotency_queue.is_none()
        && task.retry_policy.extra.is_empty()
        && task
            .events
            .iter()
            .all(|event| event.extra.is_empty() && event.by.is_none())
        && is_plain(&task.input_ref)
        && is_plain(&task.output_ref)
        && task.progress.as_deref().is_none_or(is_known)
        && task.lease_id.is_some() == task.lease_expires_at.is_some()
        && task.events.len() <= EVENTS_MAX
        && task.tags.len() <= TAGS_MAX
        && task.min_reader
            == min_reader(
                task.ordering_key.is_some(),
                task.limit_key.is_some(),
                task.idempotency_hold != KeyHold::Kept,
            )
        && (task.ordering_key.is_some() || has_no_order(task))
}

/// The `min_reader` of a record in this form, which does not store it: an older version does not know the flags of the fields that need it.
fn min_reader(is_ordered: bool, has_limit_key: bool, is_unique: bool) -> u64 {
    match (has_limit_key || is_unique, is_ordered) {
        (true, _) => LIMIT_READER.max(UNIQUE_READER),
        (false, true) => ORDERING_READER,
        (false, false) => 0,
    }
}

fn has_no_order(task: &Task) -> bool {
    task.ordering_on_failure == OnFailure::default() && task.ordering_turn == 0
}

fn broken(what: &str) -> DecodeError {
    DecodeError::Syntax(what.to_owned())
}

fn newer(what: &str) -> DecodeError {
    DecodeError::Newer(what.to_owned())
}
