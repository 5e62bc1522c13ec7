//! Reads all live tasks.
//!
//! Opening a queue with a million tasks takes time for reading tables from the store, merging rows, decoding records, and loading
//! tasks into the state. To do all of this concurrently, the sequence numbers are split into ranges at the starts of the
//! database's tables, which makes ranges of about equal size wherever the live tasks are. A few readers take one range each, read and
//! decode it, and continue with the next. The state loads tasks in any order, because their sequence numbers give their order.
//!
//! Nothing is written before everything is read, so ranges that are read one after the other belong to one state. The data in
//! flight is bounded: readers wait when the state does not keep up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use qo_core::task::decode_compact;
use qo_core::{QueueState, Task};
use qo_engine::EngineError;
use qo_store::runtime::Runtime;
use slatedb::config::ScanOptions;
use slatedb::manifest::SortedRun;
use slatedb::{Db, DbIterator, KeyValue};
use tokio::sync::mpsc;

use super::error::from_slate;
use super::keys::{self, INPUT, LIVE};
use super::load::{corrupt, join_input, next};

/// The most concurrent readers.
const READERS: usize = 4;
/// The approximate maximum of ranges. Each range reads all tables that are not yet compacted.
const RANGES_MAX: usize = 16;
/// The size of a read, and how many reads a reader has in flight.
const READ_AHEAD_BYTES: usize = 2 * 1024 * 1024;
const READS_IN_FLIGHT: usize = 4;
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
    /// All tasks of a range have been sent.
    RangeEnd,
}

