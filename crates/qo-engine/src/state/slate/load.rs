//! Opening: what is live is read into memory, and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use qo_core::limits::COUNT_MAX;
use qo_core::task::decode_compact;
use qo_core::{Json, QueueState, Task};
use qo_store::world::World;
use slatedb::config::ScanOptions;
use slatedb::{Db, DbIterator, KeyValue};
use tokio::sync::oneshot;

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
/// How many tasks are decoded together, and how many such parts are under way.
const PART_TASKS: usize = 4_096;
const PARTS_AT_ONCE: usize = 4;

/// Reads what is stored.
pub(super) async fn load(
    db: &Db,
    world: &Arc<dyn World>,
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
    let mut state = QueueState::with_requests_remembered(0);
    let reserved_sequence = number(db, keys::SEQUENCE).await?.unwrap_or(0);
    if reserved_sequence > COUNT_MAX {
        return Err(corrupt("it counts further than anybody does".to_owned()));
    }
    let mut index = Index {
        reserved_sequence,
        ..Index::default()
    };
    load_tasks(db, world, &mut state).await?;
    let mut paused = BTreeSet::new();
    let mut rows = scan(db, QUEUE).await?;
    while let Some(row) = next(&mut rows).await? {
        let name = row
            .key
            .get(1..)
            .and_then(|name| std::str::from_utf8(name).ok());
        paused.extend(name.and_then(|name| name.parse().ok()));
    }
    let mut rows = scan(db, COUNT).await?;
    while let Some(row) = next(&mut rows).await? {
        if let (Some(key), Some(count)) = (keys::count_of(&row.key), read_number(&row.value)) {
            index.counts.load(key, count);
        }
    }
    state.restore(paused, index.reserved_sequence);
    Ok((state, index))
}

/// The rows of a live task: its record, and its input if that has a row of its own.
type Rows = (Bytes, Option<Bytes>);

/// Reads all live tasks. Rows are decoded beside the loop that reads them, a part at a time, and taken in in order: opening a
/// queue with a million tasks is as fast as the slower of the two.
async fn load_tasks(
    db: &Db,
    world: &Arc<dyn World>,
    state: &mut QueueState,
) -> Result<(), EngineError> {
    let mut rows = LiveRows::scan(db).await?;
    let mut decoding = FuturesOrdered::new();
    loop {
        let part = rows.part().await?;
        let is_last = part.is_empty();
        if !is_last {
            decoding.push_back(decode_beside(world, part));
        }
        while decoding.len() > PARTS_AT_ONCE || (is_last && !decoding.is_empty()) {
            if let Some(decoded) = decoding.next().await {
                for task in decoded? {
                    state.load(task);
                }
            }
        }
        if is_last {
            return Ok(());
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
    async fn scan(db: &Db) -> Result<Self, EngineError> {
        let records = scan(db, LIVE).await?;
        let mut inputs = scan(db, INPUT).await?;
        let input = next(&mut inputs).await?;
        Ok(Self {
            records,
            inputs,
            input,
        })
    }

    /// The next tasks; none, if there are no more.
    async fn part(&mut self) -> Result<Vec<Rows>, EngineError> {
        let mut part = Vec::with_capacity(PART_TASKS);
        while part.len() < PART_TASKS
            && let Some(record) = next(&mut self.records).await?
        {
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
            part.push((record.value, input));
        }
        Ok(part)
    }
}

async fn next(rows: &mut DbIterator) -> Result<Option<KeyValue>, EngineError> {
    rows.next().await.map_err(|error| from_slate(&error))
}

/// Begins to decode at once; what comes back resolves when it is done.
fn decode_beside(
    world: &Arc<dyn World>,
    part: Vec<Rows>,
) -> impl Future<Output = Result<Vec<Task>, EngineError>> {
    let (done, decoded) = oneshot::channel();
    world.spawn(Box::pin(async move {
        let tasks = part.iter().map(|(record, input)| {
            let task = decode_compact(record)
                .map_err(|error| corrupt(format!("the record of a live task: {error}")))?;
            joined(task, input.as_deref())
        });
        // Whoever has given up opening need not be told.
        let _ = done.send(tasks.collect());
    }));
    async { decoded.await.unwrap_or(Err(EngineError::Closed)) }
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
