//! Registered workers, and what their coming and going means for how work is shared.

use qo_core::WorkerId;
use qo_engine::api::WorkerInfo;
use qo_engine::{EngineError, worker_records};

use super::DirectEngine;

impl DirectEngine {
    pub(super) async fn list_workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        worker_records::list(self.client()).await
    }

    pub(super) async fn put_worker(&self, worker: &WorkerInfo) -> Result<(), EngineError> {
        worker_records::put(self.client(), worker).await?;
        if !self.is_known_peer(&worker.worker_id).await {
            // A worker that has just started takes its share at once.
            self.look_at_peers_again().await;
        }
        Ok(())
    }

    pub(super) async fn remove_worker(&self, worker: &WorkerId) -> Result<(), EngineError> {
        worker_records::remove(self.client(), worker).await?;
        self.look_at_peers_again().await;
        Ok(())
    }
}
