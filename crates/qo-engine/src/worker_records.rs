//! The records of registered workers. They are written rarely, and correctness does not depend on them.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use qo_core::WorkerId;
use qo_core::keys::{Key, WORKERS_PREFIX};
use qo_store::client::PAGE_LIMIT_MAX;
use qo_store::{StoreClient, StoreError};

use crate::api::WorkerInfo;
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
                Ok(object) => match serde_json::from_slice(&object.body) {
                    Ok(worker) => workers.push(worker),
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

/// Writes a worker's record.
pub async fn put(client: &StoreClient, worker: &WorkerInfo) -> Result<(), EngineError> {
    let key = Key::Worker(worker.worker_id.clone()).to_string();
    let body =
        serde_json::to_vec(worker).map_err(|error| EngineError::BadRequest(error.to_string()))?;
    client.put(&key, Bytes::from(body)).await?;
    Ok(())
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

/// Deletes a worker's record. A missing record counts as deleted.
pub async fn remove(client: &StoreClient, worker: &WorkerId) -> Result<(), EngineError> {
    let key = Key::Worker(worker.clone()).to_string();
    delete(client, &[key]).await
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
