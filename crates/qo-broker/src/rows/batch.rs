//! The rows of a group.
//!
//! A group is one batch, which the database writes atomically: after a crash, either the whole group is stored or nothing of it.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use qo_core::task::{KeyHold, encode_compact};
use qo_core::{Json, QueueState, Task, TaskId, Timestamp};
use qo_engine::EngineError;

use super::counts::{Counts, dropped_at};
use super::keys::{self, CountKey, ENDED, INPUT, LIVE};
use super::port::{Row, RowWrite};
use super::time_index;
use crate::journal::GroupChanges;
use crate::payloads::has_stored_payloads;
use crate::retention::Retention;

/// The largest input that is stored in the record and so written with every change. Up to this size the copies cost less than a
/// second key. A larger input is written once.
const INPUT_IN_RECORD_MAX_BYTES: usize = 2 * 1024;
/// How many sequence numbers are reserved at once, so that they need not be stored with every submit.
const SEQUENCES_RESERVED: u64 = 1_000_000;

/// Builds the batch of a group. Holds what that needs to know about the database.
#[derive(Debug, Default)]
pub(super) struct BatchBuilder {
    /// Finished tasks that were looked up, and the keys under which they are counted.
    pub(super) looked_up: HashMap<TaskId, CountKey>,
    pub(super) counts: Counts,
    pub(super) reserved_sequence: u64,
}

impl BatchBuilder {
    /// Builds the batch of a group.
    pub(super) fn build(
        &mut self,
        state: &QueueState,
        changes: &GroupChanges,
        retention: Retention,
        now: Timestamp,
    ) -> Result<Vec<RowWrite>, EngineError> {
        let mut batch = Vec::new();
        // Removed tasks come first: their ids may have been submitted again within the same group.
        for task in &changes.removed {
            batch.push(RowWrite::Delete(keys::of_task(ENDED, task.id)));
            let before = self.looked_up.remove(&task.id);
            if before.is_none() {
                delete_live(&mut batch, task);
            }
            time_index::delete(&mut batch, task.status, task);
            self.counts.move_task(before, None);
        }
        let mut changed = changes.tasks.clone();
        changed.sort_unstable();
        changed.dedup();
        let replaced: BTreeSet<TaskId> = changes.inputs.iter().copied().collect();
        for id in changed {
            if let Some(task) = state.task(id).filter(|_| replaced.contains(&id)) {
                put_input(&mut batch, task);
            }
            match state.task(id) {
                None => {}
                // A failed task that stops its ordering key is still needed, and so stays among the live ones.
                Some(task) if task.is_settled() => {
                    self.put_ended(&mut batch, state, task, retention, now)?;
                }
                Some(task) => {
                    let is_new = changes.submitted.binary_search(&id).is_ok();
                    self.put_live(&mut batch, task, is_new, now)?;
                }
            }
        }
        for target in &changes.pauses {
            let key = keys::of_pause(target);
            batch.push(match state.pauses().get(target) {
                None => RowWrite::Delete(key),
                Some(pause) => RowWrite::put(key, to_json(pause)?),
            });
        }
        for id in &changes.documents {
            let key = keys::of_document(id);
            batch.push(match state.document(id) {
                None => RowWrite::Delete(key),
                Some(document) => RowWrite::put(key, to_json(document)?),
            });
        }
        for (key, count) in self.counts.take_changed() {
            let value = Bytes::copy_from_slice(&count.to_be_bytes());
            let retention_ms = retention.of_ms(state, &key.queue);
            let until = dropped_at(&key, retention_ms);
            batch.push(put_until(keys::of_count(&key), value, Some(until)));
            batch.push(time_index::put_indexed(&key, count, retention_ms));
        }
        if state.last_sequence() > self.reserved_sequence {
            self.reserved_sequence = state.last_sequence().saturating_add(SEQUENCES_RESERVED);
            let reserved = Bytes::copy_from_slice(&self.reserved_sequence.to_be_bytes());
            batch.push(RowWrite::put(keys::SEQUENCE, reserved));
        }
        Ok(batch)
    }

