//! The index of finished tasks by the time of their submit, newest first.
//!
//! A finished task has a row under its status, time and id, in the same batch as its record, with the same expiry. A list reads the rows of
//! the statuses that it wants, merges them, and reads the records that they name. So the newest failure is found at once, behind a million
//! completed tasks. The row's value is the task's queue and type, so that a list of one queue does not read the records of the others.
//!
//! Earlier versions do not write these rows. So each count of finished tasks ([`keys::COUNT`]) has a second row with the number of them
//! that are in the index ([`keys::INDEXED`]). If the two differ when the database is opened, an earlier version has written in between, and
//! the index is built again. A crash while it is built leaves the counts different, so the next start builds it again; rows that are
//! written twice are the same, and rows of tasks that have changed since are skipped by lists, because the record decides.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use futures_util::StreamExt;
use qo_core::task::decode_compact;
use qo_core::{QueueName, Status, Task, TaskType, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::{ListPosition, TaskFilter};

use super::archive::is_expired;
use super::counts::{Counts, dropped_at};
use super::keys::{self, CountKey, ENDED, INDEXED, TIME};
use super::port::{Row, RowCursor, RowDatabase, RowWrite, ScanPurpose};
use crate::message::{ListOrder, Listed};

/// The most rows of the index that a list reads before it returns.
const SCANNED_MAX: usize = 10_000;
/// How many records a list reads at once.
const READS_AT_ONCE: usize = 64;
/// How many rows of the index are written at once when it is built.
const BUILT_AT_ONCE: usize = 1_000;

/// Adds the row of a finished task.
pub(super) fn put(batch: &mut Vec<RowWrite>, task: &Task, kept_until: Option<Timestamp>) {
    let names = format!("{}/{}", task.queue, task.task_type);
    batch.push(RowWrite::Put(Row {
        key: keys::of_time(task.status, task.created_at, task.id),
        value: Bytes::from(names),
        expires_at: kept_until,
    }));
}

/// Deletes the row of a task that had this status.
pub(super) fn delete(batch: &mut Vec<RowWrite>, status: Status, task: &Task) {
    batch.push(RowWrite::Delete(keys::of_time(
        status,
        task.created_at,
        task.id,
    )));
}

/// The rows of one status, and the next of them.
struct StatusRows {
    rows: RowCursor,
    next: Option<(ListPosition, Row)>,
}

impl StatusRows {
    async fn scan(
        db: &dyn RowDatabase,
        status: Status,
        start: Option<ListPosition>,
    ) -> Result<Self, EngineError> {
        let number = status as u8;
        let start = match start {
            Some(place) => {
                let key = keys::of_time(status, place.at, place.id);
                Bound::Excluded(key.slice(1..))
            }
            None => Bound::Included(Bytes::copy_from_slice(&[number])),
        };
        let end = Bound::Excluded(Bytes::copy_from_slice(&[number.saturating_add(1)]));
        let rows = RowCursor::scan(db, TIME, (start, end), ScanPurpose::List).await?;
        let mut scanned = Self { rows, next: None };
        scanned.advance().await?;
        Ok(scanned)
    }

    async fn advance(&mut self) -> Result<(), EngineError> {
        self.next = None;
        while let Some(row) = self.rows.next().await? {
            // A key that cannot be parsed is not of this version.
            if let Some((_, at, id)) = keys::time_of(&row.key) {
                self.next = Some((ListPosition { at, id }, row));
                break;
            }
        }
        Ok(())
    }
}

/// The newest finished tasks that match.
pub(super) async fn list(
    db: &dyn RowDatabase,
    order: &ListOrder,
    now: Timestamp,
) -> Result<Listed, EngineError> {
    let filter = &order.filter;
    let by = filter.order;
    let mut sources = Vec::new();
    for status in Status::ALL {
        let is_wanted = if filter.statuses.is_empty() {
            status != Status::Archived
        } else {
            filter.statuses.contains(&status)
        };
        if status.is_terminal() && is_wanted {
            sources.push(StatusRows::scan(db, status, order.after).await?);
        }
    }
    let mut listed = Listed {
        tasks: Vec::new(),
        last: None,
        examined: 0,
    };
    loop {
        // Records are read in parts, because each may be a request to the store.
        let mut places = Vec::new();
        let wanted = order.limit - listed.tasks.len();
        let mut is_over = false;
        while places.len() < wanted && listed.examined < SCANNED_MAX {
            let first = sources
                .iter_mut()
                .filter(|source| source.next.is_some())
                .min_by(|one, other| match (&one.next, &other.next) {
                    (Some((one, _)), Some((other, _))) => by.compare(*one, *other),
                    _ => std::cmp::Ordering::Equal,
                });
            let Some(source) = first else {
                is_over = true;
                break;
            };
            let Some((place, row)) = source.next.take() else {
                break;
            };
            source.advance().await?;
            if filter.since.is_some_and(|since| place.at < since) {
                // All others are older.
                is_over = true;
                break;
            }
            listed.examined += 1;
            // A task whose status has just changed may have two rows at the same place.
            let is_repeated = listed.last == Some(place);
            listed.last = Some(place);
            if !is_repeated && !is_expired(&row, now) && may_match(filter, &row, place) {
                places.push(place);
            }
        }
        let records = futures_util::stream::iter(places)
            .map(|place| db.get_durable(keys::of_task(ENDED, place.id)))
            .buffered(READS_AT_ONCE)
            .collect::<Vec<_>>()
            .await;
        for record in records {
            let Some(row) = record?.filter(|row| !is_expired(row, now)) else {
                continue;
            };
            match decode_compact(&row.value) {
                Ok(task) if filter.matches(&task) => listed.tasks.push(task),
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "skipping an unreadable record in a list"),
            }
        }
        if is_over {
            listed.last = None;
            return Ok(listed);
        }
        if listed.tasks.len() >= order.limit || listed.examined >= SCANNED_MAX {
            return Ok(listed);
        }
    }
}

