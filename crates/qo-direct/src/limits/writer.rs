//! Changes of a limit's record. Concurrent changes of one process share a write.
//!
//! The caller that gets the lock takes all waiting changes and makes them in one compare-and-swap. If that caller is cancelled, the others get
//! an error: their claims do not start, and slots that were not returned are found through their tasks.
//!
//! A process that has just written the record knows its tag, so it needs one request for its next change where another process needs two. It
//! would win every race. So it yields: while other processes use the record, it waits for the time of two requests after each write. The
//! changes that arrive meanwhile share the next write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use qo_core::keys::Key;
use qo_core::{Action, Command, DocumentName, Limit, OpId, Timestamp};
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::client::{Object, Tag};
use qo_store::runtime::RuntimeExt;
use tokio::sync::oneshot;

use super::super::change::{encode_task, in_doubt};
use super::super::{DirectEngine, StoredTask, lock};
use super::record::{Holder, HolderState, LimitRecord, SlotChange, SlotOutcome};

/// How often a change is tried while other processes keep changing the record.
const TRIES_MAX: u32 = 32;
/// How many holders one pass checks.
const CHECKS_MAX: usize = 16;
/// How long a holder stays after its lease has ended: the lease reaper ends its attempt.
const ENDED_GRACE_MS: u64 = 5_000;

/// How long a process yields after it has met another one.
const YIELD_FOR: Duration = Duration::from_secs(5);
/// The longest pause after a write.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The writers of all limits that this process knows.
#[derive(Default)]
pub(super) struct LimitWriters(Mutex<BTreeMap<DocumentName, Arc<LimitWriter>>>);

impl LimitWriters {
    fn of(&self, name: &DocumentName) -> Arc<LimitWriter> {
        let mut writers = lock(&self.0);
        Arc::clone(writers.entry(name.clone()).or_default())
    }

    /// Forgets the limits that no longer exist.
    pub(super) fn retain(&self, exists: impl Fn(&DocumentName) -> bool) {
        lock(&self.0).retain(|name, _| exists(name));
    }
}

#[derive(Default)]
struct LimitWriter {
    waiting: Mutex<Vec<Waiting>>,
    state: tokio::sync::Mutex<WriterState>,
}

/// What the caller that writes needs to know. Times are monotonic.
#[derive(Default)]
struct WriterState {
    /// The record as it was last read or written.
    stored: Option<StoredLimit>,
    /// When another process changed the record first.
    met_others_at: Option<Duration>,
    /// When this process may write again.
    pause_until: Duration,
}

/// A change that waits for the next write.
struct Waiting {
    change: SlotChange,
    response: oneshot::Sender<Result<SlotOutcome, EngineError>>,
}

/// A record and the tag of its object; no tag if there is no object yet.
struct StoredLimit {
    record: LimitRecord,
    tag: Option<Tag>,
}

impl DirectEngine {
    /// Makes a change of a limit's record.
    pub(super) async fn change_slots(
        &self,
        name: &DocumentName,
        rule: &Limit,
        change: SlotChange,
    ) -> Result<SlotOutcome, EngineError> {
        let writer = self.shared.limits.writers.of(name);
        let (response, mut outcome) = oneshot::channel();
        lock(&writer.waiting).push(Waiting { change, response });
        // A caller with an outcome returns: otherwise it would make the later changes of others, one write after the other.
        let mut state = tokio::select! {
            biased;
            outcome = &mut outcome => return outcome.unwrap_or_else(|_| Err(lost(name))),
            state = writer.state.lock() => state,
        };
        let pause = (state.pause_until).saturating_sub(self.runtime().monotonic());
        if !pause.is_zero() {
            self.runtime().sleep(pause).await;
        }
        let waiting = std::mem::take(&mut *lock(&writer.waiting));
        let changes: Vec<_> = waiting.iter().map(|one| one.change).collect();
        let outcomes = self.make_changes(name, rule, &mut state, &changes).await;
        for (number, one) in waiting.into_iter().enumerate() {
            let result = match &outcomes {
                Ok(outcomes) => outcomes.get(number).cloned().ok_or_else(|| lost(name)),
                Err(error) => Err(error.clone()),
            };
            // A caller that has given up needs no response.
            let _ = one.response.send(result);
        }
        // Not before the responses: the next one would not know yet that its change is made.
        drop(state);
        outcome.await.unwrap_or_else(|_| Err(lost(name)))
    }

