//! Collects changes in memory, and writes many of them to the rows below in one transaction.
//!
//! A task is submitted, claimed and completed within moments, and each of these steps changes its rows. Collected, most of the changes replace
//! each other in memory, and a page of the database is written once for many rows.
//!
//! ```text
//! write ──► active layer ──► frozen layer ──► the rows below        a read looks in this order
//!             in memory,       full, is being
//!             grows            written
//! ```
//!
//! | step | effect of a crash right after it |
//! | --- | --- |
//! | 1. the changes of entries, and the position in the log with them, are added to the active layer | they are lost, and the entries are applied again: the log has them |
//! | 2. the active layer is large: it is frozen, and a new one begins | as in step 1 |
//! | 3. the frozen layer is written below in one transaction, unsynced | either all of it is kept or nothing, and the position in it says which: entries after it are applied again |
//! | 4. the frozen layer is dropped | none: the rows below contain it |
//!
//! The log is cut only up to the position of a snapshot, and **a snapshot is taken of the rows below**, never of what is in memory:
//! [`RowStore::snapshot`] writes both layers first, and if the disk is full, it is a view of what is below, which is not older than the
//! last snapshot. [`RowStore::sync`] fails unless both layers were written.
//!
//! A sweep depends on all rows, so both layers are written before it, and it passes by them.
//!
//! While the disk is full, changes are collected until both layers are full. Then writing fails, and the caller tries again.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::io;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use qo_broker::rows::{Row, RowWrite};
use qo_core::Timestamp;

use super::{RowChange, RowSnapshot, RowStage, RowStore};

/// What a row needs in memory besides its key and value.
const ROW_OVERHEAD_BYTES: usize = 64;

/// Changes that are not written below yet. Clones share everything.
#[derive(Clone)]
pub(crate) struct CollectedRows(Arc<Inner>);

struct Inner {
    below: Arc<dyn RowStore>,
    layers: RwLock<Layers>,
    /// Held while a layer is written below. Taken before the lock of the layers.
    writing: Mutex<Writing>,
    /// Whether a layer was frozen that nobody has begun to write.
    is_waiting: AtomicBool,
    /// The size from which a layer is frozen.
    layer_bytes: usize,
}

/// The right to write below.
#[derive(Default)]
struct Writing {
    is_closed: bool,
}

#[derive(Default)]
struct Layers {
    active: Layer,
    frozen: Option<Arc<Layer>>,
}

/// The newest state of rows: the row, or that it is deleted.
#[derive(Default)]
struct Layer {
    rows: BTreeMap<Bytes, Option<Row>>,
    /// The size of everything that was added, also of what was replaced since: rows are parts of entries, which stay in memory as a whole.
    bytes: usize,
}

impl Layer {
    fn add(&mut self, write: &RowWrite) {
        let (key, row) = match write {
            RowWrite::Put(row) => (&row.key, Some(row)),
            RowWrite::Delete(key) => (key, None),
        };
        self.bytes += key.len() + row.map_or(0, |row| row.value.len()) + ROW_OVERHEAD_BYTES;
        self.rows.insert(key.clone(), row.cloned());
    }

    fn changes(&self) -> Vec<RowChange> {
        let changes = self.rows.iter().map(|(key, row)| match row {
            Some(row) => RowWrite::Put(row.clone()),
            None => RowWrite::Delete(key.clone()),
        });
        changes.map(RowChange::Write).collect()
    }
}

impl Layers {
    /// The state of a row, if a layer has it.
    fn find(&self, key: &[u8]) -> Option<&Option<Row>> {
        let active = self.active.rows.get(key);
        active.or_else(|| self.frozen.as_ref()?.rows.get(key))
    }

    /// Freezes the active layer, if it has anything and no other one is frozen.
    fn freeze(&mut self) -> bool {
        let can = self.frozen.is_none() && !self.active.rows.is_empty();
        if can {
            self.frozen = Some(Arc::new(std::mem::take(&mut self.active)));
        }
        can
    }

    fn layers(&self) -> impl Iterator<Item = &Layer> {
        std::iter::once(&self.active).chain(self.frozen.as_deref())
    }
}

/// The rows of both layers in a range, in the order of their keys.
struct Above<'a> {
    active: Peekable<Range<'a, Bytes, Option<Row>>>,
    frozen: Option<Peekable<Range<'a, Bytes, Option<Row>>>>,
}

