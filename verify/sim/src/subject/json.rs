//! Broker mode with the whole queue in one JSON object, which any number of processes share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use qo_broker::{BrokerEngine, JsonConfig};
use qo_check::{StoredVersion, TURNS};
use qo_core::Task;
use qo_core::TaskId;

use super::{Host, Running, Subject, Work, is_kept_beside, task_of_payload};
use crate::store::Bucket;

/// The key of the queue.
const QUEUE_KEY: &str = "queue.json";
/// The start of every line of a task, and the length of its id.
const LINE_BEGINS: &str = "{\"id\":\"";
const ID_LENGTH: usize = 36;

/// How often in a row a process may lose the race to write a turn of the same group.
const LOST_RACES: u32 = 2;

/// The engine that keeps the queue in one JSON object.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

impl Subject for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn start(&self, seat: &Host) -> Running {
        let mut config = JsonConfig::default();
        // Unless the plan says otherwise, the checks at the end need everything.
        config.finished_keep = seat.retention.unwrap_or(Duration::from_hours(24 * 30));
        if let Some(limits) = seat.limits {
            limits.apply(&mut config.state);
        }
        let engine = BrokerEngine::json(
            Arc::clone(&seat.objects),
            Arc::clone(&seat.clock),
            Arc::clone(&seat.runtime),
            seat.client.clone(),
            config,
        );
        let (expired, tidied) = (engine.clone(), engine.clone());
        Running {
            engine: Arc::new(engine),
            expire: Box::new(move || {
                let engine = expired.clone();
                Box::pin(async move { engine.maintain().await })
            }),
            tidy: Box::new(move || {
                let engine = tidied.clone();
                Box::pin(async move { engine.maintain().await })
            }),
            // Every process runs maintenance by itself.
            maintain: Box::new(|| Box::new(())),
        }
    }

    fn records(&self, bucket: &Bucket) -> BTreeMap<TaskId, Vec<StoredVersion>> {
        let mut records: BTreeMap<TaskId, Vec<StoredVersion>> = BTreeMap::new();
        let mut known: BTreeMap<TaskId, Bytes> = BTreeMap::new();
        let versions = bucket.history(QUEUE_KEY).remove(QUEUE_KEY);
        for version in versions.unwrap_or_default() {
            let mut lines: BTreeMap<TaskId, Bytes> = BTreeMap::new();
            let mut change = |id: TaskId, body: Option<Bytes>| {
                records.entry(id).or_default().push(StoredVersion {
                    body,
                    ..version.clone()
                });
            };
            for (id, line) in lines_of(version.body.as_ref()) {
                // A task with two lines has two records, which the checks report.
                let is_known = known.get(&id) == Some(&line) && !lines.contains_key(&id);
                if !is_known {
                    change(id, Some(line.clone()));
                }
                lines.insert(id, line);
            }
            for id in known.keys().filter(|id| !lines.contains_key(id)) {
                change(*id, None);
            }
            known = lines;
        }
        records
    }

    fn newest(&self, bucket: &Bucket) -> BTreeMap<TaskId, StoredVersion> {
        let newest = bucket
            .history(QUEUE_KEY)
            .remove(QUEUE_KEY)
            .and_then(|mut versions| versions.pop());
        let Some(newest) = newest else {
            return BTreeMap::new();
        };
        let lines = lines_of(newest.body.as_ref()).into_iter();
        lines
            .map(|(id, line)| {
                let written = StoredVersion {
                    body: Some(line),
                    ..newest.clone()
                };
                (id, written)
            })
            .collect()
    }

    fn groups_changes(&self) -> bool {
        true
    }

    fn turns_max(&self) -> Option<u32> {
        // Each process counts what it has seen. After a lost race it also counts the turn that it did not get.
        Some(TURNS + LOST_RACES)
    }

    fn unlimited_key(&self) -> Option<&'static str> {
        Some(QUEUE_KEY)
    }

    fn may_be_damaged(&self, key: &str) -> bool {
        // The object is the whole queue.
        key != QUEUE_KEY
    }

    fn tasks_of(&self, key: &str) -> Vec<TaskId> {
        task_of_payload(key)
    }

    fn left_over(&self, bucket: &Bucket, _tasks: &BTreeMap<TaskId, Task>) -> Vec<String> {
        let mut left_over = bucket.keys("");
        left_over.retain(|key| key != QUEUE_KEY && !is_kept_beside(key));
        left_over
    }

    fn budget(&self, work: &Work) -> (u64, u64, u64) {
        // At most one write a change, lost races, payloads, and heartbeats.
        let writes = work.changes * 3 + work.process_seconds / 5 + 50;
        // A read after each lost race, one for each reply that no write confirms, and one every 1.5 s while claims wait.
        let reads = work.changes * 3 + work.calls * 2 + work.process_seconds + 50;
        // Only a purge lists.
        let lists = work.calls / 10 + 20;
        (writes, reads, lists)
    }
}

/// The lines of the tasks in the object. Each task is one line.
fn lines_of(body: Option<&Bytes>) -> Vec<(TaskId, Bytes)> {
    let Some(body) = body else { return Vec::new() };
    let text = std::str::from_utf8(body).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let id = line.strip_prefix(LINE_BEGINS)?.get(..ID_LENGTH)?;
            let line = line.strip_suffix(',').unwrap_or(line);
            Some((id.parse().ok()?, body.slice_ref(line.as_bytes())))
        })
        .collect()
}