    fn put_live(
        &mut self,
        batch: &mut Vec<RowWrite>,
        task: &Task,
        is_new: bool,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let record = encode(task, separate_input(task).is_none())?;
        batch.push(RowWrite::put(
            keys::of_sequence(LIVE, task.sequence),
            record,
        ));
        let before = self.looked_up.remove(&task.id);
        if is_new || before.is_some() {
            if let Some(input) = separate_input(task) {
                let text = Bytes::copy_from_slice(input.as_str().as_bytes());
                batch.push(RowWrite::put(keys::of_sequence(INPUT, task.sequence), text));
            }
            // A replayed task whose key is no longer valid must not take it from a newer holder.
            if is_new || task.key_holds(now) {
                put_key(batch, task, None);
            }
        }
        if let Some(before) = before {
            batch.push(RowWrite::Delete(keys::of_task(ENDED, task.id)));
            time_index::delete(batch, before.status, task);
            self.counts.move_task(Some(before), None);
        }
        Ok(())
    }

    fn put_ended(
        &mut self,
        batch: &mut Vec<RowWrite>,
        state: &QueueState,
        task: &Task,
        retention: Retention,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let id = task.id;
        // A task is kept for as long as its idempotency key is valid, even beyond the retention.
        let until = task.idempotency_until.filter(|_| task.key_holds(now));
        let retention_ms = retention.of_ms(state, &task.queue);
        let kept_until = now.plus_millis(retention_ms).max(until.unwrap_or(now));
        let record = encode(task, true)?;
        batch.push(put_until(
            keys::of_task(ENDED, id),
            record,
            Some(kept_until),
        ));
        let before = self.looked_up.remove(&id);
        match &before {
            None => delete_live(batch, task),
            Some(before) if before.status != task.status => {
                time_index::delete(batch, before.status, task);
            }
            Some(_) => {}
        }
        time_index::put(batch, task, Some(kept_until));
        // While a key is valid, no other task can take it. After that a newer task may hold it, which need not be in the state.
        let is_holder = task.key_holds(now)
            && task
                .scoped_key()
                .is_some_and(|key| state.key_holder(&key) == Some(id));
        if is_holder {
            put_key(batch, task, Some(kept_until));
        }
        if has_stored_payloads(task) {
            let sequence = Bytes::copy_from_slice(&task.sequence.to_be_bytes());
            batch.push(RowWrite::put(keys::of_payloads(kept_until, id), sequence));
        }
        self.counts.move_task(before, Some(CountKey::of(task)));
        Ok(())
    }
}

/// Deletes the rows of a live task. They may not exist, if the task was submitted and finished within one group.
fn delete_live(batch: &mut Vec<RowWrite>, task: &Task) {
    batch.push(RowWrite::Delete(keys::of_sequence(LIVE, task.sequence)));
    if separate_input(task).is_some() {
        batch.push(RowWrite::Delete(keys::of_sequence(INPUT, task.sequence)));
    }
}

/// Writes a replaced input, which may have been in its own row before, or may be now.
fn put_input(batch: &mut Vec<RowWrite>, task: &Task) {
    let key = keys::of_sequence(INPUT, task.sequence);
    batch.push(match separate_input(task) {
        Some(input) => RowWrite::put(key, Bytes::copy_from_slice(input.as_str().as_bytes())),
        None => RowWrite::Delete(key),
    });
}

/// The input of a live task, if it has its own key. It changes only if the input is replaced.
fn separate_input(task: &Task) -> Option<&Json> {
    let input = task.inline_input()?;
    (input.size() > INPUT_IN_RECORD_MAX_BYTES).then_some(input)
}

fn encode(task: &Task, with_input: bool) -> Result<Bytes, EngineError> {
    match encode_compact(task, with_input) {
        Ok(record) => Ok(Bytes::from(record)),
        Err(error) => Err(EngineError::Unreadable {
            id: task.id,
            detail: error.to_string(),
        }),
    }
}

fn to_json(value: &impl serde::Serialize) -> Result<Bytes, EngineError> {
    let text = serde_json::to_vec(value);
    text.map(Bytes::from)
        .map_err(|error| EngineError::BadRequest(error.to_string()))
}

/// Stores which task holds an idempotency key.
fn put_key(batch: &mut Vec<RowWrite>, task: &Task, kept_until: Option<Timestamp>) {
    let Some(key) = task.scoped_key() else {
        return;
    };
    // While it holds its key, such a task is in the state. Afterwards nobody may find the key held.
    if task.idempotency_hold != KeyHold::Kept {
        return;
    }
    let value = Bytes::copy_from_slice(task.id.as_uuid().as_bytes());
    let until = task.idempotency_until.or(kept_until);
    batch.push(put_until(keys::of_key(&key), value, until));
}

fn put_until(key: Bytes, value: Bytes, expires_at: Option<Timestamp>) -> RowWrite {
    RowWrite::Put(Row {
        key,
        value,
        expires_at,
    })
}
