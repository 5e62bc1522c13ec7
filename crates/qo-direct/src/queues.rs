//! Which queues are paused: one small object, changed by compare-and-swap and read by workers after each signal.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use qo_core::keys::QUEUES_KEY;
use qo_core::{OpId, QueueName, Timestamp};
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::client::{Object, Tag};
use qo_store::runtime::RuntimeExt;
use serde::{Deserialize, Serialize};

use super::DirectEngine;

/// How often the record is tried to be changed.
const TRIES_MAX: u32 = 32;
/// How many operations the record remembers.
const RECENT_OPS_MAX: usize = 32;

/// What is stored of the queues.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct QueuesRecord {
    revision: u64,
    #[serde(default)]
    op_id: Option<OpId>,
    #[serde(default)]
    recent_ops: Vec<OpId>,
    /// The paused queues, and since when they are.
    #[serde(default)]
    paused: BTreeMap<QueueName, Timestamp>,
}

impl QueuesRecord {
    /// Pauses a queue or lets it go on.
    pub(super) fn set(&mut self, queue: &QueueName, paused: bool, op: OpId, now: Timestamp) {
        if paused {
            self.paused.insert(queue.clone(), now);
        } else {
            self.paused.remove(queue);
        }
        self.revision = self.revision.saturating_add(1);
        self.recent_ops.extend(self.op_id.replace(op));
        let excess = self.recent_ops.len().saturating_sub(RECENT_OPS_MAX);
        self.recent_ops.drain(..excess);
    }
}

#[derive(Default)]
pub(super) struct Queues {
    known: tokio::sync::Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// When the record was last asked for, and after which signal.
    asked: Option<(Duration, u64)>,
    tag: Option<Tag>,
    paused: BTreeSet<QueueName>,
}

impl DirectEngine {
    /// The paused queues, as of the last signal, or of the fallback interval: whoever resumes a queue may die before the
    /// signal is given.
    pub(super) async fn paused(&self) -> Result<BTreeSet<QueueName>, EngineError> {
        let epoch = self.shared.signal.epoch();
        let mut known = self.shared.queues.known.lock().await;
        let at = self.runtime().monotonic();
        let is_fresh = |(asked_at, asked_epoch)| {
            asked_epoch == epoch && at < asked_at + self.config().fallback_interval
        };
        if known.asked.is_some_and(is_fresh) {
            return Ok(known.paused.clone());
        }
        let found = match &known.tag {
            Some(tag) => self.client().get_if_changed(QUEUES_KEY, tag).await,
            None => self.client().get(QUEUES_KEY).await.map(Some),
        };
        match found {
            Ok(None) => {}
            Ok(Some(object)) => {
                known.paused = decode(&object)?.paused.into_keys().collect();
                known.tag = Some(object.tag);
            }
            Err(StoreError::NotFound { .. }) => {
                known.paused.clear();
                known.tag = None;
            }
            Err(error) => return Err(error.into()),
        }
        known.asked = Some((at, epoch));
        Ok(known.paused.clone())
    }

    /// The paused queues, whatever was signalled: who asks has not come to wait for signals.
    pub(super) async fn paused_now(&self) -> Result<BTreeSet<QueueName>, EngineError> {
        self.shared.queues.known.lock().await.asked = None;
        self.paused().await
    }

    /// Pauses a queue or lets it go on. Doing it twice is doing it once.
    pub(super) async fn set_paused(
        &self,
        queue: &QueueName,
        paused: bool,
    ) -> Result<(), EngineError> {
        let op = self.runtime().new_op_id();
        for _ in 0..TRIES_MAX {
            let (mut record, tag) = match self.client().get(QUEUES_KEY).await {
                Ok(object) => (decode(&object)?, Some(object.tag)),
                Err(StoreError::NotFound { .. }) => (QueuesRecord::default(), None),
                Err(error) => return Err(error.into()),
            };
            if record.paused.contains_key(queue) == paused {
                // Whoever has done it may have failed to tell.
                self.shared.signal.touch().await;
                return Ok(());
            }
            record.set(queue, paused, op, self.client().now());
            let body = Bytes::from(serde_json::to_vec(&record).map_err(|error| corrupt(&error))?);
            let written = match &tag {
                Some(tag) => self.client().swap(QUEUES_KEY, body, tag, &op).await,
                None => self.client().create(QUEUES_KEY, body, &op).await,
            };
            match written {
                Ok(_) => {
                    self.shared.signal.touch().await;
                    return Ok(());
                }
                Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::BadRequest(format!(
            "the list of paused queues is being changed by others without a pause; try to change {queue} again"
        )))
    }
}

fn decode(object: &Object) -> Result<QueuesRecord, EngineError> {
    serde_json::from_slice(&object.body).map_err(|error| corrupt(&error))
}

fn corrupt(error: &serde_json::Error) -> EngineError {
    EngineError::Store(StoreError::Corrupt {
        key: QUEUES_KEY.to_owned(),
        detail: error.to_string(),
    })
}
