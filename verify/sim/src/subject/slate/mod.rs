//! Broker mode with the queue in SlateDB: one broker at a time has it open, and everybody else reaches it over a network.
//!
//! SlateDB itself runs here, with its log, tables, compactor and fencing, on the simulated store, with the process's clock and a seed of the
//! run, in a runtime that the scheduler drives.

mod wal;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use qo_broker::{BrokerEngine, SlateConfig};
use qo_check::{StoredVersion, TURNS};
use qo_core::keys::BROKER_KEY;
use qo_core::{Task, TaskId};
use qo_engine::{Engine, EngineError};
use qo_store::runtime::BoxFuture;

use super::{Host, Running, Subject, Work, is_kept_beside, task_of_payload};
use crate::faults::FaultKind;
use crate::store::Bucket;

/// The prefix of the database, and the key of its writer's record.
const DATABASE: &str = "slate/";
const MARK: &str = "meta/writer.json";

/// How often the payloads of dropped tasks are deleted.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(20);

/// The engine that keeps the queue in SlateDB.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slate;

impl Subject for Slate {
    fn name(&self) -> &'static str {
        "slate"
    }

    fn start(&self, seat: &Host) -> Running {
        let wire = seat.wire.clone();
        let look = wire.clone();
        Running {
            engine: Arc::new(wire),
            expire: Box::new(|| Box::pin(async { Ok(()) })),
            // The broker runs maintenance by itself.
            tidy: Box::new(move || {
                let wire = look.clone();
                Box::pin(async move { wire.stats().await.map(drop) })
            }),
            maintain: Box::new(|| Box::new(())),
        }
    }

    fn brokers(&self) -> u64 {
        2
    }

    fn serve(&self, seat: &Host) -> BoxFuture<Result<BrokerEngine, EngineError>> {
        let mut config = SlateConfig::default();
        // SlateDB wakes up at this interval even without writes, and every wake-up slows the run down.
        config.flush_interval = Duration::from_millis(50);
        // Runs are short, and SlateDB's background work should happen in them.
        config.poll_interval = Duration::from_secs(5);
        config.garbage_interval = Duration::from_mins(1);
        config.cleanup_interval = CLEANUP_INTERVAL;
        config.retention = seat.retention.unwrap_or(config.retention);
        if let Some(limits) = seat.limits {
            limits.apply(&mut config.state);
            // Otherwise the groups in flight share a write.
            config.in_flight_max = 1;
        }
        let opening = BrokerEngine::slate(
            Arc::clone(&seat.objects),
            Arc::clone(&seat.clock),
            Arc::clone(&seat.runtime),
            seat.client.clone(),
            config,
        );
        Box::pin(opening)
    }

    fn records(&self, bucket: &Bucket) -> BTreeMap<TaskId, Vec<StoredVersion>> {
        wal::records(bucket)
    }

    fn newest(&self, bucket: &Bucket) -> BTreeMap<TaskId, StoredVersion> {
        wal::newest(bucket)
    }

    fn groups_changes(&self) -> bool {
        true
    }

    fn turns_max(&self) -> Option<u32> {
        Some(TURNS)
    }

    fn endures(&self, kind: FaultKind) -> bool {
        // SlateDB finds its log by a list and relies on consistent lists, which all supported stores have.
        kind != FaultKind::StaleList
    }

    fn may_be_damaged(&self, key: &str) -> bool {
        // The database is the whole queue.
        !key.starts_with(DATABASE) && key != MARK && key != BROKER_KEY
    }

    fn unlimited_key(&self) -> Option<&'static str> {
        // A heartbeat every 15 seconds.
        Some(BROKER_KEY)
    }

    fn tasks_of(&self, key: &str) -> Vec<TaskId> {
        task_of_payload(key)
    }

    fn left_over(&self, bucket: &Bucket, _tasks: &BTreeMap<TaskId, Task>) -> Vec<String> {
        let mut left_over = bucket.keys("");
        let is_own = |key: &str| key.starts_with(DATABASE) || key == MARK || key == BROKER_KEY;
        left_over.retain(|key| !is_own(key) && !is_kept_beside(key));
        left_over
    }

    fn budget(&self, work: &Work) -> (u64, u64, u64) {
        // At most one log object a group, payloads, heartbeats, and the compactor's writes.
        let writes = work.changes * 2 + work.process_seconds / 5 + 50;
        // A read of the writer's record for each reply that no write confirms and every five seconds, a read of the leader record every
        // second, and SlateDB's polls.
        let reads = work.calls * 2 + work.process_seconds * 2 + 100;
        // SlateDB's garbage collection lists four times a minute, and a purge lists as well.
        let lists = work.calls / 10 + work.process_seconds / 10 + 50;
        (writes, reads, lists)
    }
}
