//! Fuzz targets for the small records of direct mode.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use qo_core::{OpId, PauseNote, QueueName, TaskId, TaskType, Timestamp};
use qo_engine::api::WorkerInfo;
use qo_engine::fuzz::round_trip;
use qo_store::client::{Authorship, carries_operation};

use super::idempotency::KeyRecord;
use super::paused_queues::QueuesRecord;
use super::roster::Roster;
use super::sweeper::fuzz::sweep_record;

/// Parses the records other than tasks: paused queues, idempotency keys, workers, the roster of workers, and the sweeper's cursor.
pub fn direct_records(bytes: &[u8]) {
    let op = OpId::from_random(1);
    let now = Timestamp::from_millis(1_763_238_840_123);
    if let Some(mut record) = round_trip::<QueuesRecord>(bytes) {
        let before = record.clone();
        let mut pauses = record.pauses();
        if let Ok(task_type) = "reports".parse::<TaskType>() {
            pauses.set(&task_type.into(), Some(PauseNote::default()), now);
        }
        record.set(pauses.clone(), op, now);
        assert_ne!(record, before);
        assert_eq!(record.pauses(), pauses);
        let written = serde_json::to_vec(&record).unwrap_or_default();
        assert_eq!(carries_operation(&written, &op), Some(Authorship::Latest));
    }
    round_trip::<KeyRecord>(bytes);
    if let Some(worker) = round_trip::<WorkerInfo>(bytes) {
        assert!(worker.is_healthy(worker.last_heartbeat, 0));
    }
    if let Some(roster) = round_trip::<Roster>(bytes) {
        let task_type = "mail".parse();
        for worker in roster.workers() {
            assert!(roster.rank_of(|other| other == worker).is_some());
            if let Ok(task_type) = &task_type {
                roster.ranks(&QueueName::default(), task_type, worker);
            }
        }
    }
    sweep_record(bytes, now, TaskId::from_random(1));
}