/// Reads all live tasks into the state.
pub(super) async fn load_tasks(
    db: &Db,
    runtime: &Arc<dyn Runtime>,
    state: &mut QueueState,
) -> Result<(), EngineError> {
    let ranges: Arc<[SequenceRange]> = ranges(&table_starts(db)).into();
    let next_range = Arc::new(AtomicUsize::new(0));
    let (sender, mut parts) = mpsc::channel(PARTS_WAITING);
    for _ in 0..READERS.min(ranges.len()) {
        let (db, ranges, next_range) = (db.clone(), Arc::clone(&ranges), Arc::clone(&next_range));
        let sender = sender.clone();
        runtime.spawn(Box::pin(async move {
            while let Some(range) = ranges.get(next_range.fetch_add(1, Ordering::Relaxed)) {
                let end = read_range(&db, range, &sender).await;
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
            ReadPart::RangeEnd => ranges_left -= 1,
        }
    }
    // A reader that stopped without an error has not read all of its ranges.
    if ranges_left > 0 {
        return Err(EngineError::Closed);
    }
    Ok(())
}

/// The sequence numbers at which tables of the database start.
fn table_starts(db: &Db) -> BTreeSet<u64> {
    let manifest = db.manifest();
    let tables = manifest.compacted().iter().flat_map(SortedRun::sst_views);
    tables
        .filter_map(|table| table.sst.info.first_entry.as_ref())
        .filter(|key| key.first() == Some(&LIVE))
        .filter_map(|key| keys::sequence_of(key))
        .collect()
}

/// Splits all sequence numbers into ranges at the starts of tables.
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
    db: &Db,
    range: &SequenceRange,
    sender: &mpsc::Sender<Result<ReadPart, EngineError>>,
) -> Result<ReadPart, EngineError> {
    let mut rows = LiveRows::scan(db, range).await?;
    loop {
        let mut tasks = Vec::with_capacity(PART_TASKS);
        while tasks.len() < PART_TASKS
            && let Some((record, input)) = rows.next().await?
        {
            let task = decode_compact(&record)
                .map_err(|error| corrupt(format!("the record of a live task: {error}")))?;
            tasks.push(join_input(task, input.as_deref())?);
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

/// Records and inputs have the same order, so both are read once, in parallel.
struct LiveRows {
    records: DbIterator,
    inputs: DbIterator,
    input: Option<KeyValue>,
}

impl LiveRows {
    async fn scan(db: &Db, range: &SequenceRange) -> Result<Self, EngineError> {
        let records = scan(db, LIVE, range).await?;
        let mut inputs = scan(db, INPUT, range).await?;
        let input = next(&mut inputs).await?;
        Ok(Self {
            records,
            inputs,
            input,
        })
    }

    /// The rows of the next task: its record, and its input if that has its own row.
    async fn next(&mut self) -> Result<Option<(Bytes, Option<Bytes>)>, EngineError> {
        let Some(record) = next(&mut self.records).await? else {
            return Ok(None);
        };
        let sequence = sequence_of(&record.key)?;
        let mut input = None;
        while let Some(row) = &self.input {
            let input_sequence = sequence_of(&row.key)?;
            if input_sequence > sequence {
                break;
            }
            if input_sequence == sequence {
                input = Some(row.value.clone());
            }
            self.input = next(&mut self.inputs).await?;
        }
        Ok(Some((record.value, input)))
    }
}

async fn scan(db: &Db, kind: u8, range: &SequenceRange) -> Result<DbIterator, EngineError> {
    let options = ScanOptions {
        read_ahead_bytes: READ_AHEAD_BYTES,
        max_fetch_tasks: READS_IN_FLIGHT,
        cache_blocks: false,
        ..ScanOptions::default()
    };
    let start = range.start.to_be_bytes();
    let rows = match range.end.map(u64::to_be_bytes) {
        Some(end) => {
            db.scan_prefix_with_options([kind], start..end, &options)
                .await
        }
        None => db.scan_prefix_with_options([kind], start.., &options).await,
    };
    rows.map_err(|error| from_slate(&error))
}

fn sequence_of(key: &[u8]) -> Result<u64, EngineError> {
    keys::sequence_of(key).ok_or_else(|| corrupt("a key is malformed".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use object_store::memory::InMemory;
    use qo_core::task::encode_compact;
    use qo_core::transition::submit;
    use qo_core::{Json, OpId, Payload, Submission, TaskId, Timestamp};
    use qo_store::runtime::TokioRuntime;
    use slatedb::Settings;
    use slatedb::config::{CompactionWorkerOptions, CompactorOptions};

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

    /// A database with small tables and immediate compaction.
    async fn small_tables() -> Db {
        const TABLE_BYTES: usize = 16 * 1024;
        let poll_interval = Duration::from_millis(20);
        let settings = Settings {
            l0_sst_size_bytes: TABLE_BYTES,
            compactor_options: Some(CompactorOptions {
                poll_interval,
                scheduler_options: HashMap::from([(
                    "min_compaction_sources".to_owned(),
                    "2".to_owned(),
                )]),
                worker: Some(CompactionWorkerOptions {
                    compactions_poll_interval: poll_interval,
                    max_sst_size: TABLE_BYTES,
                    ..CompactionWorkerOptions::default()
                }),
                ..CompactorOptions::default()
            }),
            ..Settings::default()
        };
        let building = Db::builder("queue", Arc::new(InMemory::new())).with_settings(settings);
        building.build().await.unwrap()
    }

    fn task(sequence: u64) -> Task {
        let input = Json::parse(format!("[{sequence},\"{}\"]", "x".repeat(200))).unwrap();
        let mut submission = Submission::new(
            TaskId::from_random(u128::from(sequence)),
            "noop".parse().unwrap(),
            Payload::Inline(input),
        );
        submission.priority = 3;
        let op = OpId::from_random(u128::from(sequence));
        let mut task = submit(submission, op, Timestamp::from_millis(1_000)).unwrap();
        task.sequence = sequence;
        task
    }

    #[tokio::test]
    async fn tasks_in_many_tables_are_each_read_once_and_completely() {
        const TASKS: u64 = 3_000;
        let db = small_tables().await;
        for sequence in 1..=TASKS {
            // Every tenth task has its input in its own row, which may be in another table than its record.
            let task = task(sequence);
            let is_separate = sequence % 10 == 0;
            if is_separate {
                let input = task.inline_input().unwrap().as_str();
                let key = keys::of_sequence(INPUT, sequence);
                db.put(key, input).await.unwrap();
            }
            let record = encode_compact(&task, !is_separate).unwrap();
            db.put(keys::of_sequence(LIVE, sequence), record)
                .await
                .unwrap();
        }
        let runtime = TokioRuntime::shared();
        let mut waited = 0;
        while ranges(&table_starts(&db)).len() < 4 {
            assert!(waited < 6_000, "the tables are not compacted");
            waited += 1;
            runtime.sleep(Duration::from_millis(10)).await;
            db.flush().await.unwrap();
        }
        let mut state = QueueState::new();
        load_tasks(&db, &runtime, &mut state).await.unwrap();
        assert_eq!(state.len() as u64, TASKS);
        for sequence in 1..=TASKS {
            let expected = task(sequence);
            assert_eq!(state.task(expected.id), Some(&expected));
        }
    }

    #[tokio::test]
    async fn an_unreadable_record_is_an_error() {
        let db = small_tables().await;
        db.put(keys::of_sequence(LIVE, 7), "not a record")
            .await
            .unwrap();
        let mut state = QueueState::new();
        let loaded = load_tasks(&db, &TokioRuntime::shared(), &mut state).await;
        assert!(
            loaded
                .as_ref()
                .is_err_and(|error| error.to_string().contains("record")),
            "{loaded:?}"
        );
    }
}
