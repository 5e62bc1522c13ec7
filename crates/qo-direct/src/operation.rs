//! Operations on one task.
//!
//! The operations of a worker use the task and the tag cached from its claim, so they need no read. If the task has changed since,
//! for instance because a cancel was requested, the swap fails, the task is read once, and the rules decide whether the lease is
//! still valid.

use qo_core::limits::INLINE_PAYLOAD_MAX_BYTES;
use qo_core::{Jitter, Json, LeaseId, Payload, Task, TaskId};
use qo_engine::{EngineError, Operation};

use super::{DirectEngine, StoredTask};

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
        // The cached task is used once: after a failure the next operation reads the task.
        let cached = lease
            .and_then(|lease| self.claim_cache().remove(&lease))
            .filter(|stored| stored.task.id == id);
        let changed = self.change(id, cached, action).await?;
        if let (Some(lease), Some(tag), false) = (lease, changed.tag, ends_attempt) {
            let task = changed.task.clone();
            self.cache_claim(lease, StoredTask { task, tag });
        }
        Ok(changed.task)
    }

    /// Stores an output in its own object, if it is too large for the record.
    ///
    /// The key contains the id and the attempt, and only the holder of the attempt's lease may write it: the lease of another task
    /// must not replace a stored output.
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
            let cached = self
                .claim_cache()
                .get(&lease)
                .map(|stored| stored.task.clone());
            let task = match cached.filter(|task| task.id == id) {
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
