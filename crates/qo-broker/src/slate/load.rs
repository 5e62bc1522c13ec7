//! Opening: what is live is read into memory, and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use qo_core::limits::COUNT_MAX;
use qo_core::{Json, QueueName, QueueState, Task};
use qo_engine::EngineError;
use qo_store::StoreError;
use qo_store::runtime::Runtime;
use slatedb::{Db, DbIterator, KeyValue};

use super::batch::Index;
use super::error::{PLACE, from_slate};
use super::keys::{self, COUNT, QUEUE};
use super::live::load_tasks;

/// The form that this version writes, and the newest that it reads.
const FORMAT: u64 = 2;
/// Reads what is stored.
pub(super) async fn load(
    db: &Db,
    runtime: &Arc<dyn Runtime>,
) -> Result<(QueueState, Index), EngineError> {
    let format = number(db, keys::FORMAT).await?;
    match format {
        None => {
            db.put(keys::FORMAT, FORMAT.to_be_bytes())
                .await
                .map_err(|error| from_slate(&error))?;
        }
        Some(format) if format > FORMAT => {
            return Err(corrupt(format!(
                "it has the form {format}, and this version reads {FORMAT}: use a newer version of qo"
            )));
        }
        Some(FORMAT) => {}
        Some(format) => {
            return Err(corrupt(format!(
                "it has the form {format} of a version before the first release, and this version reads {FORMAT}: \
                 let that version finish its tasks, then delete {PLACE}/ and start anew"
            )));
        }
    }
    let mut state = QueueState::new();
    let reserved_sequence = number(db, keys::SEQUENCE).await?.unwrap_or(0);
    if reserved_sequence > COUNT_MAX {
        return Err(corrupt("it counts further than anybody does".to_owned()));
    }
    let mut index = Index {
        reserved_sequence,
        ..Index::default()
    };
    // The few other rows are read meanwhile.
    let (tasks, paused, counts) = tokio::join!(
        load_tasks(db, runtime, &mut state),
        paused_queues(db),
        load_counts(db, &mut index),
    );
    tasks?;
    counts?;
    state.restore(paused?, reserved_sequence);
    Ok((state, index))
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

async fn load_counts(db: &Db, index: &mut Index) -> Result<(), EngineError> {
    let mut rows = scan(db, COUNT).await?;
    while let Some(row) = next(&mut rows).await? {
        if let (Some(key), Some(count)) = (keys::count_of(&row.key), read_number(&row.value)) {
            index.counts.load(key, count);
        }
    }
    Ok(())
}

pub(super) async fn next(rows: &mut DbIterator) -> Result<Option<KeyValue>, EngineError> {
    rows.next().await.map_err(|error| from_slate(&error))
}

/// A live task, of its rows.
pub(super) fn joined(task: Task, input: Option<&[u8]>) -> Result<Task, EngineError> {
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
    let found = db.get(key).await.map_err(|error| from_slate(&error))?;
    Ok(found.and_then(|bytes| read_number(&bytes)))
}

fn read_number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

pub(super) fn corrupt(detail: String) -> EngineError {
    EngineError::Store(StoreError::Corrupt {
        key: PLACE.to_owned(),
        detail,
    })
}
