//! What SlateDB's log says of each task, version by version.
//!
//! Everything that becomes durable goes through the log: objects with numbers, each written once. So the log is the history of the queue,
//! and it is read here with SlateDB's own reader, from what the store has ever held.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use qo_core::task::{decode, encode};
use qo_core::{Json, TaskId};
use slatedb::{ValueDeletable, WalReader};

use crate::store::{Bucket, Written};

/// Where the log is, and how its objects are called.
const LOG: &str = "slate/wal/";
const ENDING: &str = ".sst";
/// What the keys of the database begin with: live tasks, their inputs, and tasks that have come to their end.
const LIVE: u8 = b'l';
const INPUT: u8 = b'i';
const ENDED: u8 = b'd';

/// One row of the log.
#[derive(Debug)]
struct Row {
    sequence: u64,
    kind: u8,
    id: TaskId,
    /// Nothing, where it is deleted.
    value: Option<Bytes>,
}

/// What one group has made of one task.
#[derive(Debug, Default)]
struct Outcome {
    input: Option<Bytes>,
    /// Its record, and whether that lacks the input.
    record: Option<(Bytes, bool)>,
}

/// Every stored version of every task.
pub(super) fn records(bucket: &Bucket) -> BTreeMap<TaskId, Vec<Written>> {
    let mut inputs: BTreeMap<TaskId, Bytes> = BTreeMap::new();
    let mut records: BTreeMap<TaskId, Vec<Written>> = BTreeMap::new();
    follow(bucket, |written, id, outcome| {
        if let Some(input) = outcome.input {
            inputs.insert(id, input);
        }
        let versions = records.entry(id).or_default();
        let body = match outcome.record {
            Some((record, true)) => Some(with_input(record, inputs.get(&id))),
            Some((record, false)) => Some(record),
            None => None,
        };
        let is_there = versions.last().is_some_and(|last| last.body.is_some());
        if body.is_some() || is_there {
            versions.push(Written {
                body,
                ..written.clone()
            });
        }
    });
    records
}

/// The newest version of every task that is there.
pub(super) fn newest(bucket: &Bucket) -> BTreeMap<TaskId, Written> {
    let mut newest: BTreeMap<TaskId, Written> = BTreeMap::new();
    follow(bucket, |written, id, outcome| {
        let Some((record, _)) = outcome.record else {
            newest.remove(&id);
            return;
        };
        let body = Some(record);
        newest.insert(
            id,
            Written {
                body,
                ..written.clone()
            },
        );
    });
    newest
}

/// Goes through the log in its order, group by group and task by task.
fn follow(bucket: &Bucket, mut visit: impl FnMut(&Written, TaskId, Outcome)) {
    // The numbers in the names have as many digits as the largest can have, so that this is their order.
    for (key, versions) in bucket.history(LOG) {
        let Some(written) = versions.into_iter().find(|written| written.body.is_some()) else {
            continue;
        };
        let rows = bucket.understand(&key, || read(&key, written.body.clone()));
        let mut groups: BTreeMap<(u64, TaskId), Outcome> = BTreeMap::new();
        for row in rows.iter() {
            let outcome = groups.entry((row.sequence, row.id)).or_default();
            match (row.kind, &row.value) {
                (INPUT, value) => outcome.input.clone_from(value),
                (LIVE, Some(value)) => outcome.record = Some((value.clone(), true)),
                (_, Some(value)) => outcome.record = Some((value.clone(), false)),
                // It goes from the live to the ended ones, or back, or it is gone for good.
                (_, None) => {}
            }
        }
        for ((_, id), outcome) in groups {
            visit(&written, id, outcome);
        }
    }
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
            let id = entry.key.get(1..)?.try_into().ok().map(TaskId::from_bytes);
            if let Some(id) = id.filter(|_| [LIVE, INPUT, ENDED].contains(&kind)) {
                let value = match entry.value {
                    ValueDeletable::Value(value) => Some(value),
                    _ => None,
                };
                let sequence = entry.seq;
                rows.push(Row {
                    sequence,
                    kind,
                    id,
                    value,
                });
            }
        }
        Some(rows)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    // A log that cannot be read has no rows, and the tasks in it are missed by the checks.
    runtime
        .ok()
        .and_then(|runtime| runtime.block_on(rows))
        .unwrap_or_default()
}

/// A record with the input that is kept apart from it.
fn with_input(record: Bytes, input: Option<&Bytes>) -> Bytes {
    let whole = || {
        let text = String::from_utf8(input?.to_vec()).ok()?;
        let task = decode(&record).ok()?.with_input(Json::parse(text).ok()?);
        encode(&task).ok()
    };
    whole().map_or_else(|| record.clone(), Bytes::from)
}
