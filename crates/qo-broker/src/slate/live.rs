//! Reading all live tasks.
//!
//! Whoever opens a queue with a million tasks waits for the store, table after table, for rows to be merged, for records to be decoded,
//! and for tasks to be taken into the state. So that all of this happens at once, the places of tasks are cut into ranges where the
//! database's own tables begin, which makes ranges that hold about equally much, wherever the live tasks are. A few readers take a
//! range each, read and decode it, and go on to the next. The state takes in what comes, in whatever order: the places tell the
//! order of tasks.
//!
//! Nothing is written before all of it is read, so that ranges which are read one after the other still are of one state. What is under
//! way is bounded: readers wait when the state does not follow.

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
use super::load::{corrupt, joined, next};

/// How many readers there are at most.
const READERS: usize = 4;
/// How many ranges there are, about: each looks into all tables that are not yet sorted into others.
const RANGES_MAX: usize = 16;
/// How much of a table is read at once, and how many such reads a reader has under way.
const READ_AHEAD_BYTES: usize = 2 * 1024 * 1024;
const READS_AT_ONCE: usize = 4;
/// How many tasks are handed over together, and how many such parts may wait.
const PART_TASKS: usize = 1_024;
const PARTS_WAITING: usize = 8;

/// Places in the order of submits, the end not among them; without an end it goes on to the last place that there is.
struct Range {
    start: u64,
    end: Option<u64>,
}

/// What a reader hands over.
enum Read {
    Tasks(Vec<Task>),
    /// All of a range has been handed over.
    RangeEnd,
}

/// Reads all live tasks into the state.
pub(super) async fn load_tasks(
    db: &Db,
    runtime: &Arc<dyn Runtime>,
    state: &mut QueueState,
) -> Result<(), EngineError> {
    let ranges: Arc<[Range]> = ranges(&table_starts(db)).into();
    let taken = Arc::new(AtomicUsize::new(0));
    let (hand_over, mut read) = mpsc::channel(PARTS_WAITING);
    for _ in 0..READERS.min(ranges.len()) {
        let (db, ranges, taken) = (db.clone(), Arc::clone(&ranges), Arc::clone(&taken));
        let hand_over = hand_over.clone();
        runtime.spawn(Box::pin(async move {
            while let Some(range) = ranges.get(taken.fetch_add(1, Ordering::Relaxed)) {
                let ended = read_range(&db, range, &hand_over).await;
                let is_over = ended.is_err();
                // Whoever has given up opening need not be told.
                if hand_over.send(ended).await.is_err() || is_over {
                    return;
                }
            }
        }));
    }
    drop(hand_over);
    let mut ranges_left = ranges.len();
    while let Some(read) = read.recv().await {
        match read? {
            Read::Tasks(tasks) => {
                for task in tasks {
                    state.load(task);
                }
            }
            Read::RangeEnd => ranges_left -= 1,
        }
    }
    // Readers that went away without a word have left something out.
    if ranges_left > 0 {
        return Err(EngineError::Closed);
    }
    Ok(())
}

/// The places at which tables of the database begin.
fn table_starts(db: &Db) -> BTreeSet<u64> {
    let manifest = db.manifest();
    let tables = manifest.compacted().iter().flat_map(SortedRun::sst_views);
    tables
        .filter_map(|table| table.sst.info.first_entry.as_ref())
        .filter(|key| key.first() == Some(&LIVE))
        .filter_map(|key| keys::place_of(key))
        .collect()
}

/// All places, cut where tables begin.
fn ranges(starts: &BTreeSet<u64>) -> Vec<Range> {
    let tables_each = starts.len().div_ceil(RANGES_MAX).max(1);
    let mut ranges = Vec::new();
    let mut start = 0;
    let ends = starts.iter().copied().filter(|end| *end > 0);
    for end in ends.skip(tables_each - 1).step_by(tables_each) {
        ranges.push(Range {
            start,
            end: Some(end),
        });
        start = end;
    }
    ranges.push(Range { start, end: None });
    ranges
}

/// Reads and decodes the tasks of a range, and hands them over.
async fn read_range(
    db: &Db,
    range: &Range,
    hand_over: &mpsc::Sender<Result<Read, EngineError>>,
) -> Result<Read, EngineError> {
    let mut rows = LiveRows::scan(db, range).await?;
    loop {
        let mut tasks = Vec::with_capacity(PART_TASKS);
        while tasks.len() < PART_TASKS
            && let Some((record, input)) = rows.next().await?
        {
            let task = decode_compact(&record)
                .map_err(|error| corrupt(format!("the record of a live task: {error}")))?;
            tasks.push(joined(task, input.as_deref())?);
        }
        let is_last = tasks.len() < PART_TASKS;
        hand_over
            .send(Ok(Read::Tasks(tasks)))
            .await
            .map_err(|_| EngineError::Closed)?;
        if is_last {
            return Ok(Read::RangeEnd);
        }
    }
}

