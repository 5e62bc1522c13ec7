//! The port to a database of rows: reading, writing a group atomically, and proving that nobody else writes.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::ops::Bound;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use qo_core::Timestamp;
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::runtime::BoxFuture;

use crate::command::Command;

/// How many rows are read at once.
pub(super) const READ_CONCURRENTLY: usize = 64;

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its key. The first byte is the kind of the row.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// When it expires. A database may return an expired row until it has dropped it.
    pub expires_at: Option<Timestamp>,
}

/// A change of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowWrite {
    /// Writes a row, whether it exists or not.
    Put(Row),
    /// Deletes a row, which need not exist.
    Delete(Bytes),
}

impl RowWrite {
    /// Writes a row that does not expire.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::Put(Row {
            key: key.into(),
            value: value.into(),
            expires_at: None,
        })
    }
}

/// The changes of one group. They become durable together.
#[derive(Debug)]
pub struct RowGroup {
    /// The rows, in order: a later write of the same key wins.
    pub writes: Vec<RowWrite>,
    /// The commands that led to them, if [`RowWriter::names_commands`].
    pub commands: Vec<Command>,
    /// The time at which the group was applied to the state.
    pub now: Timestamp,
}

/// Bounds of keys of one kind, without the byte of the kind.
pub type RowRange = (Bound<Bytes>, Bound<Bytes>);

/// What a scan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanPurpose {
    /// Reading everything when the queue is opened.
    Load,
    /// A list of finished tasks. It must return only what is durable.
    List,
    /// A few rows.
    Few,
}

/// Reads rows.
#[async_trait]
pub trait RowDatabase: Send + Sync + 'static {
    /// What error messages call the database.
    fn name(&self) -> &'static str;

    /// The row with this key.
    async fn get(&self, key: Bytes) -> Result<Option<Row>, EngineError>;

    /// The rows with these keys, in their order.
    async fn get_many(&self, keys: Vec<Bytes>) -> Result<Vec<Option<Row>>, EngineError> {
        let rows = futures_util::stream::iter(keys).map(|key| self.get(key));
        rows.buffered(READ_CONCURRENTLY).try_collect().await
    }

    /// The row with this key as it is durable, for lists.
    async fn get_durable(&self, key: Bytes) -> Result<Option<Row>, EngineError> {
        self.get(key).await
    }

    /// Rows of one kind in the order of their keys.
    async fn scan(
        &self,
        kind: u8,
        range: RowRange,
        purpose: ScanPurpose,
    ) -> Result<Box<dyn RowScan>, EngineError>;

    /// Writes rows outside of any group, and returns when they are durable or will be before any later group.
    async fn write(&self, writes: Vec<RowWrite>) -> Result<(), EngineError>;

    /// Writes rows like [`RowDatabase::write`], and returns when they and all earlier ones are durable.
    async fn write_durable(&self, writes: Vec<RowWrite>) -> Result<(), EngineError> {
        self.write(writes).await
    }

    /// Sequence numbers of live tasks that split them into parts of about equal size, if the database knows any.
    fn live_splits(&self) -> BTreeSet<u64> {
        BTreeSet::new()
    }

    /// The error that a stored row is invalid.
    fn corrupt(&self, detail: String) -> EngineError {
        EngineError::Store(StoreError::Corrupt {
            key: self.name().to_owned(),
            detail,
        })
    }
}

/// A scan in progress.
#[async_trait]
pub trait RowScan: Send {
    /// The next rows. Empty at the end.
    async fn next_page(&mut self) -> Result<Vec<Row>, EngineError>;
}

/// Writes groups in order.
#[async_trait]
pub trait RowWriter: Send + 'static {
    /// Begins to write a group. The future resolves when the group is durable and can be read, with its index if it is an entry of a
    /// replicated log. If it fails, the writer cannot be used any more.
    fn write(&mut self, group: RowGroup) -> BoxFuture<Result<Option<NonZeroU64>, EngineError>>;

    /// Resolves when all groups that were sent before this call can be read, or never will be.
    fn drained(&self) -> BoxFuture<()>;

    /// How many groups may be in flight at once.
    fn in_flight_max(&self) -> usize;

    /// Whether groups must name their commands.
    fn names_commands(&self) -> bool {
        false
    }

    /// Resolves when the writer learns, without a write, that it cannot be used any more.
    fn ended(&self) -> BoxFuture<EngineError>;

    /// Closes the database cleanly.
    async fn close(&mut self);
}

/// Proves that no other engine writes.
#[async_trait]
pub trait WriterCheck: Send + Sync + 'static {
    /// Checks that no other engine had taken over when this call began.
    async fn check(&self) -> Result<(), EngineError>;
}

/// Reads rows one by one.
pub(super) struct RowCursor {
    scan: Box<dyn RowScan>,
    page: std::vec::IntoIter<Row>,
    is_done: bool,
}

impl RowCursor {
    pub(super) async fn scan(
        db: &dyn RowDatabase,
        kind: u8,
        range: RowRange,
        purpose: ScanPurpose,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            scan: db.scan(kind, range, purpose).await?,
            page: Vec::new().into_iter(),
            is_done: false,
        })
    }

    /// All rows of a kind.
    pub(super) async fn all(db: &dyn RowDatabase, kind: u8) -> Result<Self, EngineError> {
        let range = (Bound::Unbounded, Bound::Unbounded);
        Self::scan(db, kind, range, ScanPurpose::Few).await
    }

    /// The next row.
    pub(super) async fn next(&mut self) -> Result<Option<Row>, EngineError> {
        loop {
            if let Some(row) = self.page.next() {
                return Ok(Some(row));
            }
            if self.is_done {
                return Ok(None);
            }
            let page = self.scan.next_page().await?;
            self.is_done = page.is_empty();
            self.page = page.into_iter();
        }
    }
}
