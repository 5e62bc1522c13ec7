//! Applies committed entries to the rows of a node, as openraft's state machine.
//!
//! | step | effect of a crash right after it |
//! | --- | --- |
//! | 1. the entries are committed in the log | they are applied after the restart |
//! | 2. their rows and the position are collected, and written in one transaction with others, unsynced ([`crate::rows`]) | either all are kept or none: in that case the entries are applied again |
//! | 3. notify the proposer | none |
//! | 4. a snapshot syncs the rows; the log before it may be deleted | none |
//!
//! A snapshot is the database itself: building one only syncs it, and a node that is behind gets a consistent view of all rows, page by
//! page.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use qo_broker::rows::RowWrite;
use qo_core::Timestamp;
use qo_store::runtime::Runtime;
use tokio::sync::watch;

use crate::blocking::{self, BlockingPool};
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::disk_full::{DiskFull, Part};
use crate::proposal::{Action, Applied, EntryOutcome};
use crate::raft_types::{
    Entry, LogId, SnapshotMeta, StoredMembers, TypeConfig, get_log_id, get_stored_members,
    put_log_id, put_stored_members,
};
use crate::rows::{APPLIED, CollectedRows, RowChange, RowSnapshot, RowStage, RowStore};

/// The most entries that one transaction applies.
const ENTRIES_MAX: usize = 256;
/// How long to wait before the next attempt while the disk is full.
const FULL_PAUSE: Duration = Duration::from_secs(1);

pub(crate) type Snapshot = openraft::type_config::alias::SnapshotOf<TypeConfig, SnapshotData>;

/// What is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AppliedState {
    /// The last applied entry.
    pub(crate) log_id: Option<LogId>,
    /// The last applied members.
    pub(crate) members: StoredMembers,
    /// The index of the last barrier.
    pub(crate) epoch: u64,
    /// The number of the last group since then.
    pub(crate) number: u64,
    /// The latest time that an entry carried.
    pub(crate) time: Timestamp,
}

impl Default for AppliedState {
    fn default() -> Self {
        Self {
            log_id: None,
            members: StoredMembers::default(),
            epoch: 0,
            number: 0,
            time: Timestamp::MIN,
        }
    }
}

impl AppliedState {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Encoder::default();
        out.option(self.log_id, put_log_id);
        put_stored_members(&mut out, &self.members);
        out.u64(self.epoch)
            .u64(self.number)
            .i64(self.time.as_millis());
        out.finish()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut input = Decoder::new(bytes);
        let state = Self {
            log_id: input.option(get_log_id)?,
            members: get_stored_members(&mut input)?,
            epoch: input.u64()?,
            number: input.u64()?,
            time: Timestamp::from_millis(input.i64()?),
        };
        input.end()?;
        Ok(state)
    }

    /// Decides what an entry does. Every node decides the same.
    fn apply(&mut self, entry: &Entry, changes: &mut Vec<RowChange>) -> io::Result<Applied> {
        let index = entry.log_id.index;
        let outcome = match &entry.payload {
            EntryPayload::Blank => EntryOutcome::Applied,
            EntryPayload::Membership(members) => {
                self.members = StoredMembers::new(Some(entry.log_id), members.clone());
                EntryOutcome::Applied
            }
            EntryPayload::Normal(proposal) => {
                let decoded = proposal.decode_rows()?;
                self.time = self.time.max(decoded.time);
                let is_current = decoded.epoch == self.epoch;
                match decoded.action {
                    Action::Barrier => {
                        self.epoch = index;
                        self.number = 0;
                        EntryOutcome::Applied
                    }
                    Action::Group { number, writes, .. }
                        if is_current && number == self.number + 1 =>
                    {
                        self.number = number;
                        changes.extend(writes.into_iter().map(RowChange::Write));
                        EntryOutcome::Applied
                    }
                    Action::Rows(writes) if is_current => {
                        changes.extend(writes.into_iter().map(RowChange::Write));
                        EntryOutcome::Applied
                    }
                    Action::Sweep { before, limit } if is_current => {
                        changes.push(RowChange::Sweep { before, limit });
                        EntryOutcome::Applied
                    }
                    Action::Group { .. } | Action::Rows(_) | Action::Sweep { .. } => {
                        EntryOutcome::Stale
                    }
                }
            }
        };
        self.log_id = Some(entry.log_id);
        Ok(Applied { outcome, index })
    }

    fn change(&self) -> RowChange {
        RowChange::Write(RowWrite::put(APPLIED, self.encode()))
    }
}

