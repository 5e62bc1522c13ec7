//! Stored versions of a task, in buckets that keep versions.

use futures_util::StreamExt;
use qo_core::TaskId;
use qo_core::keys::Key;
use qo_core::task::decode;
use qo_engine::EngineError;
use qo_engine::api::VersionedTask;
use qo_store::admin::{ObjectVersion, Versioning};

use super::DirectEngine;

impl DirectEngine {
    /// Returns the newest `limit` versions, oldest first. Costs one LIST, and a GET per version.
    pub(super) async fn list_versions(
        &self,
        id: TaskId,
        limit: usize,
    ) -> Result<Vec<VersionedTask>, EngineError> {
        // For an unknown task, "not found" is a clearer error than "not versioned".
        self.read(id).await?;
        let Some(admin) = &self.shared.admin else {
            return Err(EngineError::NotVersioned);
        };
        if admin.versioning().await? == Versioning::Off {
            return Err(EngineError::NotVersioned);
        }
        let key = Key::Task(id).to_string();
        let list = admin.list_versions(&key, limit).await?;
        let key = &key;
        let read = |version: ObjectVersion| async move {
            let task = if version.is_delete_marker {
                None
            } else {
                decode(&admin.get_version(key, &version.version).await?).ok()
            };
            Ok(VersionedTask {
                version: version.version,
                stored_at: version.last_modified,
                task,
            })
        };
        let mut versions = futures_util::stream::iter(list.versions.into_iter().rev())
            .map(read)
            .buffered(self.config().concurrency)
            .collect::<Vec<Result<_, EngineError>>>()
            .await
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        // Versions of the same second are ordered by the revision in the record.
        versions.sort_by_key(|version| {
            (
                version.stored_at,
                version.task.as_ref().map_or(u64::MAX, |task| task.revision),
            )
        });
        Ok(versions)
    }
}
