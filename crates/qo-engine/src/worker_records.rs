//! The records of registered workers. They are written rarely, and correctness does not depend on them.

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

/// Deletes a worker's record. A missing record counts as deleted.
pub async fn remove(client: &StoreClient, worker: &WorkerId) -> Result<(), EngineError> {
    let key = Key::Worker(worker.clone()).to_string();
    client.delete_many(&[key]).await.map_err(|failures| {
        let first = failures.failed.into_iter().next();
        first.map_or_else(
            || EngineError::BadRequest("the worker's record could not be deleted".to_owned()),
            |(_, error)| error.into(),
        )
    })
}
