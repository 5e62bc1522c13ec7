//! Idempotency keys: all submits with the same key create one task.
//!
//! The record of the key is created before the task and contains the task's id. A submit that finds a record uses its id, even if
//! that task does not exist yet. Concurrent submits and crashes between the two writes therefore still lead to one task. A record
//! whose window has ended is replaced by compare-and-swap. The task takes the end of its window from the record, so a task that is
//! created late holds its key no longer than the record says.
//!
//! # Keys that are held for part of a task's life
//!
//! A task may hold its key only until it is started or finished ([`KeyHold`]). The record does not change then. A submit that finds the
//! record reads the task that it names, as it would anyway, and the task shows whether it still holds the key.
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | read the record and its task | nothing |
//! | 2a | the task does not hold the key: swap the record, which names the id of a new task. Of several submits one wins; the others begin again and find the winner's id | a key whose task does not exist, as above: the next submit creates it |
//! | 2b | the task holds the key and is to be replaced or postponed: swap the task, if it has not changed since step 1. If it has, begin again: it may have started | the change is made. If its due time is another, its index entry is stale; whoever reads the entry writes the right one ([`super::change`]) |
//! | 3 | write the index entry of a postponed task, delete the old one | nothing |
//!
//! A task whose record is unknown to an older version (`min_reader`) makes that version's submit with the key fail, and changes nothing.
//!
//! # Submits that race a purge
//!
//! A purge releases the key before it deletes the task, and adds the task to `purged` in the key's record. A submit that has read the
//! record before the release finds no task after the deletion, and creates the purged task again. It must not be acknowledged: the
//! next submit finds a free key and creates a second task. So whoever creates the first revision of a task with a key, or finds
//! it, reads the record again before it writes the ready entry or acknowledges the submit:
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | read or write the key's record: the task's id | see [`super::submit`] |
//! | 2 | create the task | a pending task without a ready entry; the sweeper confirms the key before it writes the entry, a scan before it claims the task |
//! | 3 | read the record again. If the task was purged: delete it, and start over | nothing |
//! | 4 | write the ready entry, and acknowledge | nothing |
//!
//! If the task was purged before step 2, step 3 sees that, because the release comes before the deletion. A purge after step 2 finds a
//! task that was acknowledged or will be, and is an ordinary purge. A copy of the create that arrives late is found by the sweeper.

use bytes::Bytes;
use qo_core::extra::Extra;
use qo_core::keys::Key;
use qo_core::task::{KeyHold, ScopedKey};
use qo_core::{OpId, Status, Task, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::{IdempotencyRequest, SubmitRequest};
use qo_store::StoreError;
use qo_store::runtime::RuntimeExt;
use serde::{Deserialize, Serialize};

use super::DirectEngine;
use super::submit::{HeldKey, KeyOwner};

/// How often a write of a record is tried while other writers keep replacing it.
const TRIES_MAX: u32 = 16;

/// The stored record of an idempotency key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct KeyRecord {
    task_id: TaskId,
    created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    /// How long the task holds the key, for a submit that has to create the task.
    #[serde(default, skip_serializing_if = "is_kept")]
    hold: KeyHold,
    op_id: OpId,
    /// The operations that wrote the replaced records, newest last.
    #[serde(default)]
    recent_ops: Vec<OpId>,
    /// The tasks of this key that were purged, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    purged: Vec<TaskId>,
    /// Fields of later versions.
    #[serde(flatten)]
    extra: Extra,
}

/// How many of those operations the record keeps.
const RECENT_OPS_MAX: usize = 16;
/// How many of the purged tasks the record keeps.
const PURGED_MAX: usize = 16;

