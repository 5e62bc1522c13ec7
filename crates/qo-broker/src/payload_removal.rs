//! Deletes the payloads of tasks that were dropped.
//!
//! | step | action | effect of a crash right after it |
//! | --- | --- | --- |
//! | 1 | the id is held against submits that store a new input for it ([`super::payload_guard`]) | none |
//! | 2 | the objects of the id are listed | none |
//! | 3 | the commit loop confirms that no task has the id, live or finished | none |
//! | 4 | exactly the listed objects are deleted | the rest stays until the next run of the cleanup |
//!
//! Step 3 is a read, so it also proves that this engine is still the writer. What another process stores after step 2 is not in the list,
//! unless it has the same key.

use std::sync::Weak;

use futures_util::StreamExt;
use qo_core::TaskId;
use qo_core::keys::data_prefix;
use qo_engine::EngineError;
use qo_store::StoreClient;
use qo_store::client::PAGE_LIMIT_MAX;
use tokio::sync::mpsc;

use super::{BrokerEngine, EngineShared};

/// How many tasks' payloads are deleted at once.
pub(super) const CONCURRENCY: usize = 16;

/// What became of the payloads of a task id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    /// There are none left.
    Removed,
    /// A task has the id, or is about to have it.
    InUse,
}

impl BrokerEngine {
    /// Deletes the payloads of a task id, unless a task has it.
    pub(super) async fn remove_dropped_payloads(&self, id: TaskId) -> Result<Removal, EngineError> {
        let Some(_guard) = self.shared.payload_guards.try_delete(id) else {
            return Ok(Removal::InUse);
        };
        let keys = payload_keys(self.client(), id).await?;
        match self.read(id).await {
            Ok(_) | Err(EngineError::Unreadable { .. }) => Ok(Removal::InUse),
            Err(error) if error.is_not_found() => {
                delete_keys(self.client(), &keys).await?;
                Ok(Removal::Removed)
            }
            Err(error) => Err(error),
        }
    }
}

/// Deletes the payloads of the tasks whose ids are received, until the sender is gone.
pub(super) async fn remove_dropped(
    mut dropped: mpsc::UnboundedReceiver<TaskId>,
    engine: Weak<EngineShared>,
) {
    let mut ids = Vec::new();
    while dropped.recv_many(&mut ids, CONCURRENCY).await > 0 {
        let Some(shared) = engine.upgrade() else {
            return;
        };
        let engine = BrokerEngine { shared };
        futures_util::stream::iter(ids.drain(..))
            .for_each_concurrent(CONCURRENCY, |id| {
                let engine = &engine;
                async move {
                    if let Err(error) = engine.remove_dropped_payloads(id).await {
                        tracing::warn!(task = %id, %error, "could not delete the payloads of a dropped task");
                    }
                }
            })
            .await;
    }
}

/// Deletes all payloads of a task.
pub(super) async fn remove_payloads(client: &StoreClient, id: TaskId) -> Result<(), EngineError> {
    let keys = payload_keys(client, id).await?;
    delete_keys(client, &keys).await
}

async fn payload_keys(client: &StoreClient, id: TaskId) -> Result<Vec<String>, EngineError> {
    let page = client.page(&data_prefix(id), None, PAGE_LIMIT_MAX).await?;
    Ok(page.entries.into_iter().map(|entry| entry.key).collect())
}

pub(super) async fn delete_keys(client: &StoreClient, keys: &[String]) -> Result<(), EngineError> {
    if keys.is_empty() {
        return Ok(());
    }
    match client.delete_many(keys).await {
        Ok(()) => Ok(()),
        Err(mut failures) => match failures.failed.pop() {
            Some((_, error)) => Err(error.into()),
            None => Ok(()),
        },
    }
}
