//! Finished tasks in the database.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use qo_core::task::{ScopedKey, decode_compact};
use qo_core::{QueueState, Task, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::TaskOrder;
use qo_store::StoreClient;

use super::keys::{self, ENDED};
use super::port::{READ_CONCURRENTLY, Row, RowCursor, RowDatabase, ScanPurpose};
use super::time_index;
use crate::Archive;
use crate::journal::{LookedUp, Lookup};
use crate::message::{ListOrder, Listed};

/// The most rows that a list reads before it returns.
const SCANNED_MAX: usize = 10_000;

/// The finished tasks in the database.
#[derive(Clone)]
pub(super) struct FinishedTasks {
    db: Arc<dyn RowDatabase>,
    client: StoreClient,
    /// The live tasks of later versions, each with the reason why it cannot be read. They may hold idempotency keys.
    unreadable: Arc<BTreeMap<TaskId, String>>,
}

impl FinishedTasks {
    pub(super) fn new(db: Arc<dyn RowDatabase>, client: StoreClient, state: &QueueState) -> Self {
        let unreadable = state.unreadable_tasks();
        let unreadable = unreadable.map(|(id, reason)| (id, reason.to_owned()));
        Self {
            db,
            client,
            unreadable: Arc::new(unreadable.collect()),
        }
    }

    /// Finds the finished tasks with these ids, and the finished tasks that hold these keys.
    pub(super) async fn look_up(&self, lookup: Lookup) -> Result<LookedUp, EngineError> {
        let holders: Vec<Option<TaskId>> = futures_util::stream::iter(lookup.keys)
            .map(|key| async move { self.holder(&key).await })
            .buffered(READ_CONCURRENTLY)
            .try_collect()
            .await?;
        let holders: BTreeSet<TaskId> = holders.into_iter().flatten().collect();
        let mut ids = holders.clone();
        if let Some((id, reason)) = ids.iter().find_map(|id| self.unreadable.get_key_value(id)) {
            return Err(EngineError::Unreadable {
                id: *id,
                detail: reason.clone(),
            });
        }
        ids.extend(lookup.ids);
        let keys = ids.iter().map(|id| keys::of_task(ENDED, *id)).collect();
        let rows = self.db.get_many(keys).await?.into_iter();
        let mut found = LookedUp::default();
        for (row, id) in rows.zip(ids) {
            match self.task_of(row, id) {
                Ok(task) => found.tasks.extend(task),
                Err(error) if holders.contains(&id) => return Err(error),
                Err(error) => {
                    found.unreadable.insert(id, error);
                }
            }
        }
        Ok(found)
    }

    /// The task in its row, if the row exists and its retention is not over.
    fn task_of(&self, row: Option<Row>, id: TaskId) -> Result<Option<Task>, EngineError> {
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
        let row = self.db.get(keys::of_key(key)).await?;
        let row = row.filter(|row| !is_expired(row, self.client.now()));
        Ok(row.and_then(|row| keys::id_in(&row.value)))
    }
}

/// Whether the retention of a record is over. The database drops the record later, SlateDB when it rewrites its table; reads still
/// return it until then.
pub(super) fn is_expired(row: &Row, now: Timestamp) -> bool {
    row.expires_at.is_some_and(|at| at <= now)
}

#[async_trait]
impl Archive for FinishedTasks {
    async fn list(&self, order: ListOrder) -> Result<Listed, EngineError> {
        // The state was read first, and every task that had left it by then is durable.
        let by = order.filter.order;
        if by == TaskOrder::Newest {
            return time_index::list(self.db.as_ref(), &order, self.client.now()).await;
        }
        let start = match order.after {
            Some(place) => Bound::Excluded(Bytes::copy_from_slice(place.id.as_uuid().as_bytes())),
            None => Bound::Unbounded,
        };
        let range = (start, Bound::<Bytes>::Unbounded);
        let mut rows = RowCursor::scan(self.db.as_ref(), ENDED, range, ScanPurpose::List).await?;
        let mut listed = Listed {
            tasks: Vec::new(),
            last: None,
            examined: 0,
        };
        let now = self.client.now();
        while let Some(row) = rows.next().await? {
            if listed.tasks.len() >= order.limit || listed.examined >= SCANNED_MAX {
                return Ok(listed);
            }
            listed.examined += 1;
            let id = keys::task_of(&row.key);
            listed.last = id.map(|id| by.position(Timestamp::MIN, id));
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
