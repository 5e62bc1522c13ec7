//! The paused queues and types: one small object, changed by compare-and-swap and read by workers after a signal of its topic.
//!
//! A damaged object must not stop the claims of all queues. A process then continues with the pauses that it last read, or with none, and logs a
//! warning; the next pause or resume replaces the object.
//!
//! `paused` has had the same form since the first version: queues, each with a time. Types and notes are fields of their own, so that a
//! version that does not know them still reads which queues are paused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use qo_core::extra::Extra;
use qo_core::keys::QUEUES_KEY;
use qo_core::{Actor, OpId, Pause, PauseNote, PauseTarget, Pauses, QueueName, TaskType, Timestamp};
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::client::{Object, Tag};
use qo_store::runtime::RuntimeExt;
use serde::{Deserialize, Serialize};

use super::DirectEngine;
use super::change::in_doubt;
use super::record_head::RecordHead;
use super::signal_record::QUEUES;

/// How often a change of the record is tried.
const TRIES_MAX: u32 = 32;

/// The stored record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct QueuesRecord {
    #[serde(flatten)]
    head: RecordHead,
    /// The paused queues, with the time when each was paused.
    #[serde(default)]
    paused: BTreeMap<QueueName, Timestamp>,
    /// The paused types, with the time when each was paused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    paused_types: BTreeMap<TaskType, Timestamp>,
    /// Who paused a queue, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    queue_notes: BTreeMap<QueueName, StoredNote>,
    /// Who paused a type, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    type_notes: BTreeMap<TaskType, StoredNote>,
    /// Fields of later versions.
    #[serde(flatten)]
    extra: Extra,
}

/// Who paused, and why.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct StoredNote {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<Actor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The pauses of all names, each with its note.
fn join<N: Ord + Clone>(
    paused: &BTreeMap<N, Timestamp>,
    notes: &BTreeMap<N, StoredNote>,
) -> BTreeMap<N, Pause> {
    let one = |(name, since): (&N, &Timestamp)| {
        let StoredNote { by, reason } = notes.get(name).cloned().unwrap_or_default();
        let since = Some(*since);
        (name.clone(), Pause { since, by, reason })
    };
    paused.iter().map(one).collect()
}

/// What [`join`] has joined.
fn split<N: Ord + Clone>(
    pauses: BTreeMap<N, Pause>,
    now: Timestamp,
) -> (BTreeMap<N, Timestamp>, BTreeMap<N, StoredNote>) {
    let (mut paused, mut notes) = (BTreeMap::new(), BTreeMap::new());
    for (name, Pause { since, by, reason }) in pauses {
        if by.is_some() || reason.is_some() {
            notes.insert(name.clone(), StoredNote { by, reason });
        }
        paused.insert(name, since.unwrap_or(now));
    }
    (paused, notes)
}

impl QueuesRecord {
    /// What is paused.
    pub(super) fn pauses(&self) -> Pauses {
        Pauses {
            queues: join(&self.paused, &self.queue_notes),
            types: join(&self.paused_types, &self.type_notes),
        }
    }

    /// Stores what is paused.
    pub(super) fn set(&mut self, pauses: Pauses, op: OpId, now: Timestamp) {
        (self.paused, self.queue_notes) = split(pauses.queues, now);
        (self.paused_types, self.type_notes) = split(pauses.types, now);
        self.head.set_operation(op);
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
    pauses: Arc<Pauses>,
}

impl DirectEngine {
    /// The pauses, read again after a signal of their topic and at the fallback interval: a process that resumes a queue may die
    /// before it writes the signal.
    pub(super) async fn known_pauses(&self) -> Result<Arc<Pauses>, EngineError> {
        let epoch = self.shared.signal.epoch_of(QUEUES);
        let mut cache = self.shared.paused_queues.cache.lock().await;
        let at = self.runtime().monotonic();
        let is_fresh = |(fetched_at, fetched_epoch)| {
            fetched_epoch == epoch && at < fetched_at + self.config().fallback_interval
        };
        if cache.fetched.is_some_and(is_fresh) {
            return Ok(Arc::clone(&cache.pauses));
        }
        let result = match &cache.tag {
            Some(tag) => self.client().get_if_changed(QUEUES_KEY, tag).await,
            None => self.client().get(QUEUES_KEY).await.map(Some),
        };
        match result {
            Ok(None) => {}
            Ok(Some(object)) => {
                match decode(&object) {
                    Ok(record) => cache.pauses = Arc::new(record.pauses()),
                    // The tag is kept, so that the warning is not repeated until the object changes.
                    Err(error) => tracing::warn!(
                        %error,
                        pauses = ?cache.pauses,
                        "cannot tell which queues and types are paused; pause or resume one to repair the record"
                    ),
                }
                cache.tag = Some(object.tag);
            }
            Err(StoreError::NotFound { .. }) => {
                cache.pauses = Arc::default();
                cache.tag = None;
            }
            Err(error) => return Err(error.into()),
        }
        cache.fetched = Some((at, epoch));
        Ok(Arc::clone(&cache.pauses))
    }

    /// The pauses, always read again: for callers that do not wait for signals.
    pub(super) async fn pauses_now(&self) -> Result<Arc<Pauses>, EngineError> {
        self.shared.paused_queues.cache.lock().await.fetched = None;
        self.known_pauses().await
    }

    /// Pauses or resumes a queue or a type. Idempotent.
    pub(super) async fn change_pause(
        &self,
        target: &PauseTarget,
        note: Option<PauseNote>,
    ) -> Result<(), EngineError> {
        let op = self.runtime().new_op_id();
        for round in 0..TRIES_MAX {
            let (mut record, tag, is_damaged) = match self.client().get(QUEUES_KEY).await {
                Ok(object) => {
                    let decoded = decode(&object);
                    if let Err(error) = &decoded {
                        tracing::warn!(%error, "replacing a damaged record of the pauses");
                    }
                    let is_damaged = decoded.is_err();
                    (decoded.unwrap_or_default(), Some(object.tag), is_damaged)
                }
                Err(StoreError::NotFound { .. }) => (QueuesRecord::default(), None, false),
                Err(error) if round == 0 => return Err(error.into()),
                // The last write may have been applied: see `change`.
                Err(error) => return Err(in_doubt(error.into())),
            };
            let now = self.client().now();
            let mut pauses = record.pauses();
            if !pauses.set(target, note.clone(), now) && !is_damaged {
                // The process that made the change may have failed to write the signal.
                self.shared.signal.touch(QUEUES, 1);
                return Ok(());
            }
            record.set(pauses, op, now);
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
            "the list of pauses keeps being changed by other writers; try to change {target} again"
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
