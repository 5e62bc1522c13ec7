//! The rows of this node as the database of the engine.

use std::collections::VecDeque;
use std::io;
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use qo_broker::rows::{Row, RowDatabase, RowRange, RowScan, RowWrite, ScanPurpose};
use qo_core::Timestamp;
use qo_engine::EngineError;
use qo_store::StoreError;

use super::proposer::Proposer;
use crate::blocking::{self, BlockingPool};
use crate::proposal::Proposal;
use crate::rows::{RowStore, as_slice, kind_bounds};

/// How many rows a page has when everything is loaded, and otherwise.
const LOAD_PAGE: usize = 8_192;
const PAGE: usize = 512;

/// Reads the rows of this node.
#[derive(Clone)]
pub(super) struct RowReader {
    pub(super) rows: Arc<dyn RowStore>,
    pub(super) pool: Arc<dyn BlockingPool>,
}

/// Reads the rows of this node, and proposes changes.
#[derive(Clone)]
pub(super) struct ClusterRows {
    pub(super) reader: RowReader,
    pub(super) proposer: Proposer,
    pub(super) now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

/// The error that the disk failed.
pub(super) fn disk(error: &io::Error) -> EngineError {
    if error.kind() == io::ErrorKind::InvalidData {
        return EngineError::Store(StoreError::Corrupt {
            key: "cluster".to_owned(),
            detail: error.to_string(),
        });
    }
    super::proposer::stopped(&error.to_string())
}

impl ClusterRows {
    /// Proposes rows outside of groups.
    pub(super) async fn propose(&self, writes: &[RowWrite]) -> Result<(), EngineError> {
        let proposal = Proposal::rows((self.now)(), self.proposer.epoch(), writes);
        self.proposer.propose(proposal).await.map(drop)
    }
}

impl RowReader {
    /// Rows of one kind, from the first after `start`.
    pub(super) async fn page(
        &self,
        start: Bound<Bytes>,
        end: Bound<Bytes>,
        limit: usize,
    ) -> io::Result<Vec<Row>> {
        let rows = Arc::clone(&self.rows);
        blocking::run(&self.pool, move || {
            rows.page(as_slice(&start), as_slice(&end), limit)
        })
        .await
    }

    pub(super) async fn row(&self, key: Bytes) -> io::Result<Option<Row>> {
        let rows = Arc::clone(&self.rows);
        blocking::run(&self.pool, move || rows.get(&key)).await
    }

    /// The rows with these keys, read by one job.
    async fn rows(&self, keys: Vec<Bytes>) -> io::Result<Vec<Option<Row>>> {
        let rows = Arc::clone(&self.rows);
        blocking::run(&self.pool, move || {
            keys.iter().map(|key| rows.get(key)).collect()
        })
        .await
    }
}

#[async_trait]
impl RowDatabase for ClusterRows {
    fn name(&self) -> &'static str {
        "the rows of the cluster"
    }

    async fn get(&self, key: Bytes) -> Result<Option<Row>, EngineError> {
        self.reader.row(key).await.map_err(|error| disk(&error))
    }

    async fn get_many(&self, keys: Vec<Bytes>) -> Result<Vec<Option<Row>>, EngineError> {
        let rows = self.reader.rows(keys).await;
        rows.map_err(|error| disk(&error))
    }

    async fn scan(
        &self,
        kind: u8,
        range: RowRange,
        purpose: ScanPurpose,
    ) -> Result<Box<dyn RowScan>, EngineError> {
        let (start, end) = kind_bounds(kind, &range);
        Ok(Box::new(ClusterScan {
            rows: self.reader.clone(),
            start,
            end,
            page: if purpose == ScanPurpose::Load {
                LOAD_PAGE
            } else {
                PAGE
            },
            is_done: false,
        }))
    }

    async fn write(&self, writes: Vec<RowWrite>) -> Result<(), EngineError> {
        self.propose(&writes).await
    }
}

struct ClusterScan {
    rows: RowReader,
    start: Bound<Bytes>,
    end: Bound<Bytes>,
    page: usize,
    is_done: bool,
}

#[async_trait]
impl RowScan for ClusterScan {
    async fn next_page(&mut self) -> Result<Vec<Row>, EngineError> {
        if self.is_done {
            return Ok(Vec::new());
        }
        let page = self
            .rows
            .page(self.start.clone(), self.end.clone(), self.page);
        let page = page.await.map_err(|error| disk(&error))?;
        match page.last() {
            Some(row) if page.len() == self.page => {
                self.start = Bound::Excluded(row.key.clone());
            }
            _ => self.is_done = true,
        }
        Ok(page)
    }
}

/// The pages of a list, one row at a time.
pub(super) struct RowList {
    pub(super) source: RowReader,
    pub(super) start: Bound<Bytes>,
    pub(super) end: Bound<Bytes>,
    pub(super) buffer: VecDeque<Row>,
    pub(super) is_done: bool,
}

impl RowList {
    pub(super) async fn next(&mut self) -> io::Result<Option<Row>> {
        if self.buffer.is_empty() && !self.is_done {
            let page = self
                .source
                .page(self.start.clone(), self.end.clone(), PAGE)
                .await?;
            self.is_done = page.len() < PAGE;
            if let Some(row) = page.last() {
                self.start = Bound::Excluded(row.key.clone());
            }
            self.buffer.extend(page);
        }
        Ok(self.buffer.pop_front())
    }
}
