//! The keys and rows of the database, from any bytes.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use qo_core::QueueState;
use qo_core::task::{decode_compact, encode_compact};

use super::counts::dropped_at;
use super::keys;
use super::load::joined;

/// A key that is understood is the very key that would be written for what it says: two spellings would be two rows.
pub fn slate_key(bytes: &[u8]) {
    if let Some(id) = keys::task_of(bytes) {
        assert_eq!(keys::of_task(bytes[0], id), bytes);
    }
    if let Some(place) = keys::place_of(bytes) {
        assert_eq!(keys::of_place(bytes[0], place), bytes);
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
}

/// A live task's rows, the record alone, or the record before the last newline and the input behind it: what is put together from them
/// can be taken apart and put together again.
pub fn slate_row(bytes: &[u8]) {
    // A newline may also be one of the record's own bytes.
    let is_alone = decode_compact(bytes).is_ok();
    let (record, input) = match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(end) if !is_alone => (&bytes[..end], &bytes[end + 1..]),
        _ => (bytes, &bytes[..0]),
    };
    let Ok(task) = decode_compact(record) else {
        return;
    };
    let id = task.id;
    let Ok(task) = joined(task, Some(input).filter(|input| !input.is_empty())) else {
        return;
    };
    let whole = encode_compact(&task, true).unwrap_or_default();
    assert_eq!(
        decode_compact(&whole).as_ref(),
        Ok(&task),
        "it could not be read once it has ended"
    );
    let mut state = QueueState::new();
    state.load(task);
    let loaded = state.task(id).cloned();
    let again = loaded.as_ref().and_then(|task| {
        let record = encode_compact(task, false).ok()?;
        let input = task.inline_input().map(|json| json.as_str().as_bytes());
        joined(decode_compact(&record).ok()?, input).ok()
    });
    assert_eq!(again, loaded);
}