/// What is applied, for the rest of the node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppliedPoint {
    pub(crate) index: Option<u64>,
    pub(crate) epoch: u64,
    pub(crate) number: u64,
    /// The cluster's time, and when this node learnt it by its monotonic clock.
    pub(crate) time: Timestamp,
    pub(crate) at: Duration,
}

/// The state machine of a node.
pub struct StateMachine {
    rows: CollectedRows,
    disk: RowDisk,
    state: AppliedState,
    published: watch::Sender<AppliedPoint>,
}

impl StateMachine {
    /// Reads what is applied.
    pub(crate) async fn open(
        rows: CollectedRows,
        pool: Arc<dyn BlockingPool>,
        runtime: Arc<dyn Runtime>,
    ) -> io::Result<Self> {
        let store = rows.clone();
        let row = blocking::run(&pool, move || {
            // What was applied counts as a snapshot from now on, and the log before it may be deleted.
            store.sync()?;
            store.get(APPLIED)
        })
        .await?;
        let state = match row {
            Some(row) => AppliedState::decode(row.value)?,
            None => AppliedState::default(),
        };
        let machine = Self {
            rows,
            disk: RowDisk {
                pool,
                runtime,
                full: DiskFull::default(),
            },
            state,
            published: watch::Sender::new(AppliedPoint {
                index: None,
                epoch: 0,
                number: 0,
                time: Timestamp::MIN,
                at: Duration::ZERO,
            }),
        };
        machine.publish();
        Ok(machine)
    }

    /// Reports a full disk there.
    pub(crate) fn report_to(mut self, full: DiskFull) -> Self {
        self.disk.full = full;
        self
    }

    /// Follows what is applied.
    pub(crate) fn applied(&self) -> watch::Receiver<AppliedPoint> {
        self.published.subscribe()
    }

    fn publish(&self) {
        let point = AppliedPoint {
            index: self.state.log_id.map(|id| id.index),
            epoch: self.state.epoch,
            number: self.state.number,
            time: self.state.time,
            at: self.disk.runtime.monotonic(),
        };
        self.published.send_modify(|published| {
            // The time is from when it was learnt, not from the last entry without a newer one.
            let at = if published.time == point.time {
                published.at
            } else {
                point.at
            };
            *published = AppliedPoint { at, ..point };
        });
    }

    /// Writes rows. Waits while the disk is full: the entries are in the log, and the node continues by itself once there is room.
    async fn write(&self, changes: Vec<RowChange>) -> io::Result<()> {
        if !self.rows.collect(&changes) {
            let (rows, changes) = (self.rows.clone(), Arc::new(changes));
            let write = move || rows.write(&changes);
            let consequence = "this node applies nothing until there is space";
            self.disk.run(write, consequence).await?;
        }
        self.flush();
        Ok(())
    }

    /// Lets collected rows be written, if there are many. Entries are applied meanwhile.
    fn flush(&self) {
        if !self.rows.begin_flush() {
            return;
        }
        let (rows, disk) = (self.rows.clone(), self.disk.clone());
        self.disk.runtime.spawn(Box::pin(async move {
            let flush = move || rows.flush();
            let consequence = "this node accepts no changes until there is space";
            let flushed = disk.run(flush, consequence);
            if let Err(error) = flushed.await {
                tracing::warn!(%error, "cannot write the rows now; it is tried again");
            }
        }));
    }

    async fn view(&self) -> io::Result<(AppliedState, Box<dyn RowSnapshot>)> {
        let rows = self.rows.clone();
        blocking::run(&self.disk.pool, move || view(&rows)).await
    }
}

/// The disk of the rows.
#[derive(Clone)]
struct RowDisk {
    pool: Arc<dyn BlockingPool>,
    runtime: Arc<dyn Runtime>,
    full: DiskFull,
}

