//! Registers workers, and updates the list of live workers when they start and stop.

use qo_core::WorkerId;
use qo_engine::api::{WorkerInfo, WorkerRequest};
use qo_engine::{EngineError, worker_records};
use qo_store::runtime::RuntimeExt;

use super::DirectEngine;

impl DirectEngine {
    pub(super) async fn list_workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        worker_records::list(self.client()).await
    }

    pub(super) async fn put_worker(
        &self,
        worker: &WorkerInfo,
    ) -> Result<Option<WorkerRequest>, EngineError> {
        let op = self.runtime().new_op_id();
        let request = (self.shared.workers)
            .beat(self.client(), worker, op)
            .await?;
        self.add_own_worker(worker).await;
        Ok(request)
    }

    pub(super) async fn remove_worker(&self, worker: &WorkerId) -> Result<(), EngineError> {
        self.shared.workers.remove(self.client(), worker).await?;
        self.forget_worker(worker).await;
        Ok(())
    }
}
