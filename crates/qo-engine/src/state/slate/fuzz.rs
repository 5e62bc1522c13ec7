//! The keys and rows of the database, from any bytes.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use qo_core::QueueState;
use qo_core::task::{decode, encode};

use super::counts::dropped_at;
use super::keys;
use super::load::joined;

/// A key that is understood is the very key that would be written for what it says: two spellings would be two rows.
pub fn slate_key(bytes: &[u8]) {
    if let Some(id) = keys::task_of(bytes) {
        assert_eq!(keys::of_task(bytes[0], id), bytes);
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

/// A live task's two rows, the record before the first newline and the input behind it: what is put together from them can be taken
/// apart and put together again.
pub fn slate_row(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let (record, input) = (parts.next().unwrap_or_default(), parts.next());
    let Ok(task) = decode(record) else {
        return;
    };
    let id = task.id;
    let Ok(task) = joined(task, input) else {
        return;
    };
    let whole = encode(&task).unwrap_or_default();
    assert_eq!(
        decode(&whole).as_ref(),
        Ok(&task),
        "it could not be read once it has ended"
    );
    let mut state = QueueState::with_requests_remembered(0);
    state.load(task);
    let loaded = state.task(id).cloned();
    let apart = state.encode_apart(id).ok().flatten();
    assert!(apart.is_some(), "a task cannot be written");
    let again = apart.and_then(|apart| {
        let input = apart.input.as_ref().map(|json| json.as_str().as_bytes());
        joined(decode(&apart.record).ok()?, input).ok()
    });
    assert_eq!(again, loaded);
}
