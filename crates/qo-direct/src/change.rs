//! A change of one task, and the order of its steps.
//!
//! | step | what | a crash right after it leaves | repaired by |
//! | --- | --- | --- | --- |
//! | 1 | write the lease entry of a task that will be running, or a marker of the same form for a finished task that will be pending again, or a task that will be in another queue | an entry for an attempt that never started | the lease reaper, which deletes it |
//! | 2 | swap the task: **the change is made** | for a task that is now pending: no ready entry, but still its old lease entry, if it was running, or the marker, if it was finished or moved | the lease reaper, which sees a pending task behind a lease entry and writes the ready entry |
//! | 3 | write the ready entry of a task that is now pending | the old entries | the lease reaper, or any process that reads an entry and finds it stale |
//! | 4 | delete the old entries, later and in batches | nothing | |
//!
//! A task with an ordering key has its own steps instead of step 3 ([`super::ordering`]). The end of an attempt under a limit also returns its
//! slots after the swap ([`super::limits`]), and the end of a task submits the deliveries of webhooks before step 4 ([`super::webhooks`]).
//!
//! The lease entry is written before the swap because a running task without one would never be found again. The ready entry is
//! written after the swap because any process that finds one for a task that is not pending deletes it. The swap carries an
//! operation id, with which the store client settles a write of unknown result, so each change is made exactly once or not at
//! all.
//!
//! A refused swap is not proof that another writer was first: a proxy may have sent it twice and returned the response to the second
//! copy. The task is read before the next try, and if it carries the operation, the change was made. If it cannot be read, the
//! change is in doubt.

use std::time::Duration;

