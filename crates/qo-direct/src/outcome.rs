//! What a worker does with a task that it has claimed.
//!
//! The claim's answer gave the task and its tag, so that nothing has to be read. If somebody has changed the task since, for
//! instance to request a cancel, the swap fails, the task is read once, and the rules decide whether the lease still holds.

use qo_core::limits::INLINE_PAYLOAD_MAX_BYTES;
use qo_core::transition::{Failure, ProgressReport};
use qo_core::{Action, Jitter, Json, LeaseId, Payload, Task, TaskId};
use qo_engine::EngineError;

use super::change::Changed;
use super::{DirectEngine, Stored};

impl DirectEngine {
    /// Changes a task that goes on running.
    pub(super) async fn keep(
        &self,
        id: TaskId,
        lease: LeaseId,
        action: Action,
    ) -> Result<Task, EngineError> {
        let changed = self.change_held(id, lease, action).await?;
        if let Some(tag) = changed.tag {
            let task = changed.task.clone();
            self.hold(lease, Stored { task, tag });
        }
        Ok(changed.task)
    }

    /// Ends an attempt.
    pub(super) async fn end(
        &self,
        id: TaskId,
        lease: LeaseId,
        action: Action,
    ) -> Result<Task, EngineError> {
        Ok(self.change_held(id, lease, action).await?.task)
    }

    pub(super) async fn complete_with(
        &self,
        id: TaskId,
        lease: LeaseId,
        output: Option<Json>,
    ) -> Result<Task, EngineError> {
        let output = match output {
            None => None,
            Some(json) => Some(self.store_output(id, lease, &json).await?),
        };
        self.end(id, lease, Action::Complete { lease, output })
            .await
    }

    /// Stores an output beside the record, if it is too large for it. It is named by its attempt: nobody else writes there.
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
            let task = match held {
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

    pub(super) fn failed(&self, lease: LeaseId, failure: Failure) -> Action {
        Action::Fail {
            lease,
            failure,
            jitter: self.jitter(),
        }
    }

    pub(super) fn progressed(lease: LeaseId, report: ProgressReport) -> Action {
        Action::Progress { lease, report }
    }

    pub(super) fn jitter(&self) -> Jitter {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "32 of the 64 random bits are wanted"
        )]
        Jitter::new(self.runtime().random() as u32)
    }

    async fn change_held(
        &self,
        id: TaskId,
        lease: LeaseId,
        action: Action,
    ) -> Result<Changed, EngineError> {
        // What was known is used up, whatever comes of it: after a failure the next operation reads.
        let known = self
            .held()
            .remove(&lease)
            .filter(|stored| stored.task.id == id);
        self.change(id, known, action).await
    }
}