/// Records and inputs come in the same order, so that both are read once, side by side.
struct LiveRows {
    records: DbIterator,
    inputs: DbIterator,
    input: Option<KeyValue>,
}

impl LiveRows {
    async fn scan(db: &Db, range: &Range) -> Result<Self, EngineError> {
        let records = scan(db, LIVE, range).await?;
        let mut inputs = scan(db, INPUT, range).await?;
        let input = next(&mut inputs).await?;
        Ok(Self {
            records,
            inputs,
            input,
        })
    }

    /// The rows of the next task: its record, and its input if that has a row of its own.
    async fn next(&mut self) -> Result<Option<(Bytes, Option<Bytes>)>, EngineError> {
        let Some(record) = next(&mut self.records).await? else {
            return Ok(None);
        };
        let place = place_of(&record.key)?;
        let mut input = None;
        while let Some(row) = &self.input {
            let of = place_of(&row.key)?;
            if of > place {
                break;
            }
            if of == place {
                input = Some(row.value.clone());
            }
            self.input = next(&mut self.inputs).await?;
        }
        Ok(Some((record.value, input)))
    }
}

async fn scan(db: &Db, kind: u8, range: &Range) -> Result<DbIterator, EngineError> {
    let options = ScanOptions {
        read_ahead_bytes: READ_AHEAD_BYTES,
        max_fetch_tasks: READS_AT_ONCE,
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

fn place_of(key: &[u8]) -> Result<u64, EngineError> {
    keys::place_of(key).ok_or_else(|| corrupt("a key is none".to_owned()))
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

    fn cut_at(starts: &[u64]) -> Vec<(u64, Option<u64>)> {
        let ranges = ranges(&starts.iter().copied().collect());
        ranges
            .into_iter()
            .map(|range| (range.start, range.end))
            .collect()
    }

    #[test]
    fn ranges_follow_one_another_and_leave_nothing_out() {
        assert_eq!(cut_at(&[]), [(0, None)]);
        assert_eq!(cut_at(&[0]), [(0, None)]);
        assert_eq!(
            cut_at(&[7, 0, 700, 7]),
            [(0, Some(7)), (7, Some(700)), (700, None)]
        );
        assert_eq!(cut_at(&[u64::MAX]), [(0, Some(u64::MAX)), (u64::MAX, None)]);
    }

    #[test]
    fn many_tables_share_ranges() {
        let starts: Vec<u64> = (0..1_000).map(|number| number * 10).collect();
        let cut = cut_at(&starts);
        assert!(
            (RANGES_MAX / 2..=RANGES_MAX + 1).contains(&cut.len()),
            "{cut:?}"
        );
        assert_eq!(cut[0].0, 0);
        assert!(
            cut.windows(2).all(|pair| pair[0].1 == Some(pair[1].0)),
            "{cut:?}"
        );
        assert_eq!(cut.last().unwrap().1, None);
    }

    /// A database that makes many small tables of little, and sorts them at once.
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

    fn task(place: u64) -> Task {
        let input = Json::parse(format!("[{place},\"{}\"]", "x".repeat(200))).unwrap();
        let mut submission = Submission::new(
            TaskId::from_random(u128::from(place)),
            "noop".parse().unwrap(),
            Payload::Inline(input),
        );
        submission.priority = 3;
        let op = OpId::from_random(u128::from(place));
        let mut task = submit(submission, op, Timestamp::from_millis(1_000)).unwrap();
        task.sequence = place;
        task
    }

    #[tokio::test]
    async fn what_is_in_many_tables_is_read_once_each_and_whole() {
        const TASKS: u64 = 3_000;
        let db = small_tables().await;
        for place in 1..=TASKS {
            // Every tenth has its input in a row of its own, which may be in another table than its record.
            let task = task(place);
            let is_apart = place % 10 == 0;
            if is_apart {
                let input = task.inline_input().unwrap().as_str();
                let key = keys::of_place(INPUT, place);
                db.put(key, input).await.unwrap();
            }
            let record = encode_compact(&task, !is_apart).unwrap();
            db.put(keys::of_place(LIVE, place), record).await.unwrap();
        }
        let runtime = TokioRuntime::shared();
        let mut waited = 0;
        while ranges(&table_starts(&db)).len() < 4 {
            assert!(waited < 6_000, "the tables are not sorted");
            waited += 1;
            runtime.sleep(Duration::from_millis(10)).await;
            db.flush().await.unwrap();
        }
        let mut state = QueueState::new();
        load_tasks(&db, &runtime, &mut state).await.unwrap();
        assert_eq!(state.len() as u64, TASKS);
        for place in 1..=TASKS {
            let expected = task(place);
            assert_eq!(state.task(expected.id), Some(&expected));
        }
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_is_told_and_nothing_is_left_out() {
        let db = small_tables().await;
        db.put(keys::of_place(LIVE, 7), "not a record")
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
