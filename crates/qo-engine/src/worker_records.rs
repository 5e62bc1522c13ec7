//! The workers' records. Written rarely, never needed for correctness.

use bytes::Bytes;
use futures_util::StreamExt;
use qo_core::WorkerId;
use qo_core::keys::{Key, WORKERS_PREFIX};
use qo_store::client::PAGE_LIMIT_MAX;
use qo_store::{StoreClient, StoreError};

use crate::api::WorkerInfo;
use crate::error::EngineError;

/// How many records are read at once.
const READS_AT_ONCE: usize = 64;

/// All records that can be read.
pub async fn list(client: &StoreClient) -> Result<Vec<WorkerInfo>, EngineError> {
    let mut workers = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = client
            .page(WORKERS_PREFIX, after.as_deref(), PAGE_LIMIT_MAX)
            .await?;
        let found: Vec<_> = futures_util::stream::iter(page.entries)
            .map(|entry| async move { client.get(&entry.key).await })
            .buffered(READS_AT_ONCE)
            .collect()
            .await;
        for object in found {
            match object {
                Ok(object) => match serde_json::from_slice(&object.body) {
                    Ok(worker) => workers.push(worker),
                    Err(error) => tracing::warn!(%error, "a worker's record cannot be read"),
                },
                // It has gone since it was listed.
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

/// Removes a worker's record. One that is not there counts as removed.
pub async fn remove(client: &StoreClient, worker: &WorkerId) -> Result<(), EngineError> {
    let key = Key::Worker(worker.clone()).to_string();
    client.delete_many(&[key]).await.map_err(|failures| {
        let first = failures.failed.into_iter().next();
        first.map_or_else(
            || EngineError::BadRequest("the worker's record could not be removed".to_owned()),
            |(_, error)| error.into(),
        )
    })
}
