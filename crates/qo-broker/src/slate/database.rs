//! SlateDB as a database of rows.

use std::collections::BTreeSet;

use async_trait::async_trait;
use bytes::Bytes;
use qo_core::Timestamp;
use qo_engine::EngineError;
use slatedb::config::{DurabilityLevel, PutOptions, ReadOptions, ScanOptions, Ttl};
use slatedb::manifest::SortedRun;
use slatedb::{Db, DbIterator, KeyValue, WriteBatch};

use super::clock;
use super::error::{DB_PATH, from_slate};
use crate::rows::keys::{self, LIVE};
use crate::rows::{Row, RowDatabase, RowRange, RowScan, RowWrite, ScanPurpose};

/// When everything is loaded: the size of a read, and how many reads are in flight.
const LOAD_READ_BYTES: usize = 2 * 1024 * 1024;
const LOAD_READS_IN_FLIGHT: usize = 4;
/// How much of a table a list reads at once.
const LIST_READ_BYTES: usize = 1024 * 1024;
/// How many rows a page of a scan has.
const PAGE: usize = 256;

pub(super) struct SlateDatabase {
    db: Db,
}

impl SlateDatabase {
    pub(super) fn new(db: Db) -> Self {
        Self { db }
    }
}

/// The batch with these writes, in order.
pub(super) fn batch_of(writes: Vec<RowWrite>) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for write in writes {
        match write {
            RowWrite::Put(row) => match row.expires_at {
                None => batch.put_bytes(row.key, row.value),
                Some(at) => {
                    let options = PutOptions {
                        ttl: Ttl::ExpireAtMillis(at.as_millis()),
                    };
                    batch.put_bytes_with_options(row.key, row.value, &options);
                }
            },
            RowWrite::Delete(key) => batch.delete(key),
        }
    }
    batch
}

#[async_trait]
impl RowDatabase for SlateDatabase {
    fn name(&self) -> &'static str {
        DB_PATH
    }

    async fn get(&self, key: Bytes) -> Result<Option<Row>, EngineError> {
        let row = self.db.get_key_value(key).await;
        Ok(row.map_err(|error| from_slate(&error))?.map(row_of))
    }

    async fn get_durable(&self, key: Bytes) -> Result<Option<Row>, EngineError> {
        let options = ReadOptions {
            durability_filter: DurabilityLevel::Remote,
            ..ReadOptions::default()
        };
        let row = self.db.get_key_value_with_options(key, &options).await;
        Ok(row.map_err(|error| from_slate(&error))?.map(row_of))
    }

    async fn scan(
        &self,
        kind: u8,
        range: RowRange,
        purpose: ScanPurpose,
    ) -> Result<Box<dyn RowScan>, EngineError> {
        let options = match purpose {
            ScanPurpose::Load => ScanOptions {
                read_ahead_bytes: LOAD_READ_BYTES,
                max_fetch_tasks: LOAD_READS_IN_FLIGHT,
                cache_blocks: false,
                ..ScanOptions::default()
            },
            ScanPurpose::List => ScanOptions {
                durability_filter: DurabilityLevel::Remote,
                read_ahead_bytes: LIST_READ_BYTES,
                ..ScanOptions::default()
            },
            ScanPurpose::Few => ScanOptions::default(),
        };
        let rows = self
            .db
            .scan_prefix_with_options([kind], range, &options)
            .await;
        let rows = rows.map_err(|error| from_slate(&error))?;
        Ok(Box::new(SlateScan { rows }))
    }

    async fn write(&self, writes: Vec<RowWrite>) -> Result<(), EngineError> {
        let mut batch = batch_of(writes);
        clock::stamp(&mut batch);
        let written = self.db.write(batch).await;
        written.map(drop).map_err(|error| from_slate(&error))
    }

    async fn write_durable(&self, writes: Vec<RowWrite>) -> Result<(), EngineError> {
        let mut batch = batch_of(writes);
        clock::stamp(&mut batch);
        let written = self.db.write(batch).await;
        let written = written.map_err(|error| from_slate(&error))?;
        let durable = written.await_durable().await;
        durable.map_err(|error| from_slate(&error))
    }

    /// The sequence numbers at which tables of the database start.
    fn live_splits(&self) -> BTreeSet<u64> {
        let manifest = self.db.manifest();
        let tables = manifest.compacted().iter().flat_map(SortedRun::sst_views);
        tables
            .filter_map(|table| table.sst.info.first_entry.as_ref())
            .filter(|key| key.first() == Some(&LIVE))
            .filter_map(|key| keys::sequence_of(key))
            .collect()
    }
}

struct SlateScan {
    rows: DbIterator,
}

#[async_trait]
impl RowScan for SlateScan {
    async fn next_page(&mut self) -> Result<Vec<Row>, EngineError> {
        let mut page = Vec::new();
        while page.len() < PAGE
            && let Some(row) = self.rows.next().await.map_err(|error| from_slate(&error))?
        {
            page.push(row_of(row));
        }
        Ok(page)
    }
}

fn row_of(row: KeyValue) -> Row {
    Row {
        expires_at: row.expire_ts.map(Timestamp::from_millis),
        key: row.key,
        value: row.value,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::time::Duration;

    use object_store::memory::InMemory;
    use qo_core::task::encode_compact;
    use qo_core::transition::submit;
    use qo_core::{Json, OpId, Payload, QueueState, Submission, Task, TaskId};
    use qo_store::runtime::TokioRuntime;
    use slatedb::Settings;
    use slatedb::config::{CompactionWorkerOptions, CompactorOptions};

    use super::*;
    use crate::rows::keys::INPUT;
    use crate::rows::live::load_tasks;

    fn port(db: &Db) -> Arc<dyn RowDatabase> {
        Arc::new(SlateDatabase::new(db.clone()))
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
        while port(&db).live_splits().len() < 4 {
            assert!(waited < 6_000, "the tables are not compacted");
            waited += 1;
            runtime.sleep(Duration::from_millis(10)).await;
            db.flush().await.unwrap();
        }
        let mut state = QueueState::new();
        load_tasks(&port(&db), &runtime, &mut state).await.unwrap();
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
        let loaded = load_tasks(&port(&db), &TokioRuntime::shared(), &mut state).await;
        assert!(
            loaded
                .as_ref()
                .is_err_and(|error| error.to_string().contains("record")),
            "{loaded:?}"
        );
    }
}
