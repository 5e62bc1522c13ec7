//! Loads the live tasks into memory when the database is opened.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use qo_core::limits::COUNT_MAX;
use qo_core::{DocumentId, Json, Pause, Pauses, QueueState, StoredDocument, Task, Timestamp};
use qo_engine::EngineError;
use qo_store::runtime::Runtime;

use super::batch::BatchBuilder;
use super::keys::{self, COUNT, CountKey, DOCUMENT, QUEUE, TYPE};
use super::live::load_tasks;
use super::port::{RowCursor, RowDatabase, RowWrite};
use super::time_index;
use crate::documents::read_documents;
use crate::retention::Retention;

/// The format that this version writes, and the newest that it reads.
const FORMAT: u64 = 2;

/// Loads the state from the database.
pub(super) async fn load(
    db: &Arc<dyn RowDatabase>,
    runtime: &Arc<dyn Runtime>,
    retention: Retention,
    now: Timestamp,
) -> Result<(QueueState, BatchBuilder), EngineError> {
    let format = number(db.as_ref(), keys::FORMAT).await?;
    match format {
        None => {
            let value = Bytes::copy_from_slice(&FORMAT.to_be_bytes());
            db.write(vec![RowWrite::put(keys::FORMAT, value)]).await?;
        }
        Some(format) if format > FORMAT => {
            return Err(db.corrupt(format!(
                "its format version is {format}, but this version of qo reads only {FORMAT}: use a newer version of qo"
            )));
        }
        Some(FORMAT) => {}
        Some(format) => {
            return Err(db.corrupt(format!(
                "its format version is {format}, from before the first release, but this version of qo reads only {FORMAT}: \
                 let the old version finish its tasks, then delete {}/ and start again",
                db.name()
            )));
        }
    }
    let mut state = QueueState::new();
    let reserved_sequence = number(db.as_ref(), keys::SEQUENCE).await?.unwrap_or(0);
    if reserved_sequence > COUNT_MAX {
        return Err(db.corrupt("a counter is out of range".to_owned()));
    }
    let mut batch_builder = BatchBuilder {
        reserved_sequence,
        ..BatchBuilder::default()
    };
    // The few other rows are read concurrently.
    let (tasks, pauses, counts, indexed, documents) = tokio::join!(
        load_tasks(db, runtime, &mut state),
        load_pauses(db.as_ref()),
        load_counts(db.as_ref(), &mut batch_builder),
        time_index::load_indexed(db.as_ref()),
        load_documents(db.as_ref()),
    );
    tasks?;
    counts?;
    state.restore(pauses?, reserved_sequence);
    state.restore_documents(documents?);
    let counts = &batch_builder.counts;
    let retention_ms = |key: &CountKey| retention.of_ms(&state, &key.queue);
    time_index::build_if_needed(db.as_ref(), counts, &indexed?, retention_ms, now).await?;
    Ok((state, batch_builder))
}

async fn load_pauses(db: &dyn RowDatabase) -> Result<Pauses, EngineError> {
    Ok(Pauses {
        queues: load_paused(db, QUEUE).await?,
        types: load_paused(db, TYPE).await?,
    })
}

async fn load_paused<N: Ord + FromStr>(
    db: &dyn RowDatabase,
    kind: u8,
) -> Result<BTreeMap<N, Pause>, EngineError> {
    let mut paused = BTreeMap::new();
    let mut rows = RowCursor::all(db, kind).await?;
    while let Some(row) = rows.next().await? {
        let name = row.key.get(1..);
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        let name = name.and_then(|name| name.parse::<N>().ok());
        paused.extend(name.map(|name| (name, Pause::decode(&row.value))));
    }
    Ok(paused)
}

async fn load_documents(
    db: &dyn RowDatabase,
) -> Result<BTreeMap<DocumentId, StoredDocument>, EngineError> {
    let mut stored = Vec::new();
    let mut rows = RowCursor::all(db, DOCUMENT).await?;
    while let Some(row) = rows.next().await? {
        stored.push(row);
    }
    Ok(read_documents(stored.iter().filter_map(|row| {
        let name = std::str::from_utf8(row.key.get(1..)?).ok()?;
        Some((name, row.value.as_ref()))
    })))
}

async fn load_counts(db: &dyn RowDatabase, builder: &mut BatchBuilder) -> Result<(), EngineError> {
    let mut rows = RowCursor::all(db, COUNT).await?;
    while let Some(row) = rows.next().await? {
        if let (Some(key), Some(count)) = (keys::count_of(&row.key), read_number(&row.value)) {
            builder.counts.load(key, count);
        }
    }
    Ok(())
}

/// Joins a live task with its input, if that has its own row.
pub(super) fn join_input(task: Task, input: Option<&[u8]>) -> Result<Task, String> {
    let Some(input) = input else {
        return Ok(task);
    };
    let text = String::from_utf8(input.to_vec()).map_err(|error| error.to_string())?;
    let json = Json::parse(text).map_err(|error| error.to_string())?;
    Ok(task.with_input(json))
}

async fn number(db: &dyn RowDatabase, key: &'static [u8]) -> Result<Option<u64>, EngineError> {
    let row = db.get(Bytes::from_static(key)).await?;
    Ok(row.and_then(|row| read_number(&row.value)))
}

fn read_number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}
