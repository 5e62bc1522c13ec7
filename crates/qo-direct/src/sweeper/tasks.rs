//! Walks the tasks: writes entries that are missing, calls off what has expired, and moves away what cannot be read.
//!
//! Whether an entry is there is asked with a GET of the entry, once per change of a task that is still live: a twelfth of the
//! price of writing it again. Nothing here depends on the order: a repair that comes too late writes an entry that is stale
//! by then, and that is deleted by whoever finds it.

use std::hash::{DefaultHasher, Hash, Hasher};

use futures_util::StreamExt;
use qo_core::keys::Key;
use qo_core::{Action, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::client::Entry;

use super::super::change::decode_task;
use super::super::repair::right_key;
use super::super::{DirectEngine, Stored};
use super::cursor::{Expiring, SweepRecord};
use super::{Settled, SweepReport};

/// What came of looking at a task.
enum Judged {
    /// It needs nothing, but expires at that time if it goes on waiting.
    Fine(Option<Timestamp>),
    /// Its entry was missing.
    Repaired(Option<Timestamp>),
    /// It had expired, and was called off.
    Expired,
    /// It could not be read, and is out of the way.
    Quarantined,
    /// It is gone, or was changed by somebody else just now: the next pass sees that.
    Moved,
    /// The store cannot show it, now or ever.
    Left,
    /// The store did not answer.
    Failed,
}

impl DirectEngine {
    /// Looks at a page of tasks.
    pub(super) async fn sweep_tasks(
        &self,
        entries: &[Entry],
        record: &mut SweepRecord,
        settled: &mut Settled,
        report: &mut SweepReport,
    ) {
        report.listed += entries.len();
        record.tasks = record.tasks.saturating_add(entries.len() as u64);
        let (judged_before, settled_before) = (record.judged_before(), self.settled_before());
        let mut due = Vec::new();
        for entry in entries {
            let Ok(Key::Task(id)) = entry.key.parse() else {
                report.left += 1;
                continue;
            };
            if entry.last_modified > settled_before {
                continue;
            }
            let state = state_of(entry);
            let is_new = entry.last_modified >= judged_before && !settled.contains(state);
            if is_new || record.is_reread(id) {
                due.push((id, state));
            }
        }
        report.read += due.len();
        let mut judged = futures_util::stream::iter(due)
            .map(|(id, state)| async move { (id, state, self.judge_task(id).await) })
            .buffer_unordered(self.config().concurrency);
        while let Some((id, state, judged)) = judged.next().await {
            match judged {
                Judged::Fine(expires_at) | Judged::Repaired(expires_at) => {
                    report.repaired += usize::from(matches!(judged, Judged::Repaired(_)));
                    settled.insert(state);
                    if let Some(at) = expires_at {
                        record.expect(Expiring { at, id });
                    }
                }
                Judged::Expired => report.expired += 1,
                Judged::Quarantined => report.quarantined += 1,
                Judged::Moved => {}
                Judged::Left => report.left += 1,
                Judged::Failed => {
                    report.failed += 1;
                    record.missed = true;
                }
            }
        }
    }

    async fn judge_task(&self, id: TaskId) -> Judged {
        match self.try_judge_task(id).await {
            Ok(judged) => judged,
            Err(EngineError::Store(error @ StoreError::Unsupported { .. })) => {
                tracing::warn!(task = %id, %error, "a task is left alone");
                Judged::Left
            }
            Err(error) => {
                tracing::debug!(task = %id, %error, "a task is looked at again in the next pass");
                Judged::Failed
            }
        }
    }

    async fn try_judge_task(&self, id: TaskId) -> Result<Judged, EngineError> {
        let key = Key::Task(id).to_string();
        let object = match self.client().get(&key).await {
            Ok(object) => object,
            Err(StoreError::NotFound { .. }) => return Ok(Judged::Moved),
            Err(error) => return Err(error.into()),
        };
        let task = match decode_task(id, &object.body) {
            Ok(task) => task,
            Err(error) => {
                let is_away = self
                    .quarantine(&key, &object.body, &error.to_string())
                    .await?;
                return Ok(if is_away {
                    Judged::Quarantined
                } else {
                    Judged::Moved
                });
            }
        };
        let now = self.client().now();
        if task.is_expired(now) {
            let stored = Stored {
                task,
                tag: object.tag,
            };
            return match self.change(id, Some(stored), Action::Expire).await {
                Ok(_) => Ok(Judged::Expired),
                Err(EngineError::Rejected(_)) => Ok(Judged::Moved),
                Err(error) => Err(error),
            };
        }
        let Some(right) = right_key(&task, now) else {
            return Ok(Judged::Fine(None));
        };
        let expires_at = match right {
            Key::Lease { .. } => None,
            _ => task.expires_at,
        };
        if self.is_there(&right).await? {
            return Ok(Judged::Fine(expires_at));
        }
        // What was later when it was written, and is due now, waits in the later index until somebody moves it.
        if let Key::Ready(entry) = &right
            && self.is_there(&Key::Later(entry.clone())).await?
        {
            return Ok(Judged::Fine(expires_at));
        }
        tracing::info!(task = %id, entry = %right, "a task had lost its index entry");
        self.restore_entry(&task).await?;
        Ok(Judged::Repaired(expires_at))
    }

    /// Whether an index entry is there.
    async fn is_there(&self, key: &Key) -> Result<bool, EngineError> {
        match self.client().get(&key.to_string()).await {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Stands for a record as it was listed.
fn state_of(entry: &Entry) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&entry.key, &entry.tag, entry.last_modified).hash(&mut hasher);
    hasher.finish()
}
