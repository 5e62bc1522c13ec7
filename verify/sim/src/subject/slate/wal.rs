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
use qo_core::task::{decode_compact, encode};
use qo_core::{Json, Task, TaskId};
use slatedb::{ValueDeletable, WalReader};

use crate::store::Bucket;

/// The prefix of the log, and the suffix of its objects.
const LOG: &str = "slate/wal/";
const ENDING: &str = ".sst";
/// The first bytes of the database's keys: live tasks, their inputs, and finished tasks.
const LIVE: u8 = b'l';
const INPUT: u8 = b'i';
const ENDED: u8 = b'd';

/// One row of the log.
#[derive(Debug)]
struct Row {
    /// Its group.
    group: u64,
    kind: u8,
    of: Of,
    /// None for a deletion.
    value: Option<Bytes>,
}

/// The task of a row. A live task is stored under its position in the order of submits.
#[derive(Debug, Clone, Copy)]
enum Of {
    Task(TaskId),
    Sequence(u64),
}

/// The changes of one group to one task.
#[derive(Debug, Default)]
struct GroupChange {
    input: Option<Bytes>,
    record: Option<Task>,
}

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
    let mut sequences: BTreeMap<u64, TaskId> = BTreeMap::new();
    let mut inputs: BTreeMap<TaskId, Bytes> = BTreeMap::new();
    // The numbers in the names are padded, so the order of keys is the order of numbers.
    for (key, versions) in bucket.history(LOG) {
        let Some(written) = versions.into_iter().find(|written| written.body.is_some()) else {
            continue;
        };
        let rows = bucket.understand(&key, || read(&key, written.body.clone()));
        let mut groups: BTreeMap<(u64, TaskId), GroupChange> = BTreeMap::new();
        // Only the record of a position names its task, and it may come after other rows of the position.
        let decoded: Vec<_> = rows
            .iter()
            .map(|row| record_of(row, &mut sequences))
            .collect();
        for (row, record) in rows.iter().zip(decoded) {
            let id = match row.of {
                Of::Task(id) => Some(id),
                Of::Sequence(sequence) => sequences.get(&sequence).copied(),
            };
            let Some(id) = id else {
                continue;
            };
            let outcome = groups.entry((row.group, id)).or_default();
            if row.kind == INPUT {
                outcome.input.clone_from(&row.value);
            }
            // A task moves from the live to the finished rows or back. Without any record it is deleted.
            outcome.record = outcome.record.take().or(record);
        }
        for ((_, id), outcome) in groups {
            if let Some(input) = outcome.input {
                inputs.insert(id, input);
            }
            let task = outcome.record.map(|task| with_input(task, inputs.get(&id)));
            visit(&written, id, task);
        }
    }
}

/// The record in a row, if it has one.
fn record_of(row: &Row, sequences: &mut BTreeMap<u64, TaskId>) -> Option<Task> {
    let task = decode_compact(row.value.as_ref()?)
        .ok()
        .filter(|_| row.kind != INPUT)?;
    if let Of::Sequence(sequence) = row.of {
        sequences.insert(sequence, task.id);
    }
    Some(task)
}

/// The rows of one object of the log that are about tasks.
fn read(key: &str, body: Option<Bytes>) -> Vec<Row> {
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
            let kind = *entry.key.first()?;
            let name = entry.key.get(1..)?;
            let of = match kind {
                LIVE | INPUT => name
                    .try_into()
                    .ok()
                    .map(u64::from_be_bytes)
                    .map(Of::Sequence),
                ENDED => name.try_into().ok().map(TaskId::from_bytes).map(Of::Task),
                _ => None,
            };
            if let Some(of) = of {
                let value = match entry.value {
                    ValueDeletable::Value(value) => Some(value),
                    _ => None,
                };
                rows.push(Row {
                    group: entry.seq,
                    kind,
                    of,
                    value,
                });
            }
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

/// A task with its input, which is stored apart from its record.
fn with_input(task: Task, input: Option<&Bytes>) -> Task {
    if task.names_input() {
        return task;
    }
    let text = input.and_then(|input| String::from_utf8(input.to_vec()).ok());
    match text.map(Json::parse) {
        Some(Ok(json)) => task.with_input(json),
        _ => task,
    }
}
