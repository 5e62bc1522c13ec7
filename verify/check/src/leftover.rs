//! The layout of direct mode: which objects are the versions of tasks, and which are left over in the end.

use std::collections::BTreeMap;

use qo_core::keys::{Key, QUARANTINE_PREFIX};
use qo_core::{Payload, Task, TaskId};

use crate::life::StoredVersion;

/// The versions of tasks among everything that was written, by key.
pub fn direct_versions(
    written: impl IntoIterator<Item = (String, Vec<StoredVersion>)>,
) -> BTreeMap<TaskId, Vec<StoredVersion>> {
    written
        .into_iter()
        .filter_map(|(key, versions)| match key.parse() {
            Ok(Key::Task(id)) => Some((id, versions)),
            _ => None,
        })
        .collect()
}

/// The keys that no task needs any more, once all tasks are finished and the sweeper has run.
pub fn left_over_keys(
    keys: impl IntoIterator<Item = String>,
    tasks: &BTreeMap<TaskId, Task>,
) -> Vec<String> {
    let keys = keys.into_iter();
    keys.filter(|key| !is_needed(key, tasks)).collect()
}

fn is_needed(key: &str, tasks: &BTreeMap<TaskId, Task>) -> bool {
    match key.parse() {
        // Blobs are collected by `qo blob gc`, not by the sweeper.
        Ok(
            Key::Task(_)
            | Key::Worker(_)
            | Key::Idempotency(_)
            | Key::Line(_)
            | Key::Limit(_)
            | Key::BlobRecord(_)
            | Key::BlobData { .. },
        ) => true,
        Ok(Key::Ready(_) | Key::Later(_) | Key::Lease { .. }) => false,
        Ok(Key::Input { id, sha256 }) => tasks.get(&id).is_some_and(
            |task| matches!(task.input(), Payload::Stored(stored) if stored.sha256 == sha256),
        ),
        Ok(Key::Output { id, attempt }) => tasks.get(&id).is_some_and(|task| {
            task.attempt == attempt && matches!(task.output(), Some(Payload::Stored(_)))
        }),
        Err(_) => key.starts_with("meta/") || key.starts_with(QUARANTINE_PREFIX),
    }
}