impl<'a> Above<'a> {
    fn new(layers: &'a Layers, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Self {
        let range = |layer: &'a Layer| layer.rows.range::<[u8], _>((start, end)).peekable();
        Self {
            active: range(&layers.active),
            frozen: layers.frozen.as_deref().map(range),
        }
    }

    /// The next row, if its key is not after `last`. Without `last`, the next row.
    fn next_until(&mut self, last: Option<&[u8]>) -> Option<(&'a Bytes, &'a Option<Row>)> {
        let active = self.active.peek().map(|(key, _)| *key);
        let frozen = self.frozen.as_mut().and_then(Peekable::peek);
        let frozen = frozen.map(|(key, _)| *key);
        let key = match (active, frozen) {
            (Some(active), Some(frozen)) => active.min(frozen),
            (Some(key), None) | (None, Some(key)) => key,
            (None, None) => return None,
        };
        if last.is_some_and(|last| key.as_ref() > last) {
            return None;
        }
        // A row of the active layer replaces one of the frozen layer.
        let older = match &mut self.frozen {
            Some(rows) if frozen == Some(key) => rows.next(),
            _ => None,
        };
        if active == Some(key) {
            return self.active.next();
        }
        older
    }
}

/// Whether no key can be in a range. A map panics if it is asked for some of these.
fn is_empty(start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    match (start, end) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end))
        | (Bound::Excluded(start), Bound::Included(end)) => start >= end,
    }
}

fn has_sweep(changes: &[RowChange]) -> bool {
    let mut changes = changes.iter();
    changes.any(|change| matches!(change, RowChange::Sweep { .. }))
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::StorageFull
}

impl CollectedRows {
    pub(crate) fn new(below: Arc<dyn RowStore>, layer_bytes: usize) -> Self {
        Self(Arc::new(Inner {
            below,
            layers: RwLock::default(),
            writing: Mutex::default(),
            is_waiting: AtomicBool::new(false),
            layer_bytes,
        }))
    }

    /// Makes changes if that needs neither the disk nor waiting. Returns whether they are made.
    pub(crate) fn collect(&self, changes: &[RowChange]) -> bool {
        let Ok(mut layers) = self.0.layers.try_write() else {
            return false;
        };
        let can = !has_sweep(changes) && !self.0.is_behind(&layers);
        if can {
            self.0.add(&mut layers, changes);
        }
        can
    }

    /// Whether a layer waits to be written. The caller that gets true writes it ([`flush`](Self::flush)).
    pub(crate) fn begin_flush(&self) -> bool {
        self.0.is_waiting.swap(false, Ordering::AcqRel)
    }

    /// Writes the frozen layer. If this fails, a later write or sync tries it again and reports the error.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let writing = self.0.begin()?;
        self.0.write_frozen(&writing)
    }

    /// Writes what is collected, as far as there is room, and nothing any more afterwards: another process may use the rows from then on.
    pub(crate) fn close(&self) -> io::Result<()> {
        let mut writing = self.0.lock();
        if writing.is_closed {
            return Ok(());
        }
        let written = self.0.write_all(&writing);
        writing.is_closed = true;
        written
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the right to write below.
    fn begin(&self) -> io::Result<MutexGuard<'_, Writing>> {
        let writing = self.lock();
        if writing.is_closed {
            return Err(io::Error::other("the rows of this node were closed"));
        }
        Ok(writing)
    }

    fn read(&self) -> RwLockReadGuard<'_, Layers> {
        self.layers.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Layers> {
        self.layers.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is no room for further changes until the frozen layer is written.
    fn is_behind(&self, layers: &Layers) -> bool {
        layers.frozen.is_some() && layers.active.bytes >= self.layer_bytes
    }

    fn add(&self, layers: &mut Layers, changes: &[RowChange]) {
        for change in changes {
            if let RowChange::Write(write) = change {
                layers.active.add(write);
            }
        }
        if layers.active.bytes >= self.layer_bytes && layers.freeze() {
            self.is_waiting.store(true, Ordering::Release);
        }
    }

    fn write_frozen(&self, _writing: &MutexGuard<'_, Writing>) -> io::Result<()> {
        let frozen = self.read().frozen.clone();
        if let Some(frozen) = frozen {
            self.below.write(&frozen.changes())?;
            self.change().frozen = None;
        }
        Ok(())
    }

    fn write_all(&self, writing: &MutexGuard<'_, Writing>) -> io::Result<()> {
        self.write_frozen(writing)?;
        self.change().freeze();
        self.write_frozen(writing)
    }
}

