//! Idempotency keys: all submits with the same key create one task.
//!
//! The record of the key is created before the task and contains the task's id. A submit that finds a record uses its id, even if
//! that task does not exist yet. Concurrent submits and crashes between the two writes therefore still lead to one task. A record
//! whose window has ended is replaced by compare-and-swap.

use bytes::Bytes;
use qo_core::keys::Key;
use qo_core::task::ScopedKey;
use qo_core::{OpId, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::{IdempotencyRequest, SubmitRequest};
use qo_store::StoreError;
use qo_store::runtime::RuntimeExt;
use serde::{Deserialize, Serialize};

use super::DirectEngine;
use super::submit::KeyOwner;

/// How often a write of a record is tried while other writers keep replacing it.
const TRIES_MAX: u32 = 16;

/// The stored record of an idempotency key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct KeyRecord {
    task_id: TaskId,
    created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    op_id: OpId,
    /// The operations that wrote the replaced records, newest last.
    #[serde(default)]
    recent_ops: Vec<OpId>,
}

/// How many of those operations the record keeps.
const RECENT_OPS_MAX: usize = 16;

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
            op_id: op,
            recent_ops: Vec::new(),
        };
        match self
            .client()
            .create(&key, encode(&key, &record)?, &op)
            .await
        {
            Ok(_) => return Ok(KeyOwner::Caller(id)),
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
                        Ok(_) => return Ok(KeyOwner::Caller(id)),
                        Err(StoreError::AlreadyExists { .. }) => continue,
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            };
            let holder: KeyRecord =
                serde_json::from_slice(&object.body).map_err(|error| StoreError::Corrupt {
                    key: key.clone(),
                    detail: error.to_string(),
                })?;
            if holder.until.is_none_or(|until| now < until) {
                return match self.read(holder.task_id).await {
                    Ok(stored) => Ok(KeyOwner::Existing(Box::new(stored.task))),
                    Err(error) if error.is_not_found() => Ok(KeyOwner::Caller(holder.task_id)),
                    Err(error) => Err(error),
                };
            }
            record.recent_ops = holder.recent_ops;
            record.op_id = holder.op_id;
            record.set_operation(op);
            match self
                .client()
                .swap(&key, encode(&key, &record)?, &object.tag, &op)
                .await
            {
                Ok(_) => return Ok(KeyOwner::Caller(id)),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::Contended { id })
    }
}

impl DirectEngine {
    /// Releases a key, if it belongs to this task.
    ///
    /// The record is kept, with a window that has ended. Deleting it would not be safe: deletes are unconditional, so a repeated or
    /// late one could take the key from the task that holds it by then.
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
            let Ok(mut record) = serde_json::from_slice::<KeyRecord>(&object.body) else {
                return Ok(());
            };
            if record.task_id != id || record.until == Some(Timestamp::MIN) {
                return Ok(());
            }
            record.until = Some(Timestamp::MIN);
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
}

/// The object key of an idempotency key's record.
pub(super) fn record_key(scoped: &ScopedKey) -> Key {
    Key::Idempotency(qo_engine::payload::digest(scoped.canonical().as_bytes()))
}

fn encode(key: &str, record: &KeyRecord) -> Result<Bytes, EngineError> {
    serde_json::to_vec(record)
        .map(Bytes::from)
        .map_err(|error| {
            EngineError::Store(StoreError::Corrupt {
                key: key.to_owned(),
                detail: error.to_string(),
            })
        })
}
