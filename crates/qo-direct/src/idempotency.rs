//! Idempotency keys: one task for all submits that present the same key.
//!
//! The record of the key is created before the task, and names the task's id. Whoever finds a record uses that id, whether or
//! not its task is there yet, so that any number of submits at once, and any number of crashes between the two writes, end with
//! one task. A record whose window is over is replaced by compare-and-swap.

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

/// How often a record is tried to be written that others keep replacing.
const TRIES_MAX: u32 = 16;

/// What is stored under an idempotency key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct KeyRecord {
    task_id: TaskId,
    created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    op_id: OpId,
    /// The operations that wrote the records that this one replaced, newest last.
    #[serde(default)]
    recent_ops: Vec<OpId>,
}

/// How many replaced records are remembered.
const RECENT_OPS_MAX: usize = 16;

impl DirectEngine {
    /// Finds or decides the id of the task that a key stands for.
    pub(super) async fn claim_key(
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
        let key = key_of(&scoped).to_string();
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
            Ok(_) => return Ok(KeyOwner::Us(id)),
            Err(StoreError::AlreadyExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        for _ in 0..TRIES_MAX {
            let found = match self.client().get(&key).await {
                Ok(found) => found,
                // It was purged meanwhile: begin again.
                Err(StoreError::NotFound { .. }) => {
                    match self
                        .client()
                        .create(&key, encode(&key, &record)?, &op)
                        .await
                    {
                        Ok(_) => return Ok(KeyOwner::Us(id)),
                        Err(StoreError::AlreadyExists { .. }) => continue,
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            };
            let holder: KeyRecord =
                serde_json::from_slice(&found.body).map_err(|error| StoreError::Corrupt {
                    key: key.clone(),
                    detail: error.to_string(),
                })?;
            if holder.until.is_none_or(|until| now < until) {
                return match self.read(holder.task_id).await {
                    Ok(stored) => Ok(KeyOwner::Task(Box::new(stored.task))),
                    Err(error) if error.is_not_found() => Ok(KeyOwner::Us(holder.task_id)),
                    Err(error) => Err(error),
                };
            }
            record.recent_ops = holder.recent_ops;
            record.op_id = holder.op_id;
            record.replaced_by(op);
            match self
                .client()
                .swap(&key, encode(&key, &record)?, &found.tag, &op)
                .await
            {
                Ok(_) => return Ok(KeyOwner::Us(id)),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::Contended { id })
    }
}

impl DirectEngine {
    /// Frees a key, if it names this task.
    ///
    /// The record is replaced by one whose window is over, and stays. To delete it would not be safe: a delete has no
    /// condition, so that one that is repeated or arrives late could take the key from the task that has it by then.
    pub(super) async fn free_key(&self, scoped: &ScopedKey, id: TaskId) -> Result<(), EngineError> {
        let key = key_of(scoped).to_string();
        let op = self.runtime().new_op_id();
        for _ in 0..TRIES_MAX {
            let found = match self.client().get(&key).await {
                Ok(found) => found,
                Err(StoreError::NotFound { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let Ok(mut record) = serde_json::from_slice::<KeyRecord>(&found.body) else {
                return Ok(());
            };
            if record.task_id != id || record.until == Some(Timestamp::MIN) {
                return Ok(());
            }
            record.until = Some(Timestamp::MIN);
            record.replaced_by(op);
            match self
                .client()
                .swap(&key, encode(&key, &record)?, &found.tag, &op)
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
    /// Remembers who wrote what is replaced.
    fn replaced_by(&mut self, op: OpId) {
        self.recent_ops.push(std::mem::replace(&mut self.op_id, op));
        let excess = self.recent_ops.len().saturating_sub(RECENT_OPS_MAX);
        self.recent_ops.drain(..excess);
    }
}

/// Where the record of a key is kept.
pub(super) fn key_of(scoped: &ScopedKey) -> Key {
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
