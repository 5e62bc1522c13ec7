//! Loads the live tasks into memory when the database is opened.

use std::collections::BTreeSet;
use std::sync::Arc;

use qo_core::limits::COUNT_MAX;
use qo_core::{Json, QueueName, QueueState, Task};
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::runtime::Runtime;
use slatedb::{Db, DbIterator, KeyValue, WriteBatch};

use super::batch::BatchBuilder;
use super::clock;
use super::error::{DB_PATH, from_slate};
use super::keys::{self, COUNT, QUEUE};
use super::live::load_tasks;

/// The format that this version writes, and the newest that it reads.
const FORMAT: u64 = 2;

/// Loads the state from the database.
pub(super) async fn load(
    db: &Db,
    runtime: &Arc<dyn Runtime>,
) -> Result<(QueueState, BatchBuilder), EngineError> {
    let format = number(db, keys::FORMAT).await?;
    match format {
        None => {
            let mut batch = WriteBatch::new();
            batch.put(keys::FORMAT, FORMAT.to_be_bytes());
            clock::stamp(&mut batch);
            db.write(batch).await.map_err(|error| from_slate(&error))?;
        }
        Some(format) if format > FORMAT => {
            return Err(corrupt(format!(
                "its format version is {format}, but this version of qo reads only {FORMAT}: use a newer version of qo"
            )));
        }
        Some(FORMAT) => {}
        Some(format) => {
            return Err(corrupt(format!(
                "its format version is {format}, from before the first release, but this version of qo reads only {FORMAT}: \
                 let the old version finish its tasks, then delete {DB_PATH}/ and start again"
            )));
        }
    }
    let mut state = QueueState::new();
    let reserved_sequence = number(db, keys::SEQUENCE).await?.unwrap_or(0);
    if reserved_sequence > COUNT_MAX {
        return Err(corrupt("a counter is out of range".to_owned()));
    }
    let mut batch_builder = BatchBuilder {
        reserved_sequence,
        ..BatchBuilder::default()
    };
    // The few other rows are read concurrently.
    let (tasks, paused, counts) = tokio::join!(
        load_tasks(db, runtime, &mut state),
        paused_queues(db),
        load_counts(db, &mut batch_builder),
    );
    tasks?;
    counts?;
    state.restore(paused?, reserved_sequence);
    Ok((state, batch_builder))
}

async fn paused_queues(db: &Db) -> Result<BTreeSet<QueueName>, EngineError> {
    let mut paused = BTreeSet::new();
    let mut rows = scan(db, QUEUE).await?;
    while let Some(row) = next(&mut rows).await? {
        let name = row
            .key
            .get(1..)
            .and_then(|name| std::str::from_utf8(name).ok());
        paused.extend(name.and_then(|name| name.parse::<QueueName>().ok()));
    }
    Ok(paused)
}

async fn load_counts(db: &Db, builder: &mut BatchBuilder) -> Result<(), EngineError> {
    let mut rows = scan(db, COUNT).await?;
    while let Some(row) = next(&mut rows).await? {
        if let (Some(key), Some(count)) = (keys::count_of(&row.key), read_number(&row.value)) {
            builder.counts.load(key, count);
        }
    }
    Ok(())
}

pub(super) async fn next(rows: &mut DbIterator) -> Result<Option<KeyValue>, EngineError> {
    rows.next().await.map_err(|error| from_slate(&error))
}

/// Joins a live task with its input, if that has its own row.
pub(super) fn join_input(task: Task, input: Option<&[u8]>) -> Result<Task, EngineError> {
    let Some(input) = input else {
        return Ok(task);
    };
    let text = String::from_utf8(input.to_vec()).map_err(|error| corrupt(error.to_string()))?;
    let json = Json::parse(text).map_err(|error| corrupt(error.to_string()))?;
    Ok(task.with_input(json))
}

async fn scan(db: &Db, kind: u8) -> Result<DbIterator, EngineError> {
    db.scan_prefix([kind], ..)
        .await
        .map_err(|error| from_slate(&error))
}

async fn number(db: &Db, key: &[u8]) -> Result<Option<u64>, EngineError> {
    let value = db.get(key).await.map_err(|error| from_slate(&error))?;
    Ok(value.and_then(|bytes| read_number(&bytes)))
}

fn read_number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

pub(super) fn corrupt(detail: String) -> EngineError {
    EngineError::Store(StoreError::Corrupt {
        key: DB_PATH.to_owned(),
        detail,
    })
}
