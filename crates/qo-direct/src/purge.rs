//! Deleting a task permanently.
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | archive the task, by compare-and-swap | an archived task; the purge can be repeated |
//! | 2 | remove it from the line of its ordering key, if whoever finished it has not; release its idempotency key, and note in the key's record that this task is purged | the same, without a key |
//! | 3 | delete its large payloads, with their versions | the same, without some or all of its payloads |
//! | 4 | in a bucket that keeps versions: delete the older versions of the task, oldest first | an archived task with fewer versions |
//! | 5 | delete the task | nothing |
//!
//! The record is deleted last, because everything else is found through it: a repeated purge finds whatever an interrupted one left.
//! In a bucket that keeps versions, nothing of the task is deleted without naming its version. A plain delete would only put a
//! delete marker on top, and removing the marker or the archived version while an older version exists would make that version
//! current again: a finished task would be pending or running. The archived version therefore stays current until it is the
//! only one. Payloads are found by listing the versions below their prefix, because a payload that was deleted without its
//! versions appears in no other list.
//!
//! Deletes are unconditional, so the task is archived first: either a concurrent replay comes before the archiving and the purge is
//! rejected, or it comes after it and is rejected itself. Deletes may also arrive late, so the id of a purged task must not be reused
//! soon; ids that qo generates are never reused. A submit that has read the idempotency key before its release may create the
//! task again after its deletion; [`super::idempotency`] describes how that is undone.

use futures_util::StreamExt;
use qo_core::keys::{Key, data_prefix};
use qo_core::task::decode;
use qo_core::{Action, Rejection, Status, Task, TaskId};
use qo_engine::EngineError;
use qo_store::admin::{BucketAdmin, Versioning};

use super::DirectEngine;
use super::change::in_doubt;
use super::idempotency::record_key;

/// The page size of version lists. There can be many versions, because every renewal of a lease creates one.
const VERSIONS_PAGE: usize = 1_000;
/// How often a purge starts over because the task was taken out of the archive meanwhile.
const TRIES_MAX: u32 = 8;

impl DirectEngine {
    pub(super) async fn purge_task(&self, id: TaskId) -> Result<(), EngineError> {
        let admin = self.version_admin().await?;
        for round in 0..TRIES_MAX {
            let stored = match self.read(id).await {
                Ok(stored) => stored,
                Err(error) if error.is_not_found() && round > 0 => return Ok(()),
                Err(error) if error.is_not_found() => {
                    return match admin {
                        Some(admin) => self.finish_purge(admin, id, error).await,
                        None => Err(error),
                    };
                }
                Err(error) => return Err(error),
            };
            if !stored.task.status.is_terminal() {
                return Err(Rejection::WrongStatus {
                    action: "purge",
                    status: stored.task.status,
                }
                .into());
            }
            if stored.task.stops_line() {
                return Err(Rejection::StopsLine { action: "purge" }.into());
            }
            let task = if stored.task.status == Status::Archived {
                stored.task
            } else {
                self.change(id, Some(stored), Action::Archive).await?.task
            };
            if task.ordering_key.is_some() {
                self.restore_place(&task).await?;
            }
            if let Some(scoped) = task.scoped_key() {
                self.release_key(&scoped, id).await?;
                if let Some(admin) = admin {
                    let key = record_key(&scoped).to_string();
                    self.delete_versions(admin, &key, Versions::Old).await?;
                }
            }
            self.delete_payloads(admin, id).await?;
            if self.delete_record(admin, &task).await? {
                self.shared.watchers.notify("purge", &task);
                return Ok(());
            }
        }
        Err(EngineError::Contended { id })
    }

    /// Deletes a task that a late submit created again after it was purged. Nobody has claimed it.
    pub(super) async fn delete_revived(&self, task: &Task) -> Result<(), EngineError> {
        tracing::warn!(task = %task.id, "deleting a purged task that a late submit created again");
        let admin = self.version_admin().await?;
        self.delete_payloads(admin, task.id).await?;
        self.delete_record(admin, task).await?;
        Ok(())
    }

