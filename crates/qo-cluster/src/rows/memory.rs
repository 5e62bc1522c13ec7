//! Rows in memory that forget what was not synced, as a disk does when the power fails.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use qo_broker::rows::{Row, RowWrite};
use qo_core::Timestamp;

use super::{RowChange, RowSnapshot, RowStage, RowStore};

type Rows = BTreeMap<Bytes, Row>;

/// Rows in memory. Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct MemoryRows(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    rows: Rows,
    synced: Rows,
    is_full: bool,
}

impl Inner {
    fn check_room(&self) -> io::Result<()> {
        if self.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl MemoryRows {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loses everything that was not synced.
    pub fn crash(&self) {
        let mut inner = self.lock();
        inner.rows = inner.synced.clone();
    }

    /// Lets writes, syncs and installations fail because there is no room, or succeed again.
    pub fn set_full(&self, is_full: bool) {
        self.lock().is_full = is_full;
    }

    /// Whether there is no room.
    pub fn is_full(&self) -> bool {
        self.lock().is_full
    }

    /// All rows that say something about the queue.
    pub fn all(&self) -> Vec<Row> {
        let is_queue = |row: &&Row| row.key.first() != Some(&0);
        self.lock()
            .rows
            .values()
            .filter(is_queue)
            .cloned()
            .collect()
    }
}

impl RowStore for MemoryRows {
    fn get(&self, key: &[u8]) -> io::Result<Option<Row>> {
        Ok(self.lock().rows.get(key).cloned())
    }

    fn page(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, limit: usize) -> io::Result<Vec<Row>> {
        let inner = self.lock();
        let rows = inner.rows.range::<[u8], _>((start, end));
        Ok(rows.take(limit).map(|(_, row)| row.clone()).collect())
    }

    fn has_expired(&self, before: Timestamp) -> io::Result<bool> {
        let inner = self.lock();
        let mut rows = inner.rows.values();
        Ok(rows.any(|row| row.expires_at.is_some_and(|at| at <= before)))
    }

    fn write(&self, changes: &[RowChange]) -> io::Result<()> {
        let mut inner = self.lock();
        inner.check_room()?;
        for change in changes {
            match change {
                RowChange::Write(RowWrite::Put(row)) => {
                    inner.rows.insert(row.key.clone(), row.clone());
                }
                RowChange::Write(RowWrite::Delete(key)) => {
                    inner.rows.remove(key);
                }
                RowChange::Sweep { before, limit } => {
                    let mut expired: Vec<(Timestamp, Bytes)> = inner
                        .rows
                        .values()
                        .filter_map(|row| Some((row.expires_at?, row.key.clone())))
                        .filter(|(at, _)| at <= before)
                        .collect();
                    expired.sort_unstable();
                    for (_, key) in expired.into_iter().take(*limit as usize) {
                        inner.rows.remove(&key);
                    }
                }
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.lock();
        inner.check_room()?;
        inner.synced = inner.rows.clone();
        Ok(())
    }

    fn snapshot(&self) -> io::Result<Box<dyn RowSnapshot>> {
        let rows = self.lock().rows.clone();
        Ok(Box::new(MemorySnapshot {
            rows,
            is_read: false,
        }))
    }

    fn stage(&self) -> io::Result<Box<dyn RowStage>> {
        Ok(Box::new(MemoryStage {
            target: self.clone(),
            rows: Rows::new(),
        }))
    }
}

struct MemorySnapshot {
    rows: Rows,
    is_read: bool,
}

impl RowSnapshot for MemorySnapshot {
    fn get(&self, key: &[u8]) -> io::Result<Option<Row>> {
        Ok(self.rows.get(key).cloned())
    }

    fn next_page(&mut self) -> io::Result<Vec<Row>> {
        if std::mem::replace(&mut self.is_read, true) {
            return Ok(Vec::new());
        }
        Ok(self.rows.values().cloned().collect())
    }
}

struct MemoryStage {
    target: MemoryRows,
    rows: Rows,
}

impl RowStage for MemoryStage {
    fn add(&mut self, rows: Vec<Row>) -> io::Result<()> {
        self.target.lock().check_room()?;
        let keyed = rows.into_iter().map(|row| (row.key.clone(), row));
        self.rows.extend(keyed);
        Ok(())
    }

    fn install(&mut self) -> io::Result<()> {
        let mut inner = self.target.lock();
        inner.check_room()?;
        inner.rows = std::mem::take(&mut self.rows);
        inner.synced = inner.rows.clone();
        Ok(())
    }
}