impl RowStore for CollectedRows {
    fn applied(&self, changes: &[RowChange]) {
        self.0.below.applied(changes);
    }

    fn get(&self, key: &[u8]) -> io::Result<Option<Row>> {
        let collected = self.0.read().find(key).cloned();
        match collected {
            Some(row) => Ok(row),
            // The lock is not held while the disk is read, so that entries can be applied. No row is missed: when the lock was held, no
            // layer had the row, so its state was the one below. What is written below since then is only newer.
            None => self.0.below.get(key),
        }
    }

    fn page(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, limit: usize) -> io::Result<Vec<Row>> {
        if is_empty(start, end) {
            return Ok(Vec::new());
        }
        // While the lock is held, a frozen layer may be written below, but not be dropped. So a reader never misses it.
        let layers = self.0.read();
        let mut above = Above::new(&layers, start, end);
        let mut found = Vec::new();
        let mut last: Option<Bytes> = None;
        while found.len() < limit {
            let start = last.as_deref().map_or(start, Bound::Excluded);
            let part = self.0.below.page(start, end, limit)?;
            let is_last = part.len() < limit;
            for row in part {
                last = Some(row.key.clone());
                let mut is_replaced = false;
                while let Some((key, newer)) = above.next_until(Some(&row.key)) {
                    is_replaced = *key == row.key;
                    found.extend(newer.clone());
                }
                found.extend((!is_replaced).then_some(row));
            }
            if is_last {
                while found.len() < limit
                    && let Some((_, row)) = above.next_until(None)
                {
                    found.extend(row.clone());
                }
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    fn has_expired(&self, before: Timestamp) -> io::Result<bool> {
        let layers = self.0.read();
        let mut rows = layers.layers().flat_map(|layer| layer.rows.values());
        let is_expired = |row: &Row| row.expires_at.is_some_and(|at| at <= before);
        if rows.any(|row| row.as_ref().is_some_and(is_expired)) {
            return Ok(true);
        }
        self.0.below.has_expired(before)
    }

    fn write(&self, changes: &[RowChange]) -> io::Result<()> {
        if has_sweep(changes) {
            let writing = self.0.begin()?;
            self.0.write_all(&writing)?;
            return self.0.below.write(changes);
        }
        let is_behind = self.0.is_behind(&self.0.read());
        if is_behind {
            let writing = self.0.begin()?;
            self.0.write_frozen(&writing)?;
        }
        self.0.add(&mut self.0.change(), changes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let writing = self.0.begin()?;
        self.0.write_all(&writing)?;
        self.0.below.sync()
    }

    fn snapshot(&self) -> io::Result<Box<dyn RowSnapshot>> {
        let writing = self.0.begin()?;
        match self.0.write_all(&writing) {
            // What is below is a whole state, too, and not older than the last snapshot.
            Err(error) if !is_full(&error) => Err(error),
            _ => self.0.below.snapshot(),
        }
    }

    fn stage(&self) -> io::Result<Box<dyn RowStage>> {
        Ok(Box::new(CollectedStage {
            stage: self.0.below.stage()?,
            rows: self.clone(),
        }))
    }
}

/// Received rows, which replace those below and what is collected.
struct CollectedStage {
    stage: Box<dyn RowStage>,
    rows: CollectedRows,
}

impl RowStage for CollectedStage {
    fn add(&mut self, rows: Vec<Row>) -> io::Result<()> {
        self.stage.add(rows)
    }

    fn install(&mut self) -> io::Result<()> {
        // Nobody may write an older layer into the new rows.
        let _writing = self.rows.0.begin()?;
        // The longest part, during which rows can be read.
        self.stage.prepare()?;
        let mut layers = self.rows.0.change();
        self.stage.install()?;
        *layers = Layers::default();
        Ok(())
    }
}

#[cfg(test)]
#[path = "collected_tests.rs"]
mod tests;
