//! The records of registered workers. They are written rarely, and correctness does not depend on them.
//!
//! A record also carries an operator's request to its worker. The worker sees it without a further request to the store: a heartbeat replaces the
//! record only if nobody has changed it since the last heartbeat. Otherwise the record is read, and its request is kept.
//!
//! | request of an operator | a heartbeat at the same time |
//! | --- | --- |
//! | 1. read the record | |
//! | 2. swap it, with the request | before 2: the swap fails, and the operator reads again. After 2: the heartbeat fails, and the worker reads the request |
//!
//! A crash after either step leaves nothing to repair. The request ends with the worker: its record is deleted when it stops, the records of
//! dead workers are deleted by maintenance, and a record with another start time belongs to another worker.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use qo_core::keys::{Key, WORKERS_PREFIX};
use qo_core::{OpId, Timestamp, WorkerId};
use qo_store::client::{Object, PAGE_LIMIT_MAX, Tag};
use qo_store::{StoreClient, StoreError};

use crate::api::{WorkerInfo, WorkerRequest};
use crate::error::EngineError;

/// How many records are read concurrently.
const READ_CONCURRENCY: usize = 64;

/// Lists all workers. Records that cannot be parsed are logged and skipped.
pub async fn list(client: &StoreClient) -> Result<Vec<WorkerInfo>, EngineError> {
    let mut workers = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = client
            .page(WORKERS_PREFIX, after.as_deref(), PAGE_LIMIT_MAX)
            .await?;
        let objects: Vec<_> = futures_util::stream::iter(page.entries)
            .map(|entry| async move { client.get(&entry.key).await })
            .buffered(READ_CONCURRENCY)
            .collect()
            .await;
        for object in objects {
            match object {
                Ok(object) => match serde_json::from_slice::<WorkerInfo>(&object.body) {
                    Ok(worker) => workers.push(shown(worker)),
                    Err(error) => {
                        tracing::warn!(%error, "skipping a worker record that cannot be parsed");
                    }
                },
                // It was deleted after the LIST.
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(workers),
        }
    }
}

/// How often a change of a record is tried while others change it.
const TRIES_MAX: usize = 8;
/// The most workers whose records are remembered. Beyond it, all are forgotten, which costs a read each.
const REMEMBERED_MAX: usize = 10_000;

/// What this process knows of the records of the workers whose heartbeats it writes.
#[derive(Debug, Default)]
pub struct WorkerRecords {
    known: Mutex<BTreeMap<WorkerId, KnownRecord>>,
}

/// A record as it was last written or read.
#[derive(Debug, Clone)]
struct KnownRecord {
    started_at: Timestamp,
    request: Option<WorkerRequest>,
    tag: Tag,
}

