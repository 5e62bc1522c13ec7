//! Deletes the payloads of tasks that the database has dropped.
//!
//! A database drops a record some time after its expiry, without a notification. Reads still return it until then, so the expiry decides
//! whether a record counts as dropped, here as in all other reads ([`super::archive`]). A task with payloads in their own objects
//! therefore has an entry under its expiry, and this job periodically processes all entries whose time has passed.
//!
//! An entry is deleted after its payloads, so a crash between the two repeats a deletion and misses none. If a task has the id, because it
//! was replayed or because a caller has chosen the id again, nothing is deleted and the entry is filed again for later. How a deletion
//! and such a submit exclude each other is described in [`crate::payload_removal`].
//!
//! An entry whose payloads cannot be deleted is filed again for later, too, so that it does not hold up the others. An entry is filed again in one
//! write with its deletion. If nothing of a page can be deleted, the store is probably not available, and the job ends until its next run.

use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::StreamExt;
use qo_core::{TaskId, Timestamp};
use qo_engine::EngineError;
use tokio::sync::watch;

use super::keys::{self, PAYLOADS};
use super::port::{Row, RowCursor, RowDatabase, RowWrite, ScanPurpose};
use crate::payload_removal::{CONCURRENCY, Removal};
use crate::{BrokerEngine, EngineShared};

/// How many entries are read and deleted at once.
const PAGE: usize = 256;
/// When an entry is looked at again whose task id is in use, or whose payloads cannot be deleted.
const LATER_MS: u64 = 60 * 60 * 1_000;

/// Ends the cleanup when it is dropped.
pub(super) struct PayloadCleanup {
    _alive: watch::Sender<()>,
}

impl PayloadCleanup {
    pub(super) fn new() -> (Self, watch::Receiver<()>) {
        let (alive, ended) = watch::channel(());
        (Self { _alive: alive }, ended)
    }
}

/// Cleans up every `interval`, until the [`PayloadCleanup`] is dropped.
pub(super) async fn run(
    db: Arc<dyn RowDatabase>,
    engine: Weak<EngineShared>,
    interval: Duration,
    mut ended: watch::Receiver<()>,
) {
    while let Some(shared) = engine.upgrade() {
        let sleep = shared.runtime.sleep(interval);
        drop(shared);
        tokio::select! {
            biased;
            _ = ended.changed() => return,
            () = sleep => {}
        }
        let Some(shared) = engine.upgrade() else {
            return;
        };
        let engine = BrokerEngine { shared };
        tokio::select! {
            biased;
            _ = ended.changed() => return,
            cleaned = clean_up(db.as_ref(), &engine) => if let Err(error) = cleaned {
                tracing::warn!(%error, "could not delete the payloads of dropped tasks; retrying later");
            },
        }
    }
}

/// Processes all entries that are due.
async fn clean_up(db: &dyn RowDatabase, engine: &BrokerEngine) -> Result<(), EngineError> {
    let due_at = engine.client().now();
    loop {
        let entries = due_entries(db, due_at).await?;
        if entries.is_empty() {
            return Ok(());
        }
        let ids: Vec<Option<TaskId>> = entries
            .iter()
            .map(|entry| keys::payloads_of(&entry.key).map(|(_, id)| id))
            .collect();
        let removals: Vec<_> = futures_util::stream::iter(ids)
            .map(|id| remove(engine, id))
            .buffered(CONCURRENCY)
            .collect()
            .await;
        let later = engine.client().now().plus_millis(LATER_MS);
        let mut writes = Vec::new();
        let mut failures = Vec::new();
        let count = entries.len();
        for (entry, removal) in entries.into_iter().zip(removals) {
            let is_left = !matches!(removal, Ok(Removal::Removed));
            if is_left && let Some((_, id)) = keys::payloads_of(&entry.key) {
                writes.push(RowWrite::put(keys::of_payloads(later, id), entry.value));
            }
            writes.push(RowWrite::Delete(entry.key));
            failures.extend(removal.err());
        }
        db.write(writes).await?;
        let failed = failures.len();
        if let Some(error) = failures.pop() {
            if failed == count {
                return Err(error);
            }
            tracing::warn!(%error, failed, "could not delete the payloads of some dropped tasks; retrying in an hour");
        }
    }
}

/// Deletes the payloads of an entry's task. An entry without one is malformed, and is deleted.
async fn remove(engine: &BrokerEngine, id: Option<TaskId>) -> Result<Removal, EngineError> {
    match id {
        Some(id) => engine.remove_dropped_payloads(id).await,
        None => Ok(Removal::Removed),
    }
}

/// The first entries whose time has passed.
async fn due_entries(db: &dyn RowDatabase, due_at: Timestamp) -> Result<Vec<Row>, EngineError> {
    let mut end = BytesMut::with_capacity(8);
    end.put_i64(due_at.as_millis());
    let range = (Bound::<Bytes>::Unbounded, Bound::Excluded(end.freeze()));
    let mut rows = RowCursor::scan(db, PAYLOADS, range, ScanPurpose::Few).await?;
    let mut entries = Vec::new();
    while entries.len() < PAGE
        && let Some(row) = rows.next().await?
    {
        entries.push(row);
    }
    Ok(entries)
}
