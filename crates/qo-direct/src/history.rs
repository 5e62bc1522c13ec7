//! What happened to a task: its own events, and, where the bucket keeps them, every stored version.

use futures_util::StreamExt;
use qo_core::TaskId;
use qo_core::keys::Key;
use qo_core::task::decode;
use qo_engine::EngineError;
use qo_engine::api::VersionedTask;
use qo_store::admin::{ObjectVersion, Versioning};

use super::DirectEngine;

impl DirectEngine {
    /// The newest `limit` versions, oldest first: one LIST and a GET each.
    pub(super) async fn list_versions(
        &self,
        id: TaskId,
        limit: usize,
    ) -> Result<Vec<VersionedTask>, EngineError> {
        // A task that is not there is the clearer answer.
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
        // Where several versions carry the same second, the record's own revision knows their order.
        versions.sort_by_key(|version| {
            (
                version.stored_at,
                version.task.as_ref().map_or(u64::MAX, |task| task.revision),
            )
        });
        Ok(versions)
    }
}