impl DirectEngine {
    /// Acquires a key: finds its task, or decides the id of the task to create.
    pub(super) async fn acquire_key(
        &self,
        request: &SubmitRequest,
        idempotency: &IdempotencyRequest,
        id: TaskId,
    ) -> Result<KeyOwner, EngineError> {
        let scoped = ScopedKey::new(
            idempotency.scope,
            &request.queue,
            &request.task_type,
            &idempotency.key,
        );
        let key = record_key(&scoped).to_string();
        let op = self.runtime().new_op_id();
        let now = self.client().now();
        let mut record = KeyRecord {
            task_id: id,
            created_at: now,
            until: idempotency.window_ms.map(|millis| now.plus_millis(millis)),
            hold: request.uniqueness.hold,
            op_id: op,
            recent_ops: Vec::new(),
            purged: Vec::new(),
            extra: Extra::NONE,
        };
        let (until, hold) = (record.until, record.hold);
        let owned = || {
            KeyOwner::Caller(HeldKey {
                id,
                until,
                hold,
                submitted_at: now,
            })
        };
        match self
            .client()
            .create(&key, encode(&key, &record)?, &op)
            .await
        {
            Ok(_) => return Ok(owned()),
            Err(StoreError::AlreadyExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        for _ in 0..TRIES_MAX {
            let object = match self.client().get(&key).await {
                Ok(object) => object,
                // The record was deleted in the meantime: create it again.
                Err(StoreError::NotFound { .. }) => {
                    match self
                        .client()
                        .create(&key, encode(&key, &record)?, &op)
                        .await
                    {
                        Ok(_) => return Ok(owned()),
                        Err(StoreError::AlreadyExists { .. }) => continue,
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            };
            let holder = decode(&key, &object.body)?;
            // A repeated submit of an id finds its task, whoever holds the key by now.
            if let Some(id) = request.id.filter(|id| *id != holder.task_id) {
                match self.read(id).await {
                    Ok(stored) => return Ok(KeyOwner::Existing(Box::new(stored))),
                    Err(error) if error.is_not_found() => {}
                    Err(error) => return Err(error),
                }
            }
            if holder.until.is_none_or(|until| now < until) {
                match self.read(holder.task_id).await {
                    Ok(stored)
                        if request.id == Some(stored.task.id) || stored.task.key_holds(now) =>
                    {
                        return Ok(KeyOwner::Existing(Box::new(stored)));
                    }
                    // It was started or has finished, and no longer holds the key.
                    Ok(_) => {}
                    Err(error) if error.is_not_found() => {
                        return Ok(KeyOwner::Caller(HeldKey {
                            id: holder.task_id,
                            until: holder.until,
                            hold: holder.hold,
                            submitted_at: now,
                        }));
                    }
                    Err(error) => return Err(error),
                }
            }
            record.recent_ops = holder.recent_ops;
            record.op_id = holder.op_id;
            record.set_operation(op);
            // A caller may submit the id of a purged task again.
            record.purged = holder.purged;
            record.purged.retain(|purged| *purged != id);
            record.extra = holder.extra;
            match self
                .client()
                .swap(&key, encode(&key, &record)?, &object.tag, &op)
                .await
            {
                Ok(_) => return Ok(owned()),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::Contended { id })
    }

    /// The task that holds a key, if there is one.
    pub(super) async fn key_holder(&self, scoped: &ScopedKey) -> Result<Option<Task>, EngineError> {
        let key = record_key(scoped).to_string();
        let object = match self.client().get(&key).await {
            Ok(object) => object,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let record = decode(&key, &object.body)?;
        let now = self.client().now();
        if record.until.is_some_and(|until| until <= now) {
            return Ok(None);
        }
        match self.read(record.task_id).await {
            Ok(stored) => Ok(Some(stored.task).filter(|task| task.key_holds(now))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a task with a key that nobody has claimed yet was purged before it was created: see the module's documentation.
    pub(super) async fn is_revived(&self, task: &Task) -> Result<bool, EngineError> {
        let Some(scoped) = task.scoped_key() else {
            return Ok(false);
        };
        if task.status != Status::Pending || task.attempt > 0 {
            return Ok(false);
        }
        let key = record_key(&scoped).to_string();
        match self.client().get(&key).await {
            // A record that cannot be parsed proves nothing.
            Ok(object) => Ok(decode(&key, &object.body).is_ok_and(|record| record.lists(task.id))),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl DirectEngine {
    /// Releases a key, if it belongs to this task, and notes that the task is purged.
    ///
    /// The record is kept, with a window that has ended. Deleting it would not be safe: deletes are unconditional, so a repeated or
    /// late one could take the key from the task that holds it by then.
    ///
    /// A record that cannot be parsed may be of a later version, and may name this task. Then the purge fails, and the task stays archived:
    /// without the note, a submit that races the purge could bring the task back.
    pub(super) async fn release_key(
        &self,
        scoped: &ScopedKey,
        id: TaskId,
    ) -> Result<(), EngineError> {
        let key = record_key(scoped).to_string();
        let op = self.runtime().new_op_id();
        for _ in 0..TRIES_MAX {
            let object = match self.client().get(&key).await {
                Ok(object) => object,
                Err(StoreError::NotFound { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let mut record = decode(&key, &object.body)?;
            let is_released = record.task_id != id || record.until == Some(Timestamp::MIN);
            if is_released && record.purged.contains(&id) {
                return Ok(());
            }
            if !is_released {
                record.until = Some(Timestamp::MIN);
            }
            record.add_purged(id);
            record.set_operation(op);
            match self
                .client()
                .swap(&key, encode(&key, &record)?, &object.tag, &op)
                .await
            {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::Contended { id })
    }
}

impl KeyRecord {
    /// Sets the operation that writes this record, and keeps the previous one in `recent_ops`.
    fn set_operation(&mut self, op: OpId) {
        self.recent_ops.push(std::mem::replace(&mut self.op_id, op));
        let excess = self.recent_ops.len().saturating_sub(RECENT_OPS_MAX);
        self.recent_ops.drain(..excess);
    }

    fn add_purged(&mut self, id: TaskId) {
        self.purged.retain(|purged| *purged != id);
        self.purged.push(id);
        let excess = self.purged.len().saturating_sub(PURGED_MAX);
        self.purged.drain(..excess);
    }

    /// Whether a task of this key was purged. Records of earlier versions do not list purged tasks, but the last one is the holder of
    /// a released key.
    fn lists(&self, id: TaskId) -> bool {
        self.purged.contains(&id) || (self.task_id == id && self.until == Some(Timestamp::MIN))
    }
}

/// The object key of an idempotency key's record.
pub(super) fn record_key(scoped: &ScopedKey) -> Key {
    Key::Idempotency(qo_engine::payload::digest(scoped.canonical().as_bytes()))
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_kept(hold: &KeyHold) -> bool {
    *hold == KeyHold::Kept
}

fn encode(key: &str, record: &KeyRecord) -> Result<Bytes, EngineError> {
    serde_json::to_vec(record)
        .map(Bytes::from)
        .map_err(|error| corrupt(key, &error).into())
}

fn decode(key: &str, body: &[u8]) -> Result<KeyRecord, EngineError> {
    serde_json::from_slice(body).map_err(|error| corrupt(key, &error).into())
}

fn corrupt(key: &str, error: &serde_json::Error) -> StoreError {
    StoreError::Corrupt {
        key: key.to_owned(),
        detail: error.to_string(),
    }
}
