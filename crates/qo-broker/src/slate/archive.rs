//! Finished tasks in the database.

use std::ops::Bound;

use async_trait::async_trait;
use bytes::Bytes;
use qo_core::task::{ScopedKey, decode_compact};
use qo_core::{Task, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_store::StoreClient;
use slatedb::config::{DurabilityLevel, ScanOptions};
use slatedb::{Db, KeyValue};

use super::error::from_slate;
use super::keys::{self, ENDED};
use crate::Archive;
use crate::journal::Lookup;
use crate::message::{ListOrder, Listed};

/// The most rows that a list reads before it returns.
const SCANNED_MAX: usize = 10_000;
/// How much of a table is read at once.
const READ_AHEAD_BYTES: usize = 1024 * 1024;

/// The finished tasks in the database.
#[derive(Clone)]
pub(super) struct FinishedTasks {
    db: Db,
    client: StoreClient,
}

impl FinishedTasks {
    pub(super) fn new(db: Db, client: StoreClient) -> Self {
        Self { db, client }
    }

    /// Finds the finished task with this id, and the finished task that holds this key.
    pub(super) async fn look_up(&self, lookup: Lookup) -> Result<Vec<Task>, EngineError> {
        let holder = match &lookup.key {
            Some(key) => self.holder(key).await?,
            None => None,
        };
        let mut found = Vec::new();
        for id in lookup
            .id
            .into_iter()
            .chain(holder.filter(|id| Some(*id) != lookup.id))
        {
            found.extend(self.task(id).await?);
        }
        Ok(found)
    }

    pub(super) async fn task(&self, id: TaskId) -> Result<Option<Task>, EngineError> {
        let row = self.db.get_key_value(keys::of_task(ENDED, id)).await;
        let row = row.map_err(|error| from_slate(&error))?;
        match row.filter(|row| !is_expired(row, self.client.now())) {
            None => Ok(None),
            Some(row) => match decode_compact(&row.value) {
                Ok(task) => Ok(Some(task)),
                Err(error) => Err(EngineError::Unreadable {
                    id,
                    detail: error.to_string(),
                }),
            },
        }
    }

    async fn holder(&self, key: &ScopedKey) -> Result<Option<TaskId>, EngineError> {
        let value = self.db.get(keys::of_key(key)).await;
        let value = value.map_err(|error| from_slate(&error))?;
        Ok(value.and_then(|bytes| keys::id_in(&bytes)))
    }
}

/// Whether the retention of a record is over. SlateDB drops the record later, when it rewrites its table; reads still return it
/// until then.
pub(super) fn is_expired(row: &KeyValue, now: Timestamp) -> bool {
    row.expire_ts.is_some_and(|at| at <= now.as_millis())
}

#[async_trait]
impl Archive for FinishedTasks {
    async fn list(&self, order: ListOrder) -> Result<Listed, EngineError> {
        // The state was read first, and every task that had left it by then is durable.
        let options = ScanOptions {
            durability_filter: DurabilityLevel::Remote,
            read_ahead_bytes: READ_AHEAD_BYTES,
            ..ScanOptions::default()
        };
        let start = match order.after {
            Some(id) => Bound::Excluded(Bytes::copy_from_slice(id.as_uuid().as_bytes())),
            None => Bound::Unbounded,
        };
        let range = (start, Bound::<Bytes>::Unbounded);
        let mut rows = self
            .db
            .scan_prefix_with_options([ENDED], range, &options)
            .await
            .map_err(|error| from_slate(&error))?;
        let mut listed = Listed {
            tasks: Vec::new(),
            last: None,
        };
        let mut scanned = 0;
        let now = self.client.now();
        while let Some(row) = rows.next().await.map_err(|error| from_slate(&error))? {
            if listed.tasks.len() >= order.limit || scanned >= SCANNED_MAX {
                return Ok(listed);
            }
            scanned += 1;
            listed.last = keys::task_of(&row.key);
            if is_expired(&row, now) {
                continue;
            }
            match decode_compact(&row.value) {
                Ok(task) if order.filter.matches(&task) => listed.tasks.push(task),
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "skipping an unreadable record in a list"),
            }
        }
        listed.last = None;
        Ok(listed)
    }
}