use bytes::Bytes;
use qo_core::keys::Key;
use qo_core::task::{decode, encode};
use qo_core::{Action, Command, OpId, Rejection, Task, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_engine::watch::operation_name;
use qo_store::StoreError;
use qo_store::client::{Object, Tag};
use qo_store::runtime::RuntimeExt;

use super::signal_record::{LATER, ready_topic};
use super::unclaimable::REFUSALS_MAX;
use super::{DirectEngine, StoredTask, index};

/// How often a change is tried while other writers keep changing the task.
const TRIES_MAX: u32 = 32;

/// A task after a change.
pub(super) struct ChangedTask {
    pub(super) task: Task,
    /// The tag of the written object, unless it has been overwritten already.
    pub(super) tag: Option<Tag>,
}

impl DirectEngine {
    /// Reads a task.
    pub(super) async fn read(&self, id: TaskId) -> Result<StoredTask, EngineError> {
        match self.client().get(&Key::Task(id).to_string()).await {
            Ok(Object { body, tag, .. }) => Ok(StoredTask {
                task: decode_task(id, &body)?,
                tag,
            }),
            Err(StoreError::NotFound { .. }) => Err(Rejection::NotFound { id }.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes a task and retries when another writer changes it first, until the change is made or the rules reject it.
    ///
    /// `cached` is the task as the caller last read or wrote it. It saves the read if the task has not changed since.
    pub(super) async fn change(
        &self,
        id: TaskId,
        cached: Option<StoredTask>,
        action: Action,
    ) -> Result<ChangedTask, EngineError> {
        let op = self.runtime().new_op_id();
        let mut cached = cached;
        let mut refused: Option<Tag> = None;
        let mut refusals = 0;
        // One round more than tries: the last only finds out whether the last try was applied.
        for round in 0..=TRIES_MAX {
            let stored = match cached.take() {
                Some(stored) => stored,
                None if refused.is_none() => self.read(id).await?,
                // The refusal may be the response to a second copy of a write that was applied. Only this read can tell.
                None => self.read(id).await.map_err(in_doubt)?,
            };
            // A correct store refuses a swap only if the tag has changed.
            let is_same = refused.is_some_and(|tag| tag.matches(&stored.tag));
            refusals = if is_same { refusals + 1 } else { 0 };
            if refusals >= REFUSALS_MAX {
                return Err(unswappable(id));
            }
            refused = Some(stored.tag.clone());
            if stored.task.carries(op) {
                // The write was repeated on the way to the store, and the response was that of the second copy.
                self.publish(&stored.task).await;
                let operation = operation_name(&action);
                self.shared.watchers.notify(operation, &stored.task);
                return Ok(ChangedTask {
                    task: stored.task,
                    tag: Some(stored.tag),
                });
            }
            if round == TRIES_MAX {
                break;
            }
            match self.try_change(stored, op, action.clone()).await {
                Err(EngineError::Store(StoreError::Conflict { .. })) => {
                    // Another writer was first. Wait a little, longer in each round, so that many writers take turns.
                    let pause_ms = self.runtime().random_below(u64::from(round) * 10);
                    self.runtime().sleep(Duration::from_millis(pause_ms)).await;
                }
                result => return result,
            }
        }
        Err(EngineError::Contended { id })
    }

    /// Changes a task if it has not changed since it was read, otherwise returns `Conflict`.
    pub(super) async fn try_change(
        &self,
        stored: StoredTask,
        op: OpId,
        action: Action,
    ) -> Result<ChangedTask, EngineError> {
        let mut now = self.client().now();
        if operation_name(&action) == "run_now" {
            // The deletion of the entry with which the task was last claimed may still be in flight. The new entry must have a later time.
            now = now.max(stored.task.updated_at.plus_millis(1));
        }
        self.try_change_at(stored, op, action, now).await
    }

    /// Changes a task as of a time that is not long past.
    pub(super) async fn try_change_at(
        &self,
        stored: StoredTask,
        op: OpId,
        action: Action,
        now: Timestamp,
    ) -> Result<ChangedTask, EngineError> {
        let StoredTask { mut task, tag } = stored;
        let before = task.clone();
        let old_lease = index::lease_key(&task);
        let operation = operation_name(&action);
        task.apply(Command { op, action }, now)?;

        let new_lease = index::lease_key(&task).filter(|key| old_lease.as_ref() != Some(key));
        let marker = index::change_marker(&before, &task, now);
        for key in new_lease.iter().chain(&marker) {
            self.put_entry(key).await?;
        }
        let written = self
            .client()
            .swap(
                &Key::Task(task.id).to_string(),
                encode_task(&task)?,
                &tag,
                &op,
            )
            .await?;
        let is_indexed = if task.ordering_key.is_some() {
            self.follow_in_line(&before, &task).await
        } else {
            self.publish_entry(&task).await;
            true
        };
        let is_delivered = self.deliver_end(&before, &task).await;
        if is_indexed && is_delivered {
            self.shared.index_gc.enqueue(
                index::stale_keys(&before, &task, now)
                    .into_iter()
                    .chain(marker),
            );
        }
        self.shared.watchers.notify(operation, &task);
        self.return_slots(&before, &task).await;
        Ok(ChangedTask {
            task,
            tag: written.tag().cloned(),
        })
    }

    /// Writes the index entry of a task that is now pending, as [`Self::publish_entry`] does. One with an ordering key joins its line first,
    /// and a settled one leaves it.
    pub(super) async fn publish(&self, task: &Task) {
        if task.ordering_key.is_none() {
            return self.publish_entry(task).await;
        }
        if let Err(error) = self.restore_place(task).await {
            tracing::warn!(task = %task.id, %error, "the task is stored, but the line of its ordering key is not; the lease reaper or the sweeper will repair it");
        }
    }

    /// Writes the index entry of a task that is now pending and signals idle workers. The task itself is already durable, so a
    /// failure here is only logged: the lease reaper or the sweeper repeats the write.
    pub(super) async fn publish_entry(&self, task: &Task) {
        let Some(key) = index::pending_key(task, self.client().now()) else {
            return;
        };
        let entry = self.put_entry(&key).await;
        // Signal after writing the entry: a worker that lists before it finds nothing, and does not list again for a while.
        self.announce_entry(&key);
        if let Err(error) = entry {
            tracing::warn!(task = %task.id, %error, "the task is stored, but its index entry is not; the lease reaper or the sweeper will write it");
        }
    }

    /// Tells the claims of this process, and in the background those of others, that there is a new entry.
    pub(super) fn announce_entry(&self, key: &Key) {
        match key {
            Key::Ready(entry) => {
                let topic = ready_topic(&entry.queue, &entry.task_type);
                self.shared.signal.touch(&topic, 1);
            }
            Key::Later(entry) => {
                self.shared.scheduled.remember(entry.clone());
                self.shared.signal.touch_known(LATER, 1);
            }
            _ => {}
        }
    }

    /// Writes an index entry. Its key holds all the data.
    pub(super) async fn put_entry(&self, key: &Key) -> Result<(), EngineError> {
        self.client().put(&key.to_string(), Bytes::new()).await?;
        Ok(())
    }
}

/// The error for a task whose every change the store refuses.
pub(super) fn unswappable(id: TaskId) -> EngineError {
    StoreError::Corrupt {
        key: Key::Task(id).to_string(),
        detail: "the store refuses every change of it, although nobody else changes it".to_owned(),
    }
    .into()
}

/// The error of an operation that was made, or may have been, and could not be confirmed because of this error.
///
/// A task that does not exist stays "not found", because whoever purged it saw it finished, and a record that cannot be read stays
/// "unreadable", because no later read will tell more.
pub(super) fn in_doubt(error: EngineError) -> EngineError {
    let unavailable = |key, detail, attempts, elapsed| {
        EngineError::Store(StoreError::Unavailable {
            key,
            detail,
            attempts,
            elapsed,
            in_doubt: true,
        })
    };
    match error {
        EngineError::Store(StoreError::Unavailable {
            key,
            detail,
            attempts,
            elapsed,
            ..
        }) => unavailable(key, detail, attempts, elapsed),
        EngineError::Store(StoreError::Throttled {
            key,
            detail,
            attempts,
        }) => unavailable(key, detail, attempts, Duration::ZERO),
        EngineError::Store(
            StoreError::Denied { key, detail } | StoreError::Corrupt { key, detail },
        ) => unavailable(key, detail, 1, Duration::ZERO),
        error => error,
    }
}

pub(super) fn encode_task(task: &Task) -> Result<Bytes, EngineError> {
    encode(task)
        .map(Bytes::from)
        .map_err(|error| unreadable(task.id, &error))
}

/// Parses a record and checks that its id is the one in its key.
pub(super) fn decode_task(id: TaskId, body: &[u8]) -> Result<Task, EngineError> {
    let task = decode(body).map_err(|error| unreadable(id, &error))?;
    if task.id != id {
        return Err(unreadable(
            id,
            &format!("it is the record of task {}", task.id),
        ));
    }
    Ok(task)
}

fn unreadable(id: TaskId, detail: &impl ToString) -> EngineError {
    EngineError::Unreadable {
        id,
        detail: detail.to_string(),
    }
}
