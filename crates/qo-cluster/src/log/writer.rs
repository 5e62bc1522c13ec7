//! Writes records to the log: all that wait become one frame, one write and one sync.
//!
//! A frame is begun only after the previous one was synced, which makes recovery exact ([`super::frame`]). While the disk is full, nothing
//! is acknowledged and the writer tries again: the node neither votes nor accepts entries, and continues by itself once there is room.
//! Any other error of the disk ends the node: what the disk holds then is unknown until the log is read again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::storage::IOFlushed;
use tokio::sync::{mpsc, oneshot};

use super::LogShared;
use super::frame::{self, Record, SegmentName};
use super::state::Segment;
use crate::raft_types::TypeConfig;

/// The most bytes of entries in one frame, besides the last entry.
const FRAME_BYTES: usize = 16 * 1024 * 1024;
/// The most requests in one frame.
const REQUESTS_MAX: usize = 1_024;
/// How long to wait before the next attempt while the disk is full.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Who waits for a request.
pub(super) enum Waiter {
    Raft(IOFlushed<TypeConfig>),
    Caller(oneshot::Sender<io::Result<()>>),
}

impl Waiter {
    fn complete(self, result: &io::Result<()>) {
        let result = match result {
            Ok(()) => Ok(()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        match self {
            Self::Raft(flushed) => flushed.io_completed(result),
            Self::Caller(reply) => {
                // The caller may have gone.
                let _ = reply.send(result);
            }
        }
    }
}

/// Records to write.
pub(super) struct WriteRequest {
    pub(super) records: Vec<Record>,
    pub(super) waiter: Waiter,
}

impl WriteRequest {
    fn bytes(&self) -> usize {
        let one = |record: &Record| match record {
            Record::Entry(_, bytes) => bytes.len(),
            _ => 64,
        };
        self.records.iter().map(one).sum()
    }
}

/// Writes until the log is closed.
pub(super) async fn run(
    log: Arc<LogShared>,
    mut requests: mpsc::UnboundedReceiver<WriteRequest>,
    segment_bytes: u64,
) {
    let mut failure: Option<io::Error> = None;
    let mut waiting: Option<WriteRequest> = None;
    loop {
        let first = match waiting.take() {
            Some(request) => request,
            None => match requests.recv().await {
                Some(request) => request,
                None => return,
            },
        };
        let mut size = first.bytes();
        let mut records = first.records;
        let mut waiters = vec![first.waiter];
        while waiters.len() < REQUESTS_MAX
            && let Ok(request) = requests.try_recv()
        {
            size += request.bytes();
            if size > FRAME_BYTES {
                waiting = Some(request);
                break;
            }
            records.extend(request.records);
            waiters.push(request.waiter);
        }
        let result = match &failure {
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
            None => write(&log, &records, segment_bytes).await,
        };
        if let (None, Err(error)) = (&failure, &result) {
            tracing::error!(%error, "cannot write the log; this node stops");
            failure = Some(io::Error::new(error.kind(), error.to_string()));
        }
        for waiter in waiters {
            waiter.complete(&result);
        }
    }
}

/// Writes one frame.
async fn write(log: &LogShared, records: &[Record], segment_bytes: u64) -> io::Result<()> {
    let segment = match log.active_segment(segment_bytes) {
        Some(segment) => segment,
        None => begin_segment(log).await?,
    };
    let (frame, places) = frame::encode(segment.name.salt, records);
    let length = frame.len() as u64;
    let began = log.runtime.monotonic();
    append(log, &segment, frame).await?;
    let took = log.runtime.monotonic().saturating_sub(began);
    log.record_durable(records);
    let mut state = log.lock();
    for place in &places {
        state.written(segment.name, segment.bytes, place);
    }
    let last_index = places.iter().map(|place| place.log_id.index).max();
    if let Some(active) = state.segments.back_mut() {
        active.bytes += length;
        active.last_index = active.last_index.max(last_index);
    }
    state.evict(log.cache_bytes);
    drop(state);
    log.record_sync(took);
    Ok(())
}

/// Begins a new file with what must not be lost when the earlier ones are deleted.
async fn begin_segment(log: &LogShared) -> io::Result<Segment> {
    let number = log.lock().next_segment;
    let durable = *log.durable();
    let mut records = Vec::new();
    records.extend(durable.vote.map(Record::Vote));
    records.extend(durable.purged.map(Record::Purged));
    records.push(Record::Continues(durable.last));
    #[expect(
        clippy::cast_possible_truncation,
        reason = "32 of the 64 random bits are wanted"
    )]
    let salt = log.runtime.random() as u32;
    let name = SegmentName { number, salt };
    loop {
        match log.files.create(&name.to_string()).await {
            Ok(()) => break,
            Err(error) if is_full(&error) => wait_for_room(log, &error).await,
            Err(error) => return Err(error),
        }
    }
    let (frame, _) = frame::encode(salt, &records);
    let bytes = frame.len() as u64;
    let empty = Segment {
        name,
        bytes: 0,
        last_index: None,
    };
    append(log, &empty, frame).await?;
    let segment = Segment { bytes, ..empty };
    let mut state = log.lock();
    state.next_segment = number + 1;
    state.segments.push_back(segment);
    Ok(segment)
}

/// Appends to a file of which `segment.bytes` are known to be written. Waits while the disk is full.
async fn append(log: &LogShared, segment: &Segment, frame: Bytes) -> io::Result<()> {
    let name = segment.name.to_string();
    loop {
        match log.files.append(&name, frame.clone()).await {
            Ok(()) => {
                log.set_full(false);
                return Ok(());
            }
            Err(error) if is_full(&error) => {
                // A part of the frame may have been written.
                log.files.truncate(&name, segment.bytes).await?;
                wait_for_room(log, &error).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

async fn wait_for_room(log: &LogShared, error: &io::Error) {
    log.set_full(true);
    tracing::error!(%error, "the disk of the log is full: this node accepts no changes until there is room");
    log.runtime.sleep(FULL_PAUSE).await;
}