/// Whether the record of a row may match, as far as the row shows.
fn may_match(filter: &TaskFilter, row: &Row, place: ListPosition) -> bool {
    let names = std::str::from_utf8(&row.value).ok();
    let names = names.and_then(|names| names.split_once('/'));
    let is_named = names.is_none_or(|(queue, task_type)| {
        let wanted_queue = filter.queue.as_ref().map(QueueName::as_str);
        let wanted_type = filter.task_type.as_ref().map(TaskType::as_str);
        wanted_queue.is_none_or(|wanted| wanted == queue)
            && wanted_type.is_none_or(|wanted| wanted == task_type)
    });
    is_named
        && filter.until.is_none_or(|until| place.at < until)
        && filter.shard.is_none_or(|shard| shard == place.id.shard())
}

/// Builds the index, unless it has a row for each finished task that is counted.
pub(super) async fn build_if_needed(
    db: &dyn RowDatabase,
    counts: &Counts,
    indexed: &BTreeMap<CountKey, u64>,
    retention_ms: impl Fn(&CountKey) -> u64,
    now: Timestamp,
) -> Result<(), EngineError> {
    // The rows of a count that is over may be dropped one before the other.
    let is_kept = |key: &CountKey| dropped_at(key, retention_ms(key)) > now;
    let missing: Vec<(&CountKey, u64)> = counts
        .iter()
        .filter(|(key, count)| *count > 0 && indexed.get(*key) != Some(count) && is_kept(key))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    tracing::info!("building the index of finished tasks by time, once after an update");
    let range = (Bound::Unbounded, Bound::Unbounded);
    let mut rows = RowCursor::scan(db, ENDED, range, ScanPurpose::Load).await?;
    let mut writes = Vec::new();
    while let Some(row) = rows.next().await? {
        if is_expired(&row, now) {
            continue;
        }
        // A record of a later version has the row that the later version wrote, or none.
        if let Ok(task) = decode_compact(&row.value) {
            put(&mut writes, &task, row.expires_at);
        }
        if writes.len() >= BUILT_AT_ONCE {
            db.write(std::mem::take(&mut writes)).await?;
        }
    }
    // The counts come last: they say that the index is whole.
    for (key, count) in missing {
        writes.push(put_indexed(key, count, retention_ms(key)));
    }
    // Lists show only what is durable.
    db.write_durable(writes).await
}

/// Records how many of the tasks of a count are in the index.
pub(super) fn put_indexed(key: &CountKey, count: u64, retention_ms: u64) -> RowWrite {
    RowWrite::Put(Row {
        key: keys::of_indexed(key),
        value: Bytes::copy_from_slice(&count.to_be_bytes()),
        expires_at: Some(dropped_at(key, retention_ms)),
    })
}

/// Reads how many tasks of each count are in the index.
pub(super) async fn load_indexed(
    db: &dyn RowDatabase,
) -> Result<BTreeMap<CountKey, u64>, EngineError> {
    let mut indexed = BTreeMap::new();
    let mut rows = RowCursor::all(db, INDEXED).await?;
    while let Some(row) = rows.next().await? {
        let count = row.value.as_ref().try_into().ok().map(u64::from_be_bytes);
        if let (Some(key), Some(count)) = (keys::count_of(&row.key), count) {
            indexed.insert(key, count);
        }
    }
    Ok(indexed)
}
