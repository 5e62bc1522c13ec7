//! Operations on one task.
//!
//! For the operations of a worker, the claim's result gave the task and its tag, so that nothing has to be read. If the task has
//! changed since, for instance because a cancel was requested, the swap fails, the task is read once, and the rules decide whether
//! the lease still holds.

use qo_core::limits::INLINE_PAYLOAD_MAX_BYTES;
use qo_core::{Jitter, Json, LeaseId, Payload, Task, TaskId};
use qo_engine::{EngineError, Operation};

use super::{DirectEngine, Stored};

impl DirectEngine {
    pub(super) async fn operate(
        &self,
        id: TaskId,
        operation: Operation,
    ) -> Result<Task, EngineError> {
        let lease = operation.lease();
        let ends_attempt = operation.ends_attempt();
        let output = match (lease, operation.output()) {
            (Some(lease), Some(json)) => Some(self.store_output(id, lease, json).await?),
            _ => None,
        };
        let action = operation.into_action(self.config().lease_ms, output, || self.jitter());
        // The held state is used up, whatever the result: after a failure the next operation reads the task.
        let held = lease
            .and_then(|lease| self.held().remove(&lease))
            .filter(|stored| stored.task.id == id);
        let changed = self.change(id, held, action).await?;
        if let (Some(lease), Some(tag), false) = (lease, changed.tag, ends_attempt) {
            let task = changed.task.clone();
            self.hold(lease, Stored { task, tag });
        }
        Ok(changed.task)
    }

    /// Stores an output beside the record, if it is too large for the record.
    ///
    /// Its key holds the id and the attempt, and only the holder of the attempt's lease writes there: a lease of another task must
    /// not replace what is stored.
    async fn store_output(
        &self,
        id: TaskId,
        lease: LeaseId,
        json: &Json,
    ) -> Result<Payload, EngineError> {
        let output = qo_engine::payload::place(
            "output",
            json,
            INLINE_PAYLOAD_MAX_BYTES,
            self.config().payload_max_bytes,
        )?;
        if let Payload::Stored(_) = &output {
            let held = self.held().get(&lease).map(|stored| stored.task.clone());
            let task = match held.filter(|task| task.id == id) {
                Some(task) => task,
                None => self.read(id).await?.task,
            };
            if task.lease_id == Some(lease) {
                self.put_payload(&Self::output_key(id, task.attempt), json)
                    .await?;
            }
        }
        Ok(output)
    }

    pub(super) fn jitter(&self) -> Jitter {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "32 of the 64 random bits are wanted"
        )]
        Jitter::new(self.runtime().random() as u32)
    }
}
