//! Deleting a task permanently.
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | archive the task, by compare-and-swap | an archived task; the purge can be repeated |
//! | 2 | release its idempotency key | the same, without a key |
//! | 3 | delete its large payloads and index entries, with their versions | the same, without its payloads |
//! | 4 | delete the task, its versions last | nothing, or versions behind a delete marker, which the bucket's lifecycle rules delete |
//!
//! The record is deleted last, because everything else is found through it. Deletes are unconditional, so the task is archived
//! first: either a concurrent replay comes before the archiving and the purge is rejected, or it comes after it and is rejected
//! itself. Deletes may also arrive late, so the id of a purged task must not be reused soon; ids that qo generates are never
//! reused.

use qo_core::keys::{Key, data_prefix};
use qo_core::{Action, Rejection, Status, TaskId};
use qo_engine::EngineError;
use qo_store::admin::Versioning;
use qo_store::client::PAGE_LIMIT_MAX;

use super::idempotency::record_key;
use super::{DirectEngine, index};

/// The page size of version lists. There can be many versions, because every renewal of a lease creates one.
const VERSIONS_PAGE: usize = 1_000;

impl DirectEngine {
    pub(super) async fn purge_task(&self, id: TaskId) -> Result<(), EngineError> {
        let stored = self.read(id).await?;
        if !stored.task.status.is_terminal() {
            return Err(Rejection::WrongStatus {
                action: "purge",
                status: stored.task.status,
            }
            .into());
        }
        let task = if stored.task.status == Status::Archived {
            stored.task
        } else {
            self.change(id, Some(stored), Action::Archive).await?.task
        };
        let mut keys: Vec<String> = index::all_keys(&task, self.client().now())
            .iter()
            .map(ToString::to_string)
            .collect();
        let data = self
            .client()
            .page(&data_prefix(id), None, PAGE_LIMIT_MAX)
            .await?;
        keys.extend(data.entries.into_iter().map(|entry| entry.key));
        if let Some(scoped) = task.scoped_key() {
            self.release_key(&scoped, id).await?;
            self.delete_old_versions(&record_key(&scoped).to_string())
                .await?;
        }
        self.delete(&keys).await?;
        self.delete_versions(&keys).await?;
        let key = vec![Key::Task(id).to_string()];
        self.delete(&key).await?;
        self.delete_versions(&key).await?;
        self.shared.watchers.notify("purge", &task);
        Ok(())
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

    /// Deletes all versions of an object except the latest.
    async fn delete_old_versions(&self, key: &str) -> Result<(), EngineError> {
        let Some(admin) = &self.shared.admin else {
            return Ok(());
        };
        if admin.versioning().await? == Versioning::Off {
            return Ok(());
        }
        let list = admin.list_versions(key, VERSIONS_PAGE).await?;
        for version in list.versions.iter().filter(|version| !version.is_latest) {
            admin.delete_version(key, &version.version).await?;
        }
        Ok(())
    }

    async fn delete_versions(&self, keys: &[String]) -> Result<(), EngineError> {
        let Some(admin) = &self.shared.admin else {
            return Ok(());
        };
        if keys.is_empty() || admin.versioning().await? == Versioning::Off {
            return Ok(());
        }
        for key in keys {
            loop {
                let list = admin.list_versions(key, VERSIONS_PAGE).await?;
                for version in &list.versions {
                    admin.delete_version(key, &version.version).await?;
                }
                if !list.truncated || list.versions.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }
}
