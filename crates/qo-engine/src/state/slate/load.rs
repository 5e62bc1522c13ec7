//! Opening: what is live is read into memory, and nothing else.

use std::collections::BTreeSet;

use qo_core::limits::COUNT_MAX;
use qo_core::task::decode_compact;
use qo_core::{Json, QueueState, Task};
use slatedb::config::ScanOptions;
use slatedb::{Db, DbIterator};

use super::batch::Index;
use super::error::{PLACE, from_slate};
use super::keys::{self, COUNT, INPUT, LIVE, QUEUE};
use crate::error::EngineError;
use qo_store::StoreError;

/// The form that this version writes, and the newest that it reads.
const FORMAT: u64 = 2;
/// How much of a table is read at once, and how many such reads are under way.
const READ_AHEAD_BYTES: usize = 4 * 1024 * 1024;
const READS_AT_ONCE: usize = 8;

/// Reads what is stored.
pub(super) async fn load(db: &Db) -> Result<(QueueState, Index), EngineError> {
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
    let mut state = QueueState::with_requests_remembered(0);
    let reserved_sequence = number(db, keys::SEQUENCE).await?.unwrap_or(0);
    if reserved_sequence > COUNT_MAX {
        return Err(corrupt("it counts further than anybody does".to_owned()));
    }
    let mut index = Index {
        reserved_sequence,
        ..Index::default()
    };
    load_tasks(db, &mut state, &mut index).await?;
    let mut paused = BTreeSet::new();
    let mut rows = scan(db, QUEUE).await?;
    while let Some(row) = rows.next().await.map_err(|error| from_slate(&error))? {
        let name = row
            .key
            .get(1..)
            .and_then(|name| std::str::from_utf8(name).ok());
        paused.extend(name.and_then(|name| name.parse().ok()));
    }
    let mut rows = scan(db, COUNT).await?;
    while let Some(row) = rows.next().await.map_err(|error| from_slate(&error))? {
        if let (Some(key), Some(count)) = (keys::count_of(&row.key), read_number(&row.value)) {
            index.counts.load(key, count);
        }
    }
    state.restore(paused, index.reserved_sequence);
    Ok((state, index))
}

/// Records and inputs come in the same order, so that both are read once, side by side.
async fn load_tasks(db: &Db, state: &mut QueueState, index: &mut Index) -> Result<(), EngineError> {
    let mut records = scan(db, LIVE).await?;
    let mut inputs = scan(db, INPUT).await?;
    let mut input = inputs.next().await.map_err(|error| from_slate(&error))?;
    while let Some(record) = records.next().await.map_err(|error| from_slate(&error))? {
        let place = place_of(&record.key)?;
        let mut task = decode_compact(&record.value)
            .map_err(|error| corrupt(format!("the task at place {place}: {error}")))?;
        while let Some(row) = &input {
            let of = place_of(&row.key)?;
            if of > place {
                break;
            }
            if of == place {
                task = joined(task, Some(&row.value))?;
            }
            input = inputs.next().await.map_err(|error| from_slate(&error))?;
        }
        index.live.insert(task.id);
        state.load(task);
    }
    Ok(())
}

fn place_of(key: &[u8]) -> Result<u64, EngineError> {
    keys::place_of(key).ok_or_else(|| corrupt("a key is none".to_owned()))
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
    let options = ScanOptions {
        read_ahead_bytes: READ_AHEAD_BYTES,
        max_fetch_tasks: READS_AT_ONCE,
        cache_blocks: false,
        ..ScanOptions::default()
    };
    db.scan_prefix_with_options([kind], .., &options)
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

fn corrupt(detail: String) -> EngineError {
    EngineError::Store(StoreError::Corrupt {
        key: PLACE.to_owned(),
        detail,
    })
}
