//! The log and the vote of a node on its disk, as openraft's log storage.
//!
//! | step of an append | effect of a crash right after it |
//! | --- | --- |
//! | 1. the entries are in memory and can be read; a leader sends them to the others | this node has lost them, and others may keep them |
//! | 2. the frame is written, in part or as a whole | a torn frame is cut off, as in step 1; a whole one is kept, which is harmless |
//! | 3. the file is synced: **the entries are durable** | the entries are kept |
//! | 4. openraft is told, and acknowledges them | none |
//!
//! Because of step 1, a leader that restarts must not lead on in its old term: it would give the log ids of entries that it lost to other
//! entries, while other nodes keep the lost ones under the same ids and find no conflict. A node always starts as a follower, and a new
//! leader has a new term (`enable_leader_restore` of openraft is off).
//!
//! | step of a purge | effect of a crash right after it |
//! | --- | --- |
//! | 1. the rows are synced up to the entry ([`crate::machine`]) | none |
//! | 2. the purge is written and synced | entries up to there are ignored |
//! | 3. files without needed entries are deleted, oldest first | the others are deleted at the next purge |

mod files;
mod frame;
mod recovery;
mod state;
mod writer;

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState as RaftLogState, OptionalSend, RaftLogReader};
use qo_store::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

pub use files::LogFiles;
pub(crate) use files::{DiskFiles, sync_directory};

use self::frame::Record;
use self::state::{LogState, Segment};
use self::writer::{Waiter, WriteRequest};
use crate::codec::Decoder;
use crate::disk_full::{DiskFull, Part};
use crate::raft_types::{Entry, LogId, TypeConfig, Vote, entry_bytes, get_entry};

/// How many bytes of entries are read at once: for one message to another node, or to be applied together.
const READ_BYTES: usize = 4 * 1024 * 1024;

/// How many bytes of entries the logs of a node keep in memory together, besides those that are not written yet.
pub(crate) const CACHE_BYTES: usize = 64 * 1024 * 1024;

/// What all handles of the log share.
pub(crate) struct LogShared {
    files: Arc<dyn LogFiles>,
    runtime: Arc<dyn Runtime>,
    state: Mutex<LogState>,
    /// The vote, the purge and the last entry as of the last synced frame. A new file begins with them.
    durable: Mutex<Durable>,
    full: DiskFull,
    last_sync_us: AtomicU64,
    cache_bytes: usize,
}

#[derive(Debug, Default, Clone, Copy)]
struct Durable {
    vote: Option<Vote>,
    purged: Option<LogId>,
    last: Option<LogId>,
}

/// What is known about the log, for status.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogStats {
    pub(crate) first_index: u64,
    pub(crate) last_index: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) last_sync: Duration,
}

impl LogShared {
    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn durable(&self) -> MutexGuard<'_, Durable> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what a synced frame contains.
    fn record_durable(&self, records: &[Record]) {
        let mut durable = self.durable();
        for record in records {
            match record {
                Record::Entry(log_id, _) => durable.last = Some(*log_id),
                Record::Vote(vote) => durable.vote = Some(*vote),
                Record::Truncate(after) => durable.last = after.or(durable.purged),
                Record::Purged(log_id) => {
                    durable.purged = durable.purged.max(Some(*log_id));
                    durable.last = durable.last.max(durable.purged);
                }
                Record::Continues(_) => {}
            }
        }
    }

    /// The file to write to, if it is not too large.
    fn active_segment(&self, segment_bytes: u64) -> Option<Segment> {
        let active = self.lock().segments.back().copied();
        active.filter(|segment| segment.bytes < segment_bytes)
    }

    fn set_full(&self, is_full: bool) {
        self.full.set(Part::Log, is_full);
    }

    fn record_sync(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.last_sync_us.store(micros, Ordering::Relaxed);
    }
}

/// The log of a node. Clones share everything.
#[derive(Clone)]
pub struct LogStore {
    shared: Arc<LogShared>,
    requests: mpsc::UnboundedSender<WriteRequest>,
}

impl LogStore {
    /// Reads the log, and starts the task that writes it. So many bytes of the newest entries stay in memory.
    pub async fn open(
        files: Arc<dyn LogFiles>,
        runtime: Arc<dyn Runtime>,
        segment_bytes: u64,
        cache_bytes: usize,
    ) -> io::Result<Self> {
        let state = recovery::recover(files.as_ref()).await?;
        let durable = Durable {
            vote: state.vote,
            purged: state.purged,
            last: state.last(),
        };
        let shared = Arc::new(LogShared {
            files,
            runtime: Arc::clone(&runtime),
            state: Mutex::new(state),
            durable: Mutex::new(durable),
            full: DiskFull::default(),
            last_sync_us: AtomicU64::new(0),
            cache_bytes,
        });
        let (requests, receiver) = mpsc::unbounded_channel();
        let writing = writer::run(Arc::clone(&shared), receiver, segment_bytes);
        runtime.spawn(Box::pin(writing));
        Ok(Self { shared, requests })
    }

    /// Whether the disk is full. The rows report it there, too.
    pub(crate) fn full(&self) -> &DiskFull {
        &self.shared.full
    }

