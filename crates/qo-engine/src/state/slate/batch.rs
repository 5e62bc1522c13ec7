//! What a group writes.
//!
//! Everything is one batch, which SlateDB keeps whole: after a crash, all of a group is there or nothing of it.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use qo_core::mutant::{Mutant, planted};
use qo_core::task::Apart;
use qo_core::{QueueState, Task, TaskId, Timestamp};
use slatedb::WriteBatch;
use slatedb::config::{PutOptions, Ttl};

use super::counts::{Counts, dropped_at};
use super::keys::{self, CountKey, ENDED, INPUT, LIVE};
use crate::error::EngineError;
use crate::state::journal::GroupChanges;
use crate::state::payloads::has_stored_payloads;

/// How many places in the order of submits are reserved at once, so that they need not be stored with every submit.
const SEQUENCES_RESERVED: u64 = 1_000_000;

/// What is in the database, as far as a group must know it.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The tasks that are stored as live.
    pub(super) live: HashSet<TaskId>,
    /// The tasks that were fetched from among those that have ended, and where they are counted.
    pub(super) fetched: HashMap<TaskId, CountKey>,
    pub(super) counts: Counts,
    pub(super) reserved_sequence: u64,
}

impl Index {
    /// The batch of a group.
    pub(super) fn batch(
        &mut self,
        state: &mut QueueState,
        changes: &GroupChanges,
        retention_ms: u64,
        now: Timestamp,
    ) -> Result<WriteBatch, EngineError> {
        let mut batch = WriteBatch::new();
        let changed: BTreeSet<TaskId> = changes.tasks.iter().copied().collect();
        for id in changed {
            match state.task(id).map(|task| task.status) {
                None => {}
                Some(status) if status.is_terminal() => {
                    self.put_ended(&mut batch, state, id, retention_ms, now)?;
                }
                Some(_) => self.put_live(&mut batch, state, id)?,
            }
        }
        for task in &changes.removed {
            // Unless it was submitted again within the same group.
            if state.task(task.id).is_none() {
                batch.delete(keys::of_task(ENDED, task.id));
                if self.live.remove(&task.id) {
                    batch.delete(keys::of_task(LIVE, task.id));
                    batch.delete(keys::of_task(INPUT, task.id));
                }
            }
            let before = self.fetched.remove(&task.id);
            self.counts.note(before, None);
        }
        for queue in &changes.queues {
            if state.is_paused(queue) {
                batch.put_bytes(keys::of_queue(queue), Bytes::new());
            } else {
                batch.delete(keys::of_queue(queue));
            }
        }
        for (key, count) in self.counts.take_changed() {
            let options = expires(dropped_at(&key, retention_ms));
            let value = Bytes::copy_from_slice(&count.to_be_bytes());
            batch.put_bytes_with_options(keys::of_count(&key), value, &options);
        }
        if state.last_sequence() > self.reserved_sequence {
            self.reserved_sequence = state.last_sequence().saturating_add(SEQUENCES_RESERVED);
            batch.put(keys::SEQUENCE, self.reserved_sequence.to_be_bytes());
        }
        Ok(batch)
    }

    fn put_live(
        &mut self,
        batch: &mut WriteBatch,
        state: &mut QueueState,
        id: TaskId,
    ) -> Result<(), EngineError> {
        let encoded = state.encode_apart(id);
        let Some(Apart { record, input }) = encoded.map_err(|error| unreadable(id, &error))? else {
            return Ok(());
        };
        batch.put_bytes(keys::of_task(LIVE, id), Bytes::from(record));
        if self.live.insert(id) {
            if let Some(input) = input {
                let text = Bytes::copy_from_slice(input.as_str().as_bytes());
                batch.put_bytes(keys::of_task(INPUT, id), text);
            }
            let before = self.fetched.remove(&id);
            if before.is_some() {
                batch.delete(keys::of_task(ENDED, id));
            }
            self.counts.note(before, None);
            if let Some(task) = state.task(id) {
                put_key(batch, task, None);
            }
        }
        Ok(())
    }

    fn put_ended(
        &mut self,
        batch: &mut WriteBatch,
        state: &QueueState,
        id: TaskId,
        retention_ms: u64,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let Some(task) = state.task(id) else {
            return Ok(());
        };
        let record = qo_core::task::encode(task).map_err(|error| unreadable(id, &error))?;
        // A key that holds for longer than tasks are kept keeps its task for as long.
        let until = task.idempotency_until.filter(|_| task.key_holds(now));
        let kept_until = now.plus_millis(retention_ms).max(until.unwrap_or(now));
        let key = keys::of_task(ENDED, id);
        batch.put_bytes_with_options(key, Bytes::from(record), &expires(kept_until));
        if self.live.remove(&id) && !planted(Mutant::LiveRecordLeft) {
            batch.delete(keys::of_task(LIVE, id));
            batch.delete(keys::of_task(INPUT, id));
        }
        let is_holder = task
            .scoped_key()
            .is_some_and(|key| state.key_holder(&key) == Some(id));
        if is_holder {
            put_key(batch, task, Some(kept_until));
        }
        if has_stored_payloads(task) {
            batch.put_bytes(keys::of_payloads(kept_until, id), Bytes::new());
        }
        let before = self.fetched.remove(&id);
        self.counts.note(before, Some(CountKey::of(task)));
        Ok(())
    }
}

/// Stores which task an idempotency key stands for.
fn put_key(batch: &mut WriteBatch, task: &Task, kept_until: Option<Timestamp>) {
    let Some(key) = task.scoped_key() else {
        return;
    };
    let options = match task.idempotency_until.or(kept_until) {
        Some(until) => expires(until),
        None => PutOptions { ttl: Ttl::NoExpiry },
    };
    let value = Bytes::copy_from_slice(task.id.as_uuid().as_bytes());
    batch.put_bytes_with_options(keys::of_key(&key), value, &options);
}

fn expires(at: Timestamp) -> PutOptions {
    PutOptions {
        ttl: Ttl::ExpireAtMillis(at.as_millis()),
    }
}

fn unreadable(id: TaskId, error: &qo_core::task::DecodeError) -> EngineError {
    EngineError::Unreadable {
        id,
        detail: error.to_string(),
    }
}
