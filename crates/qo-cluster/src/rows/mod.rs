//! The rows of a node on its disk, behind a port.
//!
//! Rows are derived from the log, so writing them needs no sync: a node that lost the last writes applies the entries again. The rows and
//! the position in the log up to which they are applied change together, in one transaction. Before entries are deleted from the log, the
//! rows are synced ([`RowStore::sync`]). A node collects changes before it writes them ([`collected`]).

mod collected;
#[cfg(any(test, feature = "test-util"))]
mod memory;
mod sqlite;

use std::io;
use std::ops::Bound;

use bytes::Bytes;
use qo_broker::rows::{Row, RowWrite};
use qo_core::Timestamp;

pub(crate) use collected::CollectedRows;
#[cfg(any(test, feature = "test-util"))]
pub use memory::MemoryRows;
pub(crate) use sqlite::{CACHE_BYTES, SqliteRows};

/// The key of the row that says what is applied. No row of the queue begins with this byte.
pub(crate) const APPLIED: &[u8] = b"\0applied";

/// A change of the rows.
#[derive(Debug)]
pub enum RowChange {
    /// One row.
    Write(RowWrite),
    /// Deletes the first `limit` rows, by expiry and key, that expire at `before` or earlier.
    Sweep {
        /// The time.
        before: Timestamp,
        /// The most rows to delete.
        limit: u32,
    },
}

/// A database of rows. Its methods block.
pub trait RowStore: Send + Sync + 'static {
    /// The row with this key.
    fn get(&self, key: &[u8]) -> io::Result<Option<Row>>;

    /// Rows in the order of their keys, up to `limit` of them.
    fn page(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, limit: usize) -> io::Result<Vec<Row>>;

    /// Whether a row expires at `before` or earlier.
    fn has_expired(&self, before: Timestamp) -> io::Result<bool>;

    /// Makes changes in order and atomically. They need not survive a crash.
    fn write(&self, changes: &[RowChange]) -> io::Result<()>;

    /// Makes all changes so far survive a crash.
    fn sync(&self) -> io::Result<()>;

    /// Learns what an entry changes when it is applied. The changes are written later, together with others, and without those that were
    /// replaced meanwhile. The simulator follows each task by this.
    fn applied(&self, _changes: &[RowChange]) {}

    /// A consistent view of all rows.
    fn snapshot(&self) -> io::Result<Box<dyn RowSnapshot>>;

    /// Begins to receive the rows of another node.
    fn stage(&self) -> io::Result<Box<dyn RowStage>>;
}

/// A consistent view of all rows.
pub trait RowSnapshot: Send {
    /// The row with this key.
    fn get(&self, key: &[u8]) -> io::Result<Option<Row>>;

    /// The next rows, in any order. Empty at the end.
    fn next_page(&mut self) -> io::Result<Vec<Row>>;
}

/// Rows that are being received, beside the rows in use.
pub trait RowStage: Send {
    /// Adds rows.
    fn add(&mut self, rows: Vec<Row>) -> io::Result<()>;

    /// Prepares the installation, as far as that is possible while the rows in use are read. [`install`](Self::install) does what is missing.
    fn prepare(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Replaces the rows in use by these, which survive a crash from then on. A crash before that leaves the rows as they were. If it fails
    /// because the disk is full, it can be called again. Once it has succeeded, the stage is empty and must not be used any more.
    fn install(&mut self) -> io::Result<()>;
}

/// The rows of one kind, in pages.
pub(crate) fn kind_bounds(
    kind: u8,
    range: &(Bound<Bytes>, Bound<Bytes>),
) -> (Bound<Bytes>, Bound<Bytes>) {
    let prefixed = |rest: &Bytes| {
        let mut key = Vec::with_capacity(rest.len() + 1);
        key.push(kind);
        key.extend_from_slice(rest);
        Bytes::from(key)
    };
    let start = match &range.0 {
        Bound::Included(start) => Bound::Included(prefixed(start)),
        Bound::Excluded(start) => Bound::Excluded(prefixed(start)),
        Bound::Unbounded => Bound::Included(Bytes::copy_from_slice(&[kind])),
    };
    let end = match &range.1 {
        Bound::Included(end) => Bound::Included(prefixed(end)),
        Bound::Excluded(end) => Bound::Excluded(prefixed(end)),
        Bound::Unbounded => match kind.checked_add(1) {
            Some(next) => Bound::Excluded(Bytes::copy_from_slice(&[next])),
            None => Bound::Unbounded,
        },
    };
    (start, end)
}

/// A bound by reference.
pub(crate) fn as_slice(bound: &Bound<Bytes>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}
