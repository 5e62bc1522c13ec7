//! One change of one task, and the order of its steps.
//!
//! | step | what | a crash right after it leaves | found by |
//! | --- | --- | --- | --- |
//! | 1 | a task that will be running gets its lease entry | an entry for an attempt that never came to be | the monitor deletes it |
//! | 2 | the task is swapped: **the change is made** | for a task that is pending now: no ready entry, but still its old lease entry, if it was running | the monitor, which sees a pending task behind a lease entry and writes the ready entry; the sweeper, if it was replayed |
//! | 3 | a task that is pending now gets its ready entry | the old entries | the monitor, or whoever reads one and finds it stale |
//! | 4 | the old entries are deleted, later and together | nothing | |
//!
//! The lease entry comes before the swap because a running task that nobody can find would run for ever; the ready entry comes
//! after it because whoever finds one deletes it if the task is not pending. The swap carries an operation id, and a doubtful
//! answer is settled by the store's client, so that each change is made once or not at all.

use bytes::Bytes;
use qo_core::keys::Key;
use qo_core::task::{decode, encode};
use qo_core::{Action, Command, OpId, Rejection, Task, TaskId};
use qo_engine::EngineError;
use qo_engine::watch::operation_name;
use qo_store::StoreError;
use qo_store::client::{Object, Tag};
use qo_store::runtime::RuntimeExt;

use super::{DirectEngine, Stored, index};

/// How often a change is tried on a task that others keep changing.
const TRIES_MAX: u32 = 32;

/// A change that was made.
pub(super) struct Changed {
    pub(super) task: Task,
    /// Names the written state, if nobody has built upon it yet.
    pub(super) tag: Option<Tag>,
}

impl DirectEngine {
    /// Reads a task.
    pub(super) async fn read(&self, id: TaskId) -> Result<Stored, EngineError> {
        match self.client().get(&Key::Task(id).to_string()).await {
            Ok(Object { body, tag, .. }) => Ok(Stored {
                task: decode_task(id, &body)?,
                tag,
            }),
            Err(StoreError::NotFound { .. }) => Err(Rejection::NotFound { id }.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes a task, however often others change it meanwhile, until it is done or the rules refuse it.
    ///
    /// `known` is the task as the caller last saw it, which spares the read if nobody has changed it since.
    pub(super) async fn change(
        &self,
        id: TaskId,
        known: Option<Stored>,
        action: Action,
    ) -> Result<Changed, EngineError> {
        let op = self.runtime().new_op_id();
        let mut known = known;
        for round in 0..TRIES_MAX {
            let stored = match known.take() {
                Some(stored) => stored,
                None => self.read(id).await?,
            };
            if stored.task.carries(op) {
                // Something on the way repeated the write, and answered with the fate of the second copy.
                self.publish(&stored.task).await;
                let operation = operation_name(&action);
                self.shared.watchers.notify(operation, &stored.task);
                return Ok(Changed {
                    task: stored.task,
                    tag: Some(stored.tag),
                });
            }
            match self.try_change(stored, op, action.clone()).await {
                Err(EngineError::Store(StoreError::Conflict { .. })) => {
                    // Somebody else was first. Wait a little, more with each round, so that a crowd takes turns.
                    let pause_ms = self.runtime().random_below(u64::from(round) * 10);
                    self.runtime()
                        .sleep(std::time::Duration::from_millis(pause_ms))
                        .await;
                }
                result => return result,
            }
        }
        Err(EngineError::Contended { id })
    }

    /// Changes a task if nobody has changed it since it was read. A `Conflict` says that somebody has.
    pub(super) async fn try_change(
        &self,
        stored: Stored,
        op: OpId,
        action: Action,
    ) -> Result<Changed, EngineError> {
        let Stored { mut task, tag } = stored;
        let now = self.client().now();
        let before = task.clone();
        let old_lease = index::lease_key(&task);
        let operation = operation_name(&action);
        task.apply(Command { op, action }, now)?;

        let new_lease = index::lease_key(&task).filter(|key| old_lease.as_ref() != Some(key));
        if let Some(key) = &new_lease {
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
        self.publish(&task).await;
        self.shared
            .index_gc
            .sweep(index::stale_keys(&before, &task, now));
        self.shared.watchers.notify(operation, &task);
        Ok(Changed {
            task,
            tag: written.tag().cloned(),
        })
    }

    /// Makes a task that is pending now found. The task itself is durable already, so that a failure here is only told to the
    /// log: the monitor or the sweeper repeats it.
    pub(super) async fn publish(&self, task: &Task) {
        let Some(key) = index::pending_key(task, self.client().now()) else {
            return;
        };
        if matches!(key, Key::Later(_)) {
            self.shared.scheduled.expect(task.available_at);
        }
        let entry = self.put_entry(&key).await;
        // Only now: a worker that looks before the entry is there finds nothing, and does not look again for long.
        self.shared.signal.touch().await;
        if let Err(error) = entry {
            tracing::warn!(task = %task.id, %error, "the task is stored, but its index entry is not; it will be found later");
        }
    }

    /// Writes an index entry. Its key says everything.
    pub(super) async fn put_entry(&self, key: &Key) -> Result<(), EngineError> {
        self.client().put(&key.to_string(), Bytes::new()).await?;
        Ok(())
    }
}

pub(super) fn encode_task(task: &Task) -> Result<Bytes, EngineError> {
    encode(task)
        .map(Bytes::from)
        .map_err(|error| unreadable(task.id, &error))
}

/// Reads a record and makes sure that it is the one that its key names.
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