    /// The administration of the bucket, if the bucket keeps versions.
    async fn version_admin(&self) -> Result<Option<&dyn BucketAdmin>, EngineError> {
        match self.shared.admin.as_deref() {
            Some(admin) if admin.versioning().await? != Versioning::Off => Ok(Some(admin)),
            _ => Ok(None),
        }
    }

    async fn delete_payloads(
        &self,
        admin: Option<&dyn BucketAdmin>,
        id: TaskId,
    ) -> Result<(), EngineError> {
        let prefix = data_prefix(id);
        let Some(admin) = admin else {
            let mut after = None;
            loop {
                let page = self.full_page(&prefix, after.as_deref()).await?;
                let keys: Vec<_> = page.entries.into_iter().map(|entry| entry.key).collect();
                self.delete(&keys).await?;
                after = page.next;
                if after.is_none() {
                    return Ok(());
                }
            }
        };
        loop {
            let list = admin
                .list_versions_below(&format!("{prefix}/"), VERSIONS_PAGE)
                .await?;
            // Newest first within a key, so backwards it is oldest first, and the delete marker last.
            for found in list.versions.iter().rev() {
                admin
                    .delete_version(&found.key, &found.version.version)
                    .await?;
            }
            if !list.truncated {
                return Ok(());
            }
        }
    }

    /// Deletes the record of a task. Returns false if the task has been taken out of the archive meanwhile.
    async fn delete_record(
        &self,
        admin: Option<&dyn BucketAdmin>,
        task: &Task,
    ) -> Result<bool, EngineError> {
        let key = Key::Task(task.id).to_string();
        let Some(admin) = admin else {
            self.delete(&[key]).await?;
            return Ok(true);
        };
        self.delete_versions(admin, &key, Versions::All).await?;
        match self.read(task.id).await {
            // A submit may have used the id for another task by now.
            Ok(found) => Ok(found.task.created_at != task.created_at),
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(in_doubt(error)),
        }
    }

    /// Deletes what an interrupted purge left behind a delete marker: versions of an archived task. `otherwise` is the error for a
    /// task that was not purged.
    async fn finish_purge(
        &self,
        admin: &dyn BucketAdmin,
        id: TaskId,
        otherwise: EngineError,
    ) -> Result<(), EngineError> {
        let key = Key::Task(id).to_string();
        let list = admin.list_versions(&key, VERSIONS_PAGE).await?;
        let newest = list
            .versions
            .iter()
            .find(|version| !version.is_delete_marker);
        let Some(newest) = newest else {
            return Err(otherwise);
        };
        let body = admin.get_version(&key, &newest.version).await?;
        if !decode(&body).is_ok_and(|task| task.status == Status::Archived) {
            return Err(otherwise);
        }
        self.delete_payloads(Some(admin), id).await?;
        self.delete_versions(admin, &key, Versions::All).await
    }

    async fn delete(&self, keys: &[String]) -> Result<(), EngineError> {
        match self.client().delete_many(keys).await {
            Ok(()) => Ok(()),
            Err(mut failures) => match failures.failed.pop() {
                Some((_, error)) => Err(error.into()),
                None => Ok(()),
            },
        }
    }
}

/// Which versions of an object to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Versions {
    /// All except the latest.
    Old,
    /// All, the latest when it is the only one left.
    All,
}

impl DirectEngine {
    /// Deletes versions of an object, oldest first.
    async fn delete_versions(
        &self,
        admin: &dyn BucketAdmin,
        key: &str,
        which: Versions,
    ) -> Result<(), EngineError> {
        loop {
            let list = admin.list_versions(key, VERSIONS_PAGE).await?;
            let (latest, old): (Vec<_>, Vec<_>) = (list.versions.into_iter().rev())
                .map(|version| (version.is_latest, version.version))
                .partition(|(is_latest, _)| *is_latest);
            // While the latest version exists, deleting another one makes none current, whatever their order.
            let mut deletes = futures_util::stream::iter(old)
                .map(|(_, version)| async move { admin.delete_version(key, &version).await })
                .buffered(self.config().concurrency);
            while let Some(deleted) = deletes.next().await {
                deleted?;
            }
            if list.truncated {
                continue;
            }
            if which == Versions::All {
                for (_, version) in latest {
                    admin.delete_version(key, &version).await?;
                }
            }
            return Ok(());
        }
    }
}
