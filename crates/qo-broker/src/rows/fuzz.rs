//! Fuzz targets of the keys and rows of the database.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use qo_core::QueueState;
use qo_core::task::{decode_compact, encode_compact};

use super::counts::dropped_at;
use super::keys;
use super::load::join_input;

/// A key that can be parsed encodes to the same bytes: two encodings of a key would be two rows.
pub fn slate_key(bytes: &[u8]) {
    if let Some(id) = keys::task_of(bytes) {
        assert_eq!(keys::of_task(bytes[0], id), bytes);
    }
    if let Some(sequence) = keys::sequence_of(bytes) {
        assert_eq!(keys::of_sequence(bytes[0], sequence), bytes);
    }
    if let Some((at, id)) = keys::payloads_of(bytes)
        && bytes[0] == keys::PAYLOADS
    {
        assert_eq!(keys::of_payloads(at, id), bytes);
    }
    if let Some(count) = keys::count_of(bytes)
        && bytes[0] == keys::COUNT
    {
        assert_eq!(keys::of_count(&count), bytes);
        for retention_ms in [0, u64::MAX] {
            assert!(dropped_at(&count, retention_ms) >= dropped_at(&count, 0));
        }
    }
    if let Some((status, at, id)) = keys::time_of(bytes)
        && bytes[0] == keys::TIME
    {
        assert_eq!(keys::of_time(status, at, id), bytes);
    }
}

/// The rows of a live task: the record alone, or the record before the last newline and the input after it. The task that they form
/// can be split into rows and joined again.
pub fn slate_row(bytes: &[u8]) {
    // The record itself may contain a newline.
    let is_alone = decode_compact(bytes).is_ok();
    let (record, input) = match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(end) if !is_alone => (&bytes[..end], &bytes[end + 1..]),
        _ => (bytes, &bytes[..0]),
    };
    let Ok(task) = decode_compact(record) else {
        return;
    };
    let id = task.id;
    let Ok(task) = join_input(task, Some(input).filter(|input| !input.is_empty())) else {
        return;
    };
    let whole = encode_compact(&task, true).unwrap_or_default();
    assert_eq!(
        decode_compact(&whole).as_ref(),
        Ok(&task),
        "the finished task could not be read"
    );
    let mut state = QueueState::new();
    state.load(task);
    let loaded = state.task(id).cloned();
    let again = loaded.as_ref().and_then(|task| {
        let record = encode_compact(task, false).ok()?;
        let input = task.inline_input().map(|json| json.as_str().as_bytes());
        join_input(decode_compact(&record).ok()?, input).ok()
    });
    assert_eq!(again, loaded);
}