    async fn make_changes(
        &self,
        name: &DocumentName,
        rule: &Limit,
        state: &mut WriterState,
        changes: &[SlotChange],
    ) -> Result<Vec<SlotOutcome>, EngineError> {
        let op = self.runtime().new_op_id();
        let mut round = 0;
        while round < TRIES_MAX {
            let is_cached = state.stored.is_some();
            let stored = match state.stored.take() {
                Some(stored) => stored,
                None => self.read_limit(name).await.map_err(in_doubt)?,
            };
            let mut record = stored.record.clone();
            let mut outcomes = self.try_changes(&mut record, rule, changes);
            let is_full = |outcomes: &[SlotOutcome]| {
                (outcomes.iter()).any(|outcome| matches!(outcome, SlotOutcome::Full(_)))
            };
            if is_full(&outcomes) {
                if is_cached {
                    // Others may have returned slots since.
                    continue;
                }
                if self.drop_gone(&mut record).await {
                    outcomes = self.try_changes(&mut record, rule, changes);
                }
            }
            if record == stored.record {
                state.stored = Some(stored);
                return Ok(outcomes);
            }
            let started = self.runtime().monotonic();
            let written = self.write_limit(name, &stored, &mut record, op).await?;
            let now = self.runtime().monotonic();
            if let Some(tag) = written {
                state.stored = tag.map(|tag| StoredLimit {
                    record,
                    tag: Some(tag),
                });
                if state.met_others_at.is_some_and(|at| now < at + YIELD_FOR) {
                    state.pause_until = now + (2 * now.saturating_sub(started)).min(PAUSE_MAX);
                }
                return Ok(outcomes);
            }
            state.met_others_at = Some(now);
            let pause_ms = self.runtime().random_below(u64::from(round) * 10);
            self.runtime().sleep(Duration::from_millis(pause_ms)).await;
            round += 1;
        }
        Err(contended(name))
    }

    fn try_changes(
        &self,
        record: &mut LimitRecord,
        rule: &Limit,
        changes: &[SlotChange],
    ) -> Vec<SlotOutcome> {
        let now = self.client().now();
        let returns = |change: &SlotChange| {
            matches!(change, SlotChange::Return(_) | SlotChange::TakeBack(..))
        };
        // Returned slots make room for the others.
        for change in changes.iter().filter(|change| returns(change)) {
            record.change(*change, rule, now);
        }
        let changes = changes.iter();
        changes
            .map(|change| record.change(*change, rule, now))
            .collect()
    }

    /// Reads the tasks of the holders whose time has passed, drops those that are gone, and gives the others more time. Returns whether
    /// any was dropped.
    async fn drop_gone(&self, record: &mut LimitRecord) -> bool {
        let now = self.conservative_now();
        let mut due: Vec<Holder> = (record.holders.iter().copied())
            .filter(|holder| holder.until < now)
            .collect();
        due.sort_by_key(|holder| holder.until);
        due.truncate(CHECKS_MAX);
        let checks = due.iter().map(|holder| self.check_holder(holder));
        let mut any_gone = false;
        for (holder, until) in due.iter().zip(join_all(checks).await) {
            if let Some(until) = until {
                let mut holders = record.holders.iter_mut();
                if let Some(known) = holders.find(|known| known.lease == holder.lease) {
                    known.until = until;
                }
            } else {
                any_gone = true;
                record.holders.retain(|known| known.lease != holder.lease);
            }
        }
        any_gone
    }

