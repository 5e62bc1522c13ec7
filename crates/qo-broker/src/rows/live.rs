//! Reads all live tasks.
//!
//! Opening a queue with a million tasks takes time for reading rows, decoding records, and loading tasks into the state. To do all of
//! this concurrently, the sequence numbers are split into ranges where the database proposes it (SlateDB at the starts of its tables),
//! which makes ranges of about equal size wherever the live tasks are. A few readers take one range each, read and
//! decode it, and continue with the next. The state loads tasks in any order, because their sequence numbers give their order.
//!
//! Nothing is written before everything is read, so ranges that are read one after the other belong to one state. The data in
//! flight is bounded: readers wait when the state does not keep up.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use qo_core::task::{DecodeError, Outline, decode_compact};
use qo_core::{QueueState, Task};
use qo_engine::EngineError;
use qo_store::runtime::Runtime;
use tokio::sync::mpsc;

use super::keys::{self, INPUT, LIVE};
use super::load::join_input;
use super::port::{Row, RowCursor, RowDatabase, ScanPurpose};

/// The most concurrent readers.
const READERS: usize = 4;
/// The approximate maximum of ranges. Each range reads all tables that are not yet compacted.
const RANGES_MAX: usize = 16;
/// How many tasks a reader sends at once, and how many such parts may wait.
const PART_TASKS: usize = 1_024;
const PARTS_WAITING: usize = 8;

/// A range of sequence numbers. `end` is exclusive; `None` means no upper bound.
struct SequenceRange {
    start: u64,
    end: Option<u64>,
}

/// A message from a reader.
enum ReadPart {
    Tasks(Vec<Task>),
    /// A task of a later version, and why it cannot be read.
    Newer(Outline, String),
    /// All tasks of a range have been sent.
    RangeEnd,
}

/// Reads all live tasks into the state.
pub(crate) async fn load_tasks(
    db: &Arc<dyn RowDatabase>,
    runtime: &Arc<dyn Runtime>,
    state: &mut QueueState,
) -> Result<(), EngineError> {
    let ranges: Arc<[SequenceRange]> = ranges(&db.live_splits()).into();
    let next_range = Arc::new(AtomicUsize::new(0));
    let (sender, mut parts) = mpsc::channel(PARTS_WAITING);
    for _ in 0..READERS.min(ranges.len()) {
        let (db, ranges, next_range) =
            (Arc::clone(db), Arc::clone(&ranges), Arc::clone(&next_range));
        let sender = sender.clone();
        runtime.spawn(Box::pin(async move {
            while let Some(range) = ranges.get(next_range.fetch_add(1, Ordering::Relaxed)) {
                let end = read_range(db.as_ref(), range, &sender).await;
                let has_failed = end.is_err();
                // The receiver is gone if opening was cancelled.
                if sender.send(end).await.is_err() || has_failed {
                    return;
                }
            }
        }));
    }
    drop(sender);
    let mut ranges_left = ranges.len();
    while let Some(part) = parts.recv().await {
        match part? {
            ReadPart::Tasks(tasks) => {
                for task in tasks {
                    state.load(task);
                }
            }
            ReadPart::Newer(outline, reason) => {
                tracing::warn!(task = %outline.id, reason, "skipping a task of a later version");
                state.reserve(outline, reason);
            }
            ReadPart::RangeEnd => ranges_left -= 1,
        }
    }
    // A reader that stopped without an error has not read all of its ranges.
    if ranges_left > 0 {
        return Err(EngineError::Closed);
    }
    Ok(())
}

/// Splits all sequence numbers into ranges.
fn ranges(starts: &BTreeSet<u64>) -> Vec<SequenceRange> {
    let tables_each = starts.len().div_ceil(RANGES_MAX).max(1);
    let mut ranges = Vec::new();
    let mut start = 0;
    let ends = starts.iter().copied().filter(|end| *end > 0);
    for end in ends.skip(tables_each - 1).step_by(tables_each) {
        ranges.push(SequenceRange {
            start,
            end: Some(end),
        });
        start = end;
    }
    ranges.push(SequenceRange { start, end: None });
    ranges
}

