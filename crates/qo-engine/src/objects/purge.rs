//! Removing a task for good.
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | its idempotency key is freed | a finished task without a key: a purge can be repeated |
//! | 2 | its large payloads and index entries are deleted | a finished task without its payloads: a purge can be repeated |
//! | 3 | the versions of all of them are deleted | the same |
//! | 4 | the task is deleted, its versions last | nothing, or versions behind a delete marker, which the bucket's lifecycle removes |
//!
//! The record goes last, so that whatever is left over can still be found by it. Only tasks that have come to their end are
//! purged, and nothing but a replay changes those: a replay that comes between the read and the delete is lost with the task,
//! as one that comes after it would find no task. Deletes have no condition and may arrive late, so that an id that was purged
//! must not be given to a new task while that is possible; ids that qo draws never come again.

use qo_core::keys::{Key, data_prefix};
use qo_core::{Rejection, TaskId};
use qo_store::admin::Versioning;
use qo_store::client::PAGE_LIMIT_MAX;

use super::{ObjectsEngine, index};
use crate::error::EngineError;

/// How many versions of one object are removed.
const VERSIONS_MAX: usize = 100_000;

impl ObjectsEngine {
    pub(super) async fn purge_task(&self, id: TaskId) -> Result<(), EngineError> {
        let task = self.read(id).await?.task;
        if !task.status.is_terminal() {
            return Err(Rejection::WrongStatus {
                action: "purge",
                status: task.status,
            }
            .into());
        }
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
        }
        self.remove(&keys).await?;
        self.remove_versions(&keys).await?;
        let key = vec![Key::Task(id).to_string()];
        self.remove(&key).await?;
        self.remove_versions(&key).await
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

    async fn remove_versions(&self, keys: &[String]) -> Result<(), EngineError> {
        let Some(admin) = &self.shared.admin else {
            return Ok(());
        };
        if keys.is_empty() || admin.versioning().await? == Versioning::Off {
            return Ok(());
        }
        for key in keys {
            for version in admin.list_versions(key, VERSIONS_MAX).await?.versions {
                admin.delete_version(key, &version.version).await?;
            }
        }
        Ok(())
    }
}