    /// When to check a holder again; `None` if its task proves that it is gone.
    async fn check_holder(&self, holder: &Holder) -> Option<Timestamp> {
        let later = self.client().now().plus_millis(ENDED_GRACE_MS);
        let stored = match self.read(holder.task).await {
            Ok(stored) => stored,
            Err(error) if error.is_not_found() => return None,
            // A failed read says nothing about the task.
            Err(_) => return Some(later),
        };
        match holder.compare(&stored.task) {
            HolderState::Running => stored.task.lease_expires_at.max(Some(later)),
            HolderState::Gone => None,
            HolderState::InFlight => {
                // After this change the claim cannot succeed any more. If it has just succeeded, this change does not.
                match self.fence(stored).await {
                    Ok(()) => None,
                    Err(_) => Some(later),
                }
            }
        }
    }

    /// Gives a pending task a new revision. Its index entries stay valid.
    async fn fence(&self, stored: StoredTask) -> Result<(), EngineError> {
        let StoredTask { mut task, tag } = stored;
        let op = self.runtime().new_op_id();
        let action = Action::Fence;
        task.apply(Command { op, action }, self.client().now())?;
        let key = Key::Task(task.id).to_string();
        let body = encode_task(&task)?;
        self.client().swap(&key, body, &tag, &op).await?;
        Ok(())
    }

    async fn read_limit(&self, name: &DocumentName) -> Result<StoredLimit, EngineError> {
        let key = Key::Limit(name.clone()).to_string();
        match self.client().get(&key).await {
            Ok(Object { body, tag, .. }) => {
                let record = serde_json::from_slice(&body).map_err(|error| {
                    EngineError::Store(StoreError::Corrupt {
                        key,
                        detail: error.to_string(),
                    })
                })?;
                Ok(StoredLimit {
                    record,
                    tag: Some(tag),
                })
            }
            Err(StoreError::NotFound { .. }) => Ok(StoredLimit {
                record: LimitRecord::new(name),
                tag: None,
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// The record of a limit as it is now.
    pub(super) async fn limit_record(
        &self,
        name: &DocumentName,
    ) -> Result<LimitRecord, EngineError> {
        Ok(self.read_limit(name).await?.record)
    }

    /// Writes a record, if it has not changed since it was read. Returns `None` if it has, or may have, and otherwise the new tag, unless
    /// somebody has built upon it already.
    async fn write_limit(
        &self,
        name: &DocumentName,
        stored: &StoredLimit,
        record: &mut LimitRecord,
        op: OpId,
    ) -> Result<Option<Option<Tag>>, EngineError> {
        record.head.set_operation(op);
        let key = Key::Limit(name.clone()).to_string();
        let body = serde_json::to_vec(record).map_err(|error| {
            EngineError::Store(StoreError::Corrupt {
                key: key.clone(),
                detail: error.to_string(),
            })
        })?;
        let body = Bytes::from(body);
        let written = match &stored.tag {
            Some(tag) => self.client().swap(&key, body, tag, &op).await,
            None => self.client().create(&key, body, &op).await,
        };
        match written {
            Ok(written) => Ok(Some(written.tag().cloned())),
            Err(StoreError::Conflict { .. } | StoreError::AlreadyExists { .. }) => Ok(None),
            Err(error) => Err(in_doubt(error.into())),
        }
    }
}

/// The error for a record that other processes keep changing.
fn contended(name: &DocumentName) -> EngineError {
    unavailable(
        name,
        "other processes keep changing the record of this limit",
    )
}

/// The error for a change whose writer was cancelled before the change was made.
fn lost(name: &DocumentName) -> EngineError {
    unavailable(
        name,
        "the caller that wrote this change together with its own was cancelled",
    )
}

fn unavailable(name: &DocumentName, detail: &str) -> EngineError {
    EngineError::Store(StoreError::Unavailable {
        key: Key::Limit(name.clone()).to_string(),
        detail: detail.to_owned(),
        attempts: TRIES_MAX,
        elapsed: Duration::ZERO,
        in_doubt: true,
    })
}
