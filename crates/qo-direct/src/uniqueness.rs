//! Submits with an idempotency key: one creates the task, and the others find it. They may replace its input or postpone it.
//!
//! [`super::idempotency`] has the steps and why each crash is survived.

use std::time::Duration;

use qo_core::task::Uniqueness;
use qo_core::{OpId, Payload, Task, TaskId};
use qo_engine::EngineError;
use qo_engine::api::{IdempotencyRequest, SubmitRequest, Submitted};
use qo_store::StoreError;
use qo_store::runtime::RuntimeExt;

use super::change::in_doubt;
use super::submit::{KeyOwner, NewTask, purged_meanwhile};
use super::{DirectEngine, StoredTask};

/// How often a submit starts over: because its task was purged meanwhile, or because others keep changing the task that it changes.
const TRIES_MAX: u32 = 32;

impl DirectEngine {
    /// Creates the task of a key, or finds the one that holds it.
    pub(super) async fn create_with_key(
        &self,
        mut id: TaskId,
        key: &IdempotencyRequest,
        new: NewTask<'_>,
    ) -> Result<Submitted, EngineError> {
        let NewTask { request, input, .. } = new;
        // Identifies the change of the task that holds the key.
        let op = self.runtime().new_op_id();
        for round in 0..TRIES_MAX {
            let found = match self.acquire_key(request, key, id).await? {
                KeyOwner::Existing(stored) => {
                    let amended = self.amend(*stored, op, request, input).await?;
                    amended.map(|task| Submitted {
                        task,
                        duplicate: true,
                    })
                }
                KeyOwner::Caller(held) => {
                    match self.create(held.id, Some(held), new).await {
                        Ok(created) => {
                            Some(created).filter(|created| is_settled_by(created, request))
                        }
                        // The task of another submit, or an id that the caller uses again. Its purge has released the key.
                        Err(error)
                            if error.is_not_found() && (held.id != id || request.id.is_some()) =>
                        {
                            None
                        }
                        Err(error) if error.is_not_found() => return Err(purged_meanwhile(id)),
                        Err(error) => return Err(error),
                    }
                }
            };
            let Some(submitted) = found else {
                // Others were faster. They take turns.
                let pause_ms = self.runtime().random_below(u64::from(round) * 10);
                self.runtime().sleep(Duration::from_millis(pause_ms)).await;
                if request.id.is_none() {
                    id = self.new_task_id();
                }
                continue;
            };
            match self.is_revived(&submitted.task).await {
                Ok(false) => return Ok(submitted),
                Ok(true) => self.delete_revived(&submitted.task).await?,
                Err(error) => return Err(in_doubt(error)),
            }
            if request.id.is_none() {
                id = self.new_task_id();
            }
        }
        Err(EngineError::Contended { id })
    }

    /// Makes the change that a submit asks for of the task that holds its key, if any. Returns `None` if somebody else changed the task.
    async fn amend(
        &self,
        stored: StoredTask,
        op: OpId,
        request: &SubmitRequest,
        input: &Payload,
    ) -> Result<Option<Task>, EngineError> {
        if stored.task.carries(op) {
            // The refusal of the swap was the response to its second copy.
            self.publish(&stored.task).await;
            return Ok(Some(stored.task));
        }
        let now = self.client().now();
        let id = request.id.unwrap_or_else(|| self.new_task_id());
        let submission = request.clone().into_submission(id, input.clone(), now);
        let Some(action) = submission.amendment(&stored.task, now)? else {
            return Ok(Some(stored.task));
        };
        match self.try_change(stored, op, action).await {
            Ok(changed) => Ok(Some(changed.task)),
            Err(EngineError::Rejected(_) | EngineError::Store(StoreError::Conflict { .. })) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether nothing is left to do for a submit that wanted to create a task: it did, or another submit created the same one. A submit that
/// asks for more than that begins again: it may have to change the task, and the task may have started since.
fn is_settled_by(created: &Submitted, request: &SubmitRequest) -> bool {
    !created.duplicate
        || request.uniqueness == Uniqueness::default()
        || request.id == Some(created.task.id)
}
