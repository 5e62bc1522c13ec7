//! The versions of each task in SlateDB's log.
//!
//! Everything that becomes durable goes through the log: numbered objects, each written once. So the log is the history of the queue. It is
//! read with SlateDB's own reader, from everything that the store ever contained.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use qo_check::StoredVersion;
use qo_core::task::encode;
use qo_core::{Task, TaskId};
use slatedb::{ValueDeletable, WalReader};

use crate::store::Bucket;
use crate::task_rows::{TaskRow, TaskRows};

/// The prefix of the log, and the suffix of its objects.
const LOG: &str = "slate/wal/";
const ENDING: &str = ".sst";

/// Every stored version of every task, as JSON.
pub(super) fn records(bucket: &Bucket) -> BTreeMap<TaskId, Vec<StoredVersion>> {
    let mut records: BTreeMap<TaskId, Vec<StoredVersion>> = BTreeMap::new();
    follow(bucket, |written, id, task| {
        let versions = records.entry(id).or_default();
        let body = task.and_then(|task| Some(Bytes::from(encode(&task).ok()?)));
        let is_there = versions.last().is_some_and(|last| last.body.is_some());
        if body.is_some() || is_there {
            versions.push(StoredVersion {
                body,
                ..written.clone()
            });
        }
    });
    records
}

/// The newest version of every existing task, as JSON.
pub(super) fn newest(bucket: &Bucket) -> BTreeMap<TaskId, StoredVersion> {
    let mut newest: BTreeMap<TaskId, (StoredVersion, Task)> = BTreeMap::new();
    follow(bucket, |written, id, task| {
        match task {
            Some(task) => newest.insert(id, (written.clone(), task)),
            None => newest.remove(&id),
        };
    });
    let as_json = |(written, task): (StoredVersion, Task)| StoredVersion {
        body: encode(&task).ok().map(Bytes::from),
        ..written
    };
    newest
        .into_iter()
        .map(|(id, newest)| (id, as_json(newest)))
        .collect()
}

/// Visits the log in its order, group by group and task by task.
fn follow(bucket: &Bucket, mut visit: impl FnMut(&StoredVersion, TaskId, Option<Task>)) {
    let mut tasks = TaskRows::default();
    // The numbers in the names are padded, so the order of keys is the order of numbers.
    for (key, versions) in bucket.history(LOG) {
        let Some(written) = versions.into_iter().find(|written| written.body.is_some()) else {
            continue;
        };
        let rows = bucket.understand(&key, || read(&key, written.body.clone()));
        tasks.follow(&rows, |id, task| visit(&written, id, task));
    }
}

/// The rows of one object of the log that are about tasks.
fn read(key: &str, body: Option<Bytes>) -> Vec<TaskRow> {
    let number = key.trim_start_matches(LOG).trim_end_matches(ENDING);
    let (Ok(number), Some(body)) = (number.parse(), body) else {
        return Vec::new();
    };
    let rows = async {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        store.put(&Path::from(key), body.into()).await.ok()?;
        let reader = WalReader::new("slate", store);
        let mut entries = reader.get(number).iterator().await.ok()?;
        let mut rows = Vec::new();
        while let Some(entry) = entries.next().await.ok()? {
            let value = match entry.value {
                ValueDeletable::Value(value) => Some(value),
                _ => None,
            };
            rows.extend(TaskRow::new(entry.seq, &entry.key, value));
        }
        Some(rows)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    // An unreadable log has no rows, and the checks report its tasks as lost.
    runtime
        .ok()
        .and_then(|runtime| runtime.block_on(rows))
        .unwrap_or_default()
}
