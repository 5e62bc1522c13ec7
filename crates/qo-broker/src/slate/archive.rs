//! Tasks that have come to their end, in the database.

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
use crate::journal::{Found, Want};
use crate::message::{ListOrder, Listed};

/// How many tasks a list looks at before it returns what it has found.
const LOOKED_AT_MAX: usize = 10_000;
/// How much of a table is read at once.
const READ_AHEAD_BYTES: usize = 1024 * 1024;

/// Tasks that have come to their end.
#[derive(Clone)]
pub(super) struct EndedTasks {
    db: Db,
    client: StoreClient,
}

impl EndedTasks {
    pub(super) fn new(db: Db, client: StoreClient) -> Self {
        Self { db, client }
    }

    /// Looks up what the state does not hold.
    pub(super) async fn fetch(&self, want: Want) -> Result<Found, EngineError> {
        match want {
            Want::Task(id) => Ok(match self.task(id).await? {
                Some(task) => Found::Task(Box::new(task)),
                None => Found::Nothing,
            }),
            Want::Key(key) => Ok(match self.holder(&key).await? {
                Some(id) => Found::Holder(id),
                None => Found::Nothing,
            }),
        }
    }

    pub(super) async fn task(&self, id: TaskId) -> Result<Option<Task>, EngineError> {
        let found = self.db.get_key_value(keys::of_task(ENDED, id)).await;
        let found = found.map_err(|error| from_slate(&error))?;
        match found.filter(|row| !is_over(row, self.client.now())) {
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
        let found = self.db.get(keys::of_key(key)).await;
        let found = found.map_err(|error| from_slate(&error))?;
        Ok(found.and_then(|bytes| keys::id_in(&bytes)))
    }
}

/// Whether the time is over for which a record is kept. SlateDB drops it at some later time, when it rewrites the table that holds it;
/// reads find it until then.
pub(super) fn is_over(row: &KeyValue, now: Timestamp) -> bool {
    row.expire_ts.is_some_and(|at| at <= now.as_millis())
}

#[async_trait]
impl Archive for EndedTasks {
    async fn list(&self, order: ListOrder) -> Result<Listed, EngineError> {
        // The state was looked at first, and all that it had let go of by then is durable.
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
        let mut looked_at = 0;
        let now = self.client.now();
        while let Some(row) = rows.next().await.map_err(|error| from_slate(&error))? {
            if listed.tasks.len() >= order.limit || looked_at >= LOOKED_AT_MAX {
                return Ok(listed);
            }
            looked_at += 1;
            listed.last = keys::task_of(&row.key);
            if is_over(&row, now) {
                continue;
            }
            match decode_compact(&row.value) {
                Ok(task) if order.filter.matches(&task) => listed.tasks.push(task),
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "a record is left out of the list"),
            }
        }
        listed.last = None;
        Ok(listed)
    }
}