impl WorkerRecords {
    fn known(&self) -> MutexGuard<'_, BTreeMap<WorkerId, KnownRecord>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the record of a worker, and returns what an operator asks it to do. Costs one PUT, unless somebody else has changed the record.
    pub async fn beat(
        &self,
        client: &StoreClient,
        worker: &WorkerInfo,
        op: OpId,
    ) -> Result<Option<WorkerRequest>, EngineError> {
        let key = Key::Worker(worker.worker_id.clone()).to_string();
        let mut record = WorkerInfo {
            op_id: Some(op),
            ..worker.clone()
        };
        for _ in 0..TRIES_MAX {
            let known = self.known().remove(&worker.worker_id);
            // Another worker of this name has been asked, not this one.
            let is_same = |known: &&KnownRecord| known.started_at == worker.started_at;
            record.request =
                (known.as_ref().filter(is_same)).and_then(|known| known.request.clone());
            let body = to_body(&record)?;
            let written = match &known {
                Some(known) => client.swap(&key, body, &known.tag, &op).await,
                None => client.create(&key, body, &op).await,
            };
            match written {
                Ok(written) => {
                    if let Some(tag) = written.tag() {
                        self.remember(&record, tag.clone());
                    }
                    return Ok(record.request);
                }
                Err(
                    StoreError::Conflict { .. }
                    | StoreError::AlreadyExists { .. }
                    | StoreError::NotFound { .. },
                ) => {}
                Err(error) => return Err(error.into()),
            }
            match client.get(&key).await {
                Ok(Object { body, tag, .. }) => {
                    // One that cannot be read is replaced.
                    let stored = serde_json::from_slice::<WorkerInfo>(&body);
                    let unread = |_| WorkerInfo {
                        request: None,
                        ..worker.clone()
                    };
                    self.remember(&stored.unwrap_or_else(unread), tag);
                }
                // It was deleted as that of a dead worker.
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // A worker without a record counts as dead, so it is written in any case.
        client.put(&key, to_body(&record)?).await?;
        Ok(record.request)
    }

    fn remember(&self, record: &WorkerInfo, tag: Tag) {
        let mut known = self.known();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(
            record.worker_id.clone(),
            KnownRecord {
                started_at: record.started_at,
                request: record.request.clone(),
                tag,
            },
        );
    }

    /// Deletes a worker's record. A missing record counts as deleted.
    pub async fn remove(&self, client: &StoreClient, worker: &WorkerId) -> Result<(), EngineError> {
        self.known().remove(worker);
        let key = Key::Worker(worker.clone()).to_string();
        delete(client, &[key]).await
    }
}

/// Asks a worker for something, or for nothing any more. Returns its record. A repeated request changes nothing.
pub async fn ask(
    client: &StoreClient,
    worker: &WorkerId,
    request: Option<WorkerRequest>,
    op: OpId,
) -> Result<WorkerInfo, EngineError> {
    let key = Key::Worker(worker.clone()).to_string();
    for _ in 0..TRIES_MAX {
        let Object { body, tag, .. } = match client.get(&key).await {
            Ok(object) => object,
            Err(StoreError::NotFound { .. }) => {
                let worker = worker.clone();
                return Err(EngineError::WorkerNotFound { worker });
            }
            Err(error) => return Err(error.into()),
        };
        let mut record: WorkerInfo =
            serde_json::from_slice(&body).map_err(|error| StoreError::Corrupt {
                key: key.clone(),
                detail: error.to_string(),
            })?;
        let action = |request: &Option<WorkerRequest>| request.as_ref().map(|one| one.action);
        if action(&record.request) == action(&request) {
            return Ok(shown(record));
        }
        record.request.clone_from(&request);
        record.op_id = Some(op);
        match client.swap(&key, to_body(&record)?, &tag, &op).await {
            Ok(_) => return Ok(shown(record)),
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(StoreError::Conflict { key }.into())
}

/// A record without what concerns only its writers.
fn shown(mut worker: WorkerInfo) -> WorkerInfo {
    worker.op_id = None;
    worker
}

fn to_body(worker: &WorkerInfo) -> Result<Bytes, EngineError> {
    let body = serde_json::to_vec(worker);
    body.map(Bytes::from)
        .map_err(|error| EngineError::BadRequest(error.to_string()))
}

/// Deletes the records that were last written longer ago than `age`, and returns how many there were. Costs one LIST a page. A worker
/// that is alive after all writes its record again with its next heartbeat.
pub async fn remove_dead(client: &StoreClient, age: Duration) -> Result<usize, EngineError> {
    let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let mut removed = 0;
    let mut after: Option<String> = None;
    loop {
        let page = client
            .page(WORKERS_PREFIX, after.as_deref(), PAGE_LIMIT_MAX)
            .await?;
        let dead_before = client.now().minus_millis(age_ms);
        let dead: Vec<String> = page
            .entries
            .into_iter()
            .filter(|entry| entry.last_modified < dead_before)
            .map(|entry| entry.key)
            .filter(|key| matches!(key.parse(), Ok(Key::Worker(_))))
            .collect();
        if !dead.is_empty() {
            delete(client, &dead).await?;
            removed += dead.len();
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(removed),
        }
    }
}

async fn delete(client: &StoreClient, keys: &[String]) -> Result<(), EngineError> {
    client.delete_many(keys).await.map_err(|failures| {
        let first = failures.failed.into_iter().next();
        first.map_or_else(
            || EngineError::BadRequest("the worker's record could not be deleted".to_owned()),
            |(_, error)| error.into(),
        )
    })
}