impl RowDisk {
    /// Runs a job that writes, again and again while the disk is full. Callers of the node are told meanwhile.
    async fn run<T: Send + 'static>(
        &self,
        job: impl Fn() -> io::Result<T> + Send + Sync + 'static,
        consequence: &str,
    ) -> io::Result<T> {
        let job = Arc::new(job);
        let mut was_full = false;
        loop {
            let attempt = Arc::clone(&job);
            match blocking::run(&self.pool, move || attempt()).await {
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    tracing::error!(%error, "the disk of the rows is full: {consequence}");
                    was_full = true;
                    self.full.set(Part::Rows, true);
                    self.runtime.sleep(FULL_PAUSE).await;
                }
                done => {
                    // Others may still find it full: a job that did not need the disk says nothing about it.
                    if was_full {
                        self.full.set(Part::Rows, false);
                    }
                    return done;
                }
            }
        }
    }
}

fn view(rows: &CollectedRows) -> io::Result<(AppliedState, Box<dyn RowSnapshot>)> {
    let view = rows.snapshot()?;
    let state = match view.get(APPLIED)? {
        Some(row) => AppliedState::decode(row.value)?,
        None => AppliedState::default(),
    };
    Ok((state, view))
}

/// Copies the rows of a view.
fn staged(rows: &CollectedRows, mut view: Box<dyn RowSnapshot>) -> io::Result<Box<dyn RowStage>> {
    let mut stage = rows.stage()?;
    loop {
        let page = view.next_page()?;
        if page.is_empty() {
            return Ok(stage);
        }
        stage.add(page)?;
    }
}

fn snapshot_of(state: &AppliedState, view: Box<dyn RowSnapshot>) -> Snapshot {
    Snapshot {
        meta: SnapshotMeta {
            last_log_id: state.log_id,
            last_membership: state.members.clone(),
        },
        snapshot: SnapshotData::View(view),
    }
}

/// The rows of a snapshot.
pub enum SnapshotData {
    /// The rows of this node.
    View(Box<dyn RowSnapshot>),
    /// The rows of another node, received.
    Received(Box<dyn RowStage>),
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembers)> {
        Ok((self.state.log_id, self.state.members.clone()))
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        // Entries that are ready together share a transaction.
        let mut parts = entries.ready_chunks(ENTRIES_MAX);
        while let Some(part) = parts.next().await {
            let mut changes = Vec::new();
            let mut replies = Vec::new();
            for item in part {
                let (entry, responder) = item?;
                let before = changes.len();
                let applied = self.state.apply(&entry, &mut changes)?;
                self.rows.applied(&changes[before..]);
                if let Some(responder) = responder {
                    replies.push((responder, applied));
                }
            }
            changes.push(self.state.change());
            self.write(changes).await?;
            self.publish();
            for (responder, applied) in replies {
                responder.send(applied);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder {
            rows: self.rows.clone(),
            disk: self.disk.clone(),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: SnapshotData,
    ) -> io::Result<()> {
        let rows = self.rows.clone();
        let stage = match snapshot {
            SnapshotData::Received(stage) => stage,
            SnapshotData::View(view) => {
                blocking::run(&self.disk.pool, move || staged(&rows, view)).await?
            }
        };
        let stage = Mutex::new(stage);
        let install = move || {
            let mut stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
            stage.install()
        };
        // An error would stop the node.
        let consequence = "this node cannot install a snapshot until there is space";
        self.disk.run(install, consequence).await?;
        let rows = self.rows.clone();
        let row = blocking::run(&self.disk.pool, move || rows.get(APPLIED)).await?;
        self.state = match row {
            Some(row) => AppliedState::decode(row.value)?,
            None => AppliedState::default(),
        };
        if self.state.log_id != meta.last_log_id {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a snapshot from another node does not contain what it says",
            ));
        }
        self.publish();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let (state, view) = self.view().await?;
        Ok(state.log_id.map(|_| snapshot_of(&state, view)))
    }
}

/// Syncs the rows.
pub struct SnapshotBuilder {
    rows: CollectedRows,
    disk: RowDisk,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let rows = self.rows.clone();
        let build = move || {
            // What the view contains was written before the sync. The sync fails if anything that is collected cannot be written.
            let (state, view) = view(&rows)?;
            rows.sync()?;
            Ok(snapshot_of(&state, view))
        };
        // An error would stop the node. The log is kept until there is space.
        let consequence = "the log cannot be truncated until there is space";
        self.disk.run(build, consequence).await
    }
}