/// Reads and decodes the tasks of a range, and sends them.
async fn read_range(
    db: &dyn RowDatabase,
    range: &SequenceRange,
    sender: &mpsc::Sender<Result<ReadPart, EngineError>>,
) -> Result<ReadPart, EngineError> {
    let mut rows = LiveRows::scan(db, range).await?;
    loop {
        let mut tasks = Vec::with_capacity(PART_TASKS);
        while tasks.len() < PART_TASKS
            && let Some((record, input)) = rows.next().await?
        {
            match decode_compact(&record) {
                Ok(task) => {
                    let task = join_input(task, input.as_deref());
                    tasks.push(task.map_err(|detail| db.corrupt(detail))?);
                }
                Err(error) => {
                    let detail = || db.corrupt(format!("the record of a live task: {error}"));
                    let newer = newer_part(&record, &error).ok_or_else(detail)?;
                    let sent = sender.send(Ok(newer)).await;
                    sent.map_err(|_| EngineError::Closed)?;
                }
            }
        }
        let is_last = tasks.len() < PART_TASKS;
        sender
            .send(Ok(ReadPart::Tasks(tasks)))
            .await
            .map_err(|_| EngineError::Closed)?;
        if is_last {
            return Ok(ReadPart::RangeEnd);
        }
    }
}

/// What is kept of a record that a later version wrote; `None` if the record is damaged.
fn newer_part(record: &[u8], error: &DecodeError) -> Option<ReadPart> {
    let is_newer = matches!(error, DecodeError::Newer(_));
    let outline = Outline::of(record).filter(|_| is_newer)?;
    Some(ReadPart::Newer(outline, error.to_string()))
}

/// Records and inputs have the same order, so both are read once, in parallel.
struct LiveRows<'a> {
    db: &'a dyn RowDatabase,
    records: RowCursor,
    inputs: RowCursor,
    input: Option<Row>,
}

impl<'a> LiveRows<'a> {
    async fn scan(db: &'a dyn RowDatabase, range: &SequenceRange) -> Result<Self, EngineError> {
        let records = scan(db, LIVE, range).await?;
        let mut inputs = scan(db, INPUT, range).await?;
        let input = inputs.next().await?;
        Ok(Self {
            db,
            records,
            inputs,
            input,
        })
    }

    /// The rows of the next task: its record, and its input if that has its own row.
    async fn next(&mut self) -> Result<Option<(Bytes, Option<Bytes>)>, EngineError> {
        let Some(record) = self.records.next().await? else {
            return Ok(None);
        };
        let sequence = sequence_of(self.db, &record.key)?;
        let mut input = None;
        while let Some(row) = &self.input {
            let input_sequence = sequence_of(self.db, &row.key)?;
            if input_sequence > sequence {
                break;
            }
            if input_sequence == sequence {
                input = Some(row.value.clone());
            }
            self.input = self.inputs.next().await?;
        }
        Ok(Some((record.value, input)))
    }
}

async fn scan(
    db: &dyn RowDatabase,
    kind: u8,
    range: &SequenceRange,
) -> Result<RowCursor, EngineError> {
    let bound = |sequence: u64| Bytes::copy_from_slice(&sequence.to_be_bytes());
    let end = range
        .end
        .map_or(Bound::Unbounded, |end| Bound::Excluded(bound(end)));
    let range = (Bound::Included(bound(range.start)), end);
    RowCursor::scan(db, kind, range, ScanPurpose::Load).await
}

fn sequence_of(db: &dyn RowDatabase, key: &[u8]) -> Result<u64, EngineError> {
    keys::sequence_of(key).ok_or_else(|| db.corrupt("a key is malformed".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_at(starts: &[u64]) -> Vec<(u64, Option<u64>)> {
        let ranges = ranges(&starts.iter().copied().collect());
        ranges
            .into_iter()
            .map(|range| (range.start, range.end))
            .collect()
    }

    #[test]
    fn ranges_are_contiguous_and_complete() {
        assert_eq!(split_at(&[]), [(0, None)]);
        assert_eq!(split_at(&[0]), [(0, None)]);
        assert_eq!(
            split_at(&[7, 0, 700, 7]),
            [(0, Some(7)), (7, Some(700)), (700, None)]
        );
        assert_eq!(
            split_at(&[u64::MAX]),
            [(0, Some(u64::MAX)), (u64::MAX, None)]
        );
    }

    #[test]
    fn many_tables_share_ranges() {
        let starts: Vec<u64> = (0..1_000).map(|number| number * 10).collect();
        let split = split_at(&starts);
        assert!(
            (RANGES_MAX / 2..=RANGES_MAX + 1).contains(&split.len()),
            "{split:?}"
        );
        assert_eq!(split[0].0, 0);
        assert!(
            split.windows(2).all(|pair| pair[0].1 == Some(pair[1].0)),
            "{split:?}"
        );
        assert_eq!(split.last().unwrap().1, None);
    }
}
