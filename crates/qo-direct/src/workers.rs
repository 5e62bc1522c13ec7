//! Registers workers, and updates the list of live workers when they start and stop.

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
        self.add_own_worker(worker).await;
        Ok(())
    }

    pub(super) async fn remove_worker(&self, worker: &WorkerId) -> Result<(), EngineError> {
        worker_records::remove(self.client(), worker).await?;
        self.forget_worker(worker).await;
        Ok(())
    }
}
