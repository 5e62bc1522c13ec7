//! Walks the tasks: writes missing entries, ends tasks that have expired or have waited too long, and finds records that cannot be parsed.
//!
//! A GET of the entry shows whether it exists, once per change of an unfinished task. It costs a twelfth of writing the entry again.
//! Nothing here depends on the order of events: a late repair writes an entry that is already stale, and any process that finds it
//! deletes it.

use std::hash::{DefaultHasher, Hash, Hasher};

use futures_util::StreamExt;
use qo_core::keys::Key;
use qo_core::task::{DecodeError, decode};
use qo_core::{Action, Status, Task, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::client::Entry;

use super::super::change::decode_task;
use super::super::ordering::LinePosition;
use super::super::repair::expected_key;
use super::super::{DirectEngine, StoredTask};
use super::cursor::{ExpiringTask, SweepRecord};
use super::{CheckedRecords, SweepReport};

/// The result of checking a task.
enum TaskCheck {
    /// Nothing to repair. The task expires at this time if it stays pending.
    Valid(Option<Timestamp>),
    /// Its index entry was missing and has been written.
    Repaired(Option<Timestamp>),
    /// It had expired, or had waited too long, and was ended.
    Expired,
    /// Its record cannot be parsed. The next step quarantines it.
    Damaged,
    /// It was deleted or changed concurrently; the next pass checks it.
    Changed,
    /// The store cannot return it at all, or a later version of qo wrote it.
    Left,
    /// The store failed.
    Failed,
}

impl DirectEngine {
    /// Sweeps one page of tasks.
    pub(super) async fn sweep_tasks(
        &self,
        entries: &[Entry],
        record: &mut SweepRecord,
        checked: &mut CheckedRecords,
        report: &mut SweepReport,
    ) {
        report.listed += entries.len();
        record.tasks = record.tasks.saturating_add(entries.len() as u64);
        let (checked_before, cutoff) = (record.checked_before(), self.grace_cutoff());
        let mut due = Vec::new();
        for entry in entries {
            let Ok(Key::Task(id)) = entry.key.parse() else {
                report.left += 1;
                continue;
            };
            if entry.last_modified > cutoff {
                continue;
            }
            let version = version_hash(entry);
            let is_new = entry.last_modified >= checked_before && !checked.contains(version);
            if is_new || record.is_reread(id) {
                due.push((id, version, is_new));
            }
        }
        report.read += due.len();
        let mut checks =
            futures_util::stream::iter(due)
                .map(|(id, version, is_new)| async move {
                    (id, version, self.check_task(id, is_new).await)
                })
                .buffer_unordered(self.config().concurrency);
        while let Some((id, version, check)) = checks.next().await {
            match check {
                TaskCheck::Valid(expires_at) | TaskCheck::Repaired(expires_at) => {
                    report.repaired += usize::from(matches!(check, TaskCheck::Repaired(_)));
                    checked.insert(version);
                    if let Some(at) = expires_at {
                        record.remember_expiry(ExpiringTask { at, id });
                    }
                }
                TaskCheck::Expired => report.expired += 1,
                TaskCheck::Damaged => record.remember_damaged(id),
                TaskCheck::Changed => {}
                TaskCheck::Left => report.left += 1,
                TaskCheck::Failed => {
                    report.failed += 1;
                    record.missed = true;
                }
            }
        }
    }

    async fn check_task(&self, id: TaskId, is_new: bool) -> TaskCheck {
        match self.try_check_task(id, is_new).await {
            Ok(check) => check,
            Err(EngineError::Store(error @ StoreError::Unsupported { .. })) => {
                tracing::warn!(task = %id, %error, "skipping a task that the store cannot return");
                TaskCheck::Left
            }
            Err(error) => {
                tracing::debug!(task = %id, %error, "could not check a task; trying again in the next pass");
                TaskCheck::Failed
            }
        }
    }

    /// Checks a task. One that is new has not been checked since its last change.
    async fn try_check_task(&self, id: TaskId, is_new: bool) -> Result<TaskCheck, EngineError> {
        let key = Key::Task(id).to_string();
        let object = match self.client().get(&key).await {
            Ok(object) => object,
            Err(StoreError::NotFound { .. }) => return Ok(TaskCheck::Changed),
            Err(error) => return Err(error.into()),
        };
        let task = match decode_task(id, &object.body) {
            Ok(task) => task,
            Err(error) if is_of_later_version(&object.body) => {
                tracing::warn!(task = %id, %error, "skipping a task of a later version");
                return Ok(TaskCheck::Left);
            }
            Err(error) => {
                tracing::debug!(task = %id, %error, "found a damaged record");
                return Ok(TaskCheck::Damaged);
            }
        };
        let now = self.client().now();
        if task.is_expired(now) {
            let stored = StoredTask {
                task,
                tag: object.tag,
            };
            return match self.change(id, Some(stored), Action::Expire).await {
                Ok(_) => Ok(TaskCheck::Expired),
                Err(EngineError::Rejected(_)) => Ok(TaskCheck::Changed),
                Err(error) => Err(error),
            };
        }
        if is_new {
            self.restore_deliveries(&task).await?;
        }
        if let Some(check) = self.check_order(&task).await? {
            return Ok(check);
        }
        let Some(expected) = expected_key(&task, now) else {
            return Ok(TaskCheck::Valid(None));
        };
        let expires_at = match expected {
            Key::Lease { .. } => None,
            _ => task.pending_until(),
        };
        if self.entry_exists(&expected).await? {
            return Ok(TaskCheck::Valid(expires_at));
        }
        // A task that became due after it was written has a later entry until it is promoted.
        if let Key::Ready(entry) = &expected
            && self.entry_exists(&Key::Later(entry.clone())).await?
        {
            return Ok(TaskCheck::Valid(expires_at));
        }
        if self.is_revived(&task).await? {
            self.delete_revived(&task).await?;
            return Ok(TaskCheck::Changed);
        }
        tracing::info!(task = %id, entry = %expected, "restoring the missing index entry of a task");
        self.restore_entry(&task).await?;
        Ok(TaskCheck::Repaired(expires_at))
    }

    /// Checks the place of a task in the line of its ordering key. Returns `None` if its index entry is still to be checked.
    async fn check_order(&self, task: &Task) -> Result<Option<TaskCheck>, EngineError> {
        if task.ordering_key.is_none() || task.status == Status::Running {
            return Ok(None);
        }
        if task.is_settled() {
            return Ok(Some(if self.check_left(task).await? {
                tracing::info!(task = %task.id, "repaired the line of an ordering key after the end of a task");
                TaskCheck::Repaired(None)
            } else {
                TaskCheck::Valid(None)
            }));
        }
        if task.status != Status::Pending {
            return Ok(Some(TaskCheck::Valid(None)));
        }
        match self.position_in_line(task).await? {
            LinePosition::Head => Ok(None),
            LinePosition::Behind { .. } => Ok(Some(TaskCheck::Valid(task.pending_until()))),
            LinePosition::Absent if self.is_revived(task).await? => {
                self.delete_revived(task).await?;
                Ok(Some(TaskCheck::Changed))
            }
            LinePosition::Absent => {
                tracing::info!(task = %task.id, "adding a task to the line of its ordering key");
                self.restore_place(task).await?;
                Ok(Some(TaskCheck::Repaired(task.pending_until())))
            }
        }
    }

    /// Whether an index entry exists.
    pub(in super::super) async fn entry_exists(&self, key: &Key) -> Result<bool, EngineError> {
        match self.client().get(&key.to_string()).await {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a record that cannot be decoded is intact and of a later version.
pub(super) fn is_of_later_version(body: &[u8]) -> bool {
    matches!(decode(body), Err(DecodeError::Newer(_)))
}

/// A hash that identifies the listed version of a record.
pub(super) fn version_hash(entry: &Entry) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&entry.key, &entry.tag, entry.last_modified).hash(&mut hasher);
    hasher.finish()
}
