//! The keys of a bucket, parsed from arbitrary bytes.

use qo_core::keys::{
    BLOB_DATA_PREFIX, BLOB_RECORDS_PREFIX, IndexEntry, Key, data_prefix, leases_prefix,
    ready_prefix, tasks_prefix,
};
use qo_core::{QueueName, Sha256, Shard, Tag, TaskId, TaskType, Timestamp, TraceParent, WorkerId};

/// A valid key has one spelling, starts with its prefix, and contains only names that cannot be confused with other parts
/// of a key.
pub(crate) fn key(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    names(text);
    let Ok(key) = text.parse::<Key>() else {
        return;
    };
    assert_eq!(key.to_string(), text);
    let (prefix, parts) = match &key {
        Key::Task(id) => (tasks_prefix(id.shard()), 3),
        Key::Ready(entry) => (
            ready_prefix(&entry.queue, &entry.task_type),
            6 + usize::from(entry.limit_key.is_some()) + usize::from(entry.rank.is_some()),
        ),
        Key::Later(entry) => (
            "later".to_owned(),
            6 + usize::from(entry.limit_key.is_some()) + usize::from(entry.rank.is_some()),
        ),
        Key::Lease { id, .. } => (leases_prefix(id.shard()), 5),
        Key::Worker(_) => ("workers".to_owned(), 2),
        Key::Input { id, .. } | Key::Output { id, .. } => (data_prefix(*id), 4),
        Key::Idempotency(_) => ("keys".to_owned(), 2),
        Key::Line(_) => ("order".to_owned(), 2),
        Key::Limit(_) => ("limits".to_owned(), 2),
        Key::BlobRecord(_) => (BLOB_RECORDS_PREFIX.to_owned(), 4),
        Key::BlobData { .. } => (BLOB_DATA_PREFIX.to_owned(), 4),
    };
    assert!(
        text.starts_with(&format!("{prefix}/")),
        "{text} does not start with {prefix}"
    );
    assert_eq!(text.split('/').count(), parts);
    if let Key::Ready(entry) | Key::Later(entry) = key {
        entry_moves(&entry);
    }
}

/// An entry has an equivalent key in either index.
fn entry_moves(entry: &IndexEntry) {
    for now in [Timestamp::MIN, entry.available_at, Timestamp::MAX] {
        let key = entry.clone().key(now);
        let read = key.to_string().parse::<Key>();
        assert_eq!(read.as_ref(), Ok(&key));
        let is_due = matches!(key, Key::Ready(_));
        assert_eq!(is_due, entry.available_at <= now);
    }
}

/// A valid name round-trips and is safe as a part of a key.
fn names(text: &str) {
    for name in [
        text.parse::<QueueName>().map(|name| name.to_string()).ok(),
        text.parse::<TaskType>().map(|name| name.to_string()).ok(),
        text.parse::<WorkerId>().map(|name| name.to_string()).ok(),
    ]
    .into_iter()
    .flatten()
    {
        assert_eq!(name, text);
        assert!(!name.is_empty() && !name.contains('/') && name != "." && name != "..");
    }
    if let Ok(id) = text.parse::<TaskId>() {
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(
            id.to_string().get(..1).map(str::to_owned),
            Some(id.shard().to_string())
        );
    }
    if let Ok(shard) = text.parse::<Shard>() {
        assert_eq!(shard.to_string(), text);
    }
    if let Ok(digest) = text.parse::<Sha256>() {
        assert_eq!(digest.to_string(), text);
    }
    if let Ok(tag) = text.parse::<Tag>() {
        assert_eq!(tag.as_str(), text);
    }
    if let Ok(trace) = text.parse::<TraceParent>() {
        assert_eq!(trace.to_string().parse(), Ok(trace));
    }
}
