//! Removing a task for good.
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | the task is archived, by compare-and-swap | an archived task: a purge can be repeated |
//! | 2 | its idempotency key is freed | the same, without a key |
//! | 3 | its large payloads and index entries are deleted, with their versions | the same, without its payloads |
//! | 4 | the task is deleted, its versions last | nothing, or versions behind a delete marker, which the bucket's lifecycle removes |
//!
//! The record goes last, so that whatever is left over can still be found by it. Deletes have no condition, so the archive comes
//! first: a replay either is before it, and the purge is refused, or after it, and the replay is. Deletes may also arrive late, so
//! that an id that was purged must not be given to a new task while that is possible; ids that qo draws never come again.

use qo_core::keys::{Key, data_prefix};
use qo_core::{Action, Rejection, Status, TaskId};
use qo_engine::EngineError;
use qo_store::admin::Versioning;
use qo_store::client::PAGE_LIMIT_MAX;

use super::idempotency::key_of;
use super::{DirectEngine, index};

/// How many versions of one object are listed at once. Every renewal of a lease makes one, so that there can be many.
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
            self.free_key(&scoped, id).await?;
            self.remove_old_versions(&key_of(&scoped).to_string())
                .await?;
        }
        self.remove(&keys).await?;
        self.remove_versions(&keys).await?;
        let key = vec![Key::Task(id).to_string()];
        self.remove(&key).await?;
        self.remove_versions(&key).await?;
        self.shared.watchers.notify("purge", &task);
        Ok(())
    }

    async fn remove(&self, keys: &[String]) -> Result<(), EngineError> {
        match self.client().delete_many(keys).await {
            Ok(()) => Ok(()),
            Err(mut failures) => match failures.failed.pop() {
                Some((_, error)) => Err(error.into()),
                None => Ok(()),
            },
        }
    }

    /// Removes what an object was before.
    async fn remove_old_versions(&self, key: &str) -> Result<(), EngineError> {
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

    async fn remove_versions(&self, keys: &[String]) -> Result<(), EngineError> {
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