    pub(crate) fn stats(&self) -> LogStats {
        let state = self.shared.lock();
        LogStats {
            first_index: state.first_index(),
            last_index: state.last().map(|last| last.index),
            bytes: state.bytes(),
            last_sync: Duration::from_micros(self.shared.last_sync_us.load(Ordering::Relaxed)),
        }
    }

    /// The last entry that does not belong to the newest `bytes` of the log.
    pub(crate) fn last_beyond(&self, bytes: u64) -> Option<u64> {
        let state = self.shared.lock();
        let mut newer = 0;
        let mut entries = state.slots.iter().rev();
        let beyond = entries.find(|slot| {
            newer += slot.length as u64;
            newer > bytes
        });
        beyond.map(|slot| slot.log_id.index)
    }

    fn send(&self, records: Vec<Record>, waiter: Waiter) {
        if let Err(unsent) = self.requests.send(WriteRequest { records, waiter }) {
            let ended = Err(io::Error::other("the log of this node was closed"));
            match unsent.0.waiter {
                Waiter::Raft(flushed) => flushed.io_completed(ended),
                Waiter::Caller(reply) => drop(reply.send(ended)),
            }
        }
    }

    async fn write(&self, record: Record) -> io::Result<()> {
        let (reply, written) = oneshot::channel();
        self.send(vec![record], Waiter::Caller(reply));
        written
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the log of this node was closed")))
    }

    /// The entries from `start` up to, not including, `end`, as many as fit into a read, and at least one if there is one.
    pub(crate) async fn read(&self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let mut plan = Vec::new();
        {
            let state = self.shared.lock();
            let mut size = 0;
            for index in start.max(state.first_slot())..end {
                let Some(slot) = state.slot(index) else {
                    break;
                };
                size += slot.length;
                if size > READ_BYTES && !plan.is_empty() {
                    break;
                }
                plan.push((slot.log_id, slot.length, slot.stored, slot.cached.clone()));
            }
        }
        let mut entries = Vec::with_capacity(plan.len());
        for (log_id, length, stored, cached) in plan {
            let entry = match (cached, stored) {
                (Some(entry), _) => entry,
                (None, Some((location, checksum))) => {
                    let name = location.segment.to_string();
                    let bytes = self.shared.files.read(&name, location.offset, length);
                    let bytes = bytes.await?;
                    if bytes.len() != length || crc32fast::hash(&bytes) != checksum {
                        return Err(io::Error::new(
                            io::ErrorKind::InvalidData,
                            format!(
                                "entry {log_id} in the log file {name} has changed since it was written: check the disk, and replace this node"
                            ),
                        ));
                    }
                    get_entry(&mut Decoder::new(bytes))?
                }
                (None, None) => {
                    return Err(io::Error::other(format!("entry {log_id} is nowhere")));
                }
            };
            entries.push(entry);
        }
        Ok(entries)
    }

    /// All entries of a range that exist.
    async fn read_all(&self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut next = start.max(self.shared.lock().first_slot());
        while next < end {
            let part = self.read(next, end).await?;
            if part.is_empty() {
                break;
            }
            next += part.len() as u64;
            entries.extend(part);
        }
        Ok(entries)
    }
}

fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start + 1,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end + 1,
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        let (start, end) = bounds(&range);
        self.read_all(start, end).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.shared.lock().vote)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.read(start, end).await
    }

    /// Reads a bounded part at a time.
    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<Entry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (start, end) = bounds(&range);
        let log = self.clone();
        let parts = stream::try_unfold(start, move |next| {
            let log = log.clone();
            async move {
                // The stream ends with the log. An entry that is missing before that is an error.
                if next >= end.min(log.shared.lock().next_index()) {
                    return Ok(None);
                }
                let entries = log.read(next, end).await?;
                if entries.first().map(|entry| entry.log_id.index) != Some(next) {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("entry {next} of the log is missing"),
                    ));
                }
                let after = next + entries.len() as u64;
                Ok::<_, io::Error>(Some((entries, after)))
            }
        });
        let entries = parts.map_ok(|part| stream::iter(part.into_iter().map(Ok)));
        entries.try_flatten().boxed()
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<RaftLogState<TypeConfig>> {
        let state = self.shared.lock();
        Ok(RaftLogState {
            last_purged_log_id: state.purged,
            last_log_id: state.last(),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.write(Record::Vote(*vote)).await?;
        self.shared.lock().vote = Some(*vote);
        Ok(())
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut records = Vec::new();
        {
            let mut state = self.shared.lock();
            for entry in entries {
                let bytes = entry_bytes(&entry);
                records.push(Record::Entry(entry.log_id, bytes.clone()));
                state.push(entry, bytes.len());
            }
        }
        self.send(records, Waiter::Raft(callback));
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        self.shared.lock().truncate_after(last_log_id);
        self.write(Record::Truncate(last_log_id)).await
    }

    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        self.shared.lock().purge(log_id);
        self.write(Record::Purged(log_id)).await?;
        let unneeded = self.shared.lock().unneeded_segments();
        for name in unneeded {
            self.shared.files.remove(&name.to_string()).await?;
            self.shared.lock().segments.pop_front();
        }
        Ok(())
    }
}
