//! The paused queues: one small object, changed by compare-and-swap and read by workers after a signal of its topic.
//!
//! A damaged object must not stop the claims of all queues. A process then goes on with the queues that it last read as paused, or
//! with none, and warns; the next pause or resume replaces the object.

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
use super::change::in_doubt;
use super::signal_record::QUEUES;

/// How often a change of the record is tried.
const TRIES_MAX: u32 = 32;
/// How many operations the record keeps.
const RECENT_OPS_MAX: usize = 32;

/// The stored record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct QueuesRecord {
    revision: u64,
    #[serde(default)]
    op_id: Option<OpId>,
    #[serde(default)]
    recent_ops: Vec<OpId>,
    /// The paused queues, with the time when each was paused.
    #[serde(default)]
    paused: BTreeMap<QueueName, Timestamp>,
}

impl QueuesRecord {
    /// Pauses or resumes a queue.
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
pub(super) struct PausedQueues {
    cache: tokio::sync::Mutex<PausedCache>,
}

#[derive(Default)]
struct PausedCache {
    /// When the record was last read, and at which signal epoch.
    fetched: Option<(Duration, u64)>,
    tag: Option<Tag>,
    paused: BTreeSet<QueueName>,
}

impl DirectEngine {
    /// The paused queues, read again after a signal of their topic and at the fallback interval: a process that resumes a queue may die
    /// before it writes the signal.
    pub(super) async fn paused(&self) -> Result<BTreeSet<QueueName>, EngineError> {
        let epoch = self.shared.signal.epoch_of(QUEUES);
        let mut cache = self.shared.paused_queues.cache.lock().await;
        let at = self.runtime().monotonic();
        let is_fresh = |(fetched_at, fetched_epoch)| {
            fetched_epoch == epoch && at < fetched_at + self.config().fallback_interval
        };
        if cache.fetched.is_some_and(is_fresh) {
            return Ok(cache.paused.clone());
        }
        let result = match &cache.tag {
            Some(tag) => self.client().get_if_changed(QUEUES_KEY, tag).await,
            None => self.client().get(QUEUES_KEY).await.map(Some),
        };
        match result {
            Ok(None) => {}
            Ok(Some(object)) => {
                match decode(&object) {
                    Ok(record) => cache.paused = record.paused.into_keys().collect(),
                    // The tag is kept, so that the warning is not repeated until the object changes.
                    Err(error) => tracing::warn!(
                        %error,
                        paused = ?cache.paused,
                        "cannot tell which queues are paused; pause or resume a queue to repair the record"
                    ),
                }
                cache.tag = Some(object.tag);
            }
            Err(StoreError::NotFound { .. }) => {
                cache.paused.clear();
                cache.tag = None;
            }
            Err(error) => return Err(error.into()),
        }
        cache.fetched = Some((at, epoch));
        Ok(cache.paused.clone())
    }

    /// The paused queues, always read again: for callers that do not wait for signals.
    pub(super) async fn paused_now(&self) -> Result<BTreeSet<QueueName>, EngineError> {
        self.shared.paused_queues.cache.lock().await.fetched = None;
        self.paused().await
    }

    /// Pauses or resumes a queue. Idempotent.
    pub(super) async fn set_paused(
        &self,
        queue: &QueueName,
        paused: bool,
    ) -> Result<(), EngineError> {
        let op = self.runtime().new_op_id();
        for round in 0..TRIES_MAX {
            let (mut record, tag, is_damaged) = match self.client().get(QUEUES_KEY).await {
                Ok(object) => {
                    let decoded = decode(&object);
                    if let Err(error) = &decoded {
                        tracing::warn!(%error, "replacing a damaged record of the paused queues");
                    }
                    let is_damaged = decoded.is_err();
                    (decoded.unwrap_or_default(), Some(object.tag), is_damaged)
                }
                Err(StoreError::NotFound { .. }) => (QueuesRecord::default(), None, false),
                Err(error) if round == 0 => return Err(error.into()),
                // The last write may have been applied: see `change`.
                Err(error) => return Err(in_doubt(error.into())),
            };
            if !is_damaged && record.paused.contains_key(queue) == paused {
                // The process that made the change may have failed to write the signal.
                self.shared.signal.touch(QUEUES, 1);
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
                    self.shared.signal.touch(QUEUES, 1);
                    return Ok(());
                }
                Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(EngineError::BadRequest(format!(
            "the list of paused queues keeps being changed by other writers; try to change {queue} again"
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
