//! Direct mode.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use qo_check::{StoredVersion, direct_versions, left_over_keys};
use qo_core::keys::{Key, LATER_PREFIX, LINES_PREFIX, READY_PREFIX, TASKS_PREFIX};
use qo_core::{Task, TaskId};
use qo_direct::DirectEngine;
use qo_direct::{DirectConfig, Maintenance, MaintenanceConfig, SweepNext};
use qo_store::StoreClient;
use qo_store::admin::BucketAdmin;
use qo_store::wrap::version_keys::VersionKeys;

use super::{Host, Running, Subject, Work};
use crate::store::Bucket;

/// How many promotions may be repeated beyond once for each task.
const PROMOTIONS_SPARE: usize = 5;

/// The engine of direct mode, with its monitor and its sweeper.
#[derive(Debug, Clone, Copy, Default)]
pub struct Direct;

impl Direct {
    /// The engine, with its own type.
    pub fn engine(seat: &Host) -> DirectEngine {
        let client = StoreClient::new(
            Arc::clone(&seat.objects),
            Arc::clone(&seat.clock),
            Arc::clone(&seat.runtime),
            seat.client.clone(),
        );
        let admin = (seat.keeps_versions)
            .then(|| Arc::new(VersionKeys::new(client.clone())) as Arc<dyn BucketAdmin>);
        DirectEngine::new(
            client,
            admin,
            Arc::clone(&seat.runtime),
            DirectConfig::default(),
        )
    }
}

impl Subject for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn start(&self, seat: &Host) -> Running {
        let engine = Self::engine(seat);
        let (sweep_interval, retention) = (seat.sweep_interval, seat.retention);
        let (expired, tidied, maintained) = (engine.clone(), engine.clone(), engine.clone());
        Running {
            engine: Arc::new(engine),
            expire: Box::new(move || {
                let engine = expired.clone();
                Box::pin(async move { engine.check_leases().await.map(drop) })
            }),
            tidy: Box::new(move || {
                let engine = tidied.clone();
                Box::pin(async move {
                    engine.check_leases().await?;
                    while engine.sweep_step().await?.next == SweepNext::Continue {}
                    Ok(())
                })
            }),
            maintain: Box::new(move || {
                let mut config = MaintenanceConfig::default();
                config.sweep_interval = sweep_interval;
                config.retention = retention;
                Box::new(Maintenance::spawn(maintained.clone(), config))
            }),
        }
    }

    fn has_fleets(&self) -> bool {
        true
    }

    fn tidy_after(&self) -> Duration {
        // Then the sweeper checks everything, and removes payloads that no task refers to.
        Duration::from_hours(25)
    }

    fn drops_finished(&self) -> bool {
        false
    }

    fn admits_submits(&self) -> bool {
        false
    }

    fn records(&self, bucket: &Bucket) -> BTreeMap<TaskId, Vec<StoredVersion>> {
        direct_versions(bucket.history(&format!("{TASKS_PREFIX}/")))
    }

    fn may_be_damaged(&self, key: &str) -> bool {
        match key.parse() {
            Ok(Key::Task(_) | Key::Input { .. } | Key::Output { .. } | Key::Worker(_)) => true,
            Ok(_) => false,
            Err(_) => key.starts_with("meta/"),
        }
    }

    fn line_heads(&self, bucket: &Bucket) -> Vec<String> {
        let lines = bucket.keys(&format!("{LINES_PREFIX}/"));
        let heads = lines.iter().filter_map(|key| {
            let line: serde_json::Value = serde_json::from_slice(&bucket.body(key)?).ok()?;
            let [head, _, ..] = line.get("tasks")?.as_array()?.as_slice() else {
                return None;
            };
            let id: TaskId = head.get("id")?.as_str()?.parse().ok()?;
            Some(Key::Task(id).to_string())
        });
        heads.collect()
    }

    fn tasks_of(&self, key: &str) -> Vec<TaskId> {
        match key.parse() {
            Ok(Key::Task(id) | Key::Input { id, .. } | Key::Output { id, .. }) => vec![id],
            _ => Vec::new(),
        }
    }

    fn left_over(&self, bucket: &Bucket, tasks: &BTreeMap<TaskId, Task>) -> Vec<String> {
        let keys: BTreeSet<String> = bucket.keys("").into_iter().collect();
        let mut left_over = left_over_keys(keys.iter().cloned(), tasks);
        // A late submit of a task whose damaged record is in quarantine creates it anew. It is none of the checked tasks.
        left_over.retain(|key| match key.parse() {
            Ok(Key::Ready(entry) | Key::Later(entry)) => {
                let record = Key::Task(entry.id).to_string();
                tasks.contains_key(&entry.id) || !keys.contains(&record)
            }
            _ => true,
        });
        // A purge deletes the versions of a task before the task.
        left_over.extend(bucket.deleted_with_versions(&format!("{TASKS_PREFIX}/")));
        left_over
    }

    fn budget(&self, work: &Work) -> (u64, u64, u64) {
        // Two writes a change, the signal once a second, and a few for heartbeats, monitors and the sweeper.
        let writes = work.changes * 2 + work.claims + work.process_seconds + 50;
        // One read a claim, the signal every 1.5 s, and the callers' own reads, some of which conflict with others.
        let reads = work.changes * 2 + work.calls * 2 + work.process_seconds * 2 + 50;
        // A list per poll, not per task.
        let lists = work.changes * 2 + work.process_seconds / 2 + 100;
        (writes, reads, lists)
    }

    fn repeated_work(&self, bucket: &Bucket) -> Option<String> {
        let ready = bucket.history(&format!("{READY_PREFIX}/"));
        let later = bucket.history(&format!("{LATER_PREFIX}/"));
        // A promotion writes the ready entry before it deletes the later one. What is written after that belongs to a submit that is repeated.
        let promotions: Vec<usize> = later
            .iter()
            .filter_map(|(key, waiting)| match key.parse() {
                Ok(Key::Later(entry)) => {
                    let ready = ready.get(&Key::Ready(entry).to_string())?;
                    let written = ready.iter().filter(|version| version.body.is_some());
                    Some(
                        written
                            .filter(|version| exists_at(waiting, version.tick))
                            .count(),
                    )
                }
                _ => None,
            })
            .collect();
        let (entries, writes) = (promotions.len(), promotions.iter().sum::<usize>());
        // After the first worker has died or started, two workers may both take themselves for it until they read the roster again. All
        // tasks of a run may become due in that moment.
        let allowed = 2 * entries + PROMOTIONS_SPARE;
        (writes > allowed).then(|| {
            format!(
                "{entries} scheduled tasks were promoted by {writes} writes; {allowed} are allowed"
            )
        })
    }
}

/// Whether a key with this history exists just before a tick.
fn exists_at(history: &[StoredVersion], tick: u64) -> bool {
    let before = history.iter().rfind(|version| version.tick < tick);
    before.is_some_and(|version| version.body.is_some())
}
