//! Submitting tasks.
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | if the request has an idempotency key: write its record, which names the task's id | a key whose task does not exist; the next submit with the key creates the task with that id |
//! | 2 | store a large input | an orphan, which the sweeper deletes |
//! | 3 | create the task: **from here on it is never lost** | a pending task without a ready entry, which the sweeper finds |
//! | 4 | write its ready entry, then the signal | nothing |

use futures_util::StreamExt;
use qo_core::keys::Key;
use qo_core::limits::INLINE_PAYLOAD_MAX_BYTES;
use qo_core::transition::submit;
use qo_core::{Payload, TaskId};
use qo_engine::EngineError;
use qo_engine::api::{SubmitRequest, Submitted};
use qo_store::StoreError;
use qo_store::runtime::RuntimeExt;

use super::DirectEngine;
use super::change::encode_task;

impl DirectEngine {
    pub(super) async fn submit_one(
        &self,
        request: SubmitRequest,
    ) -> Result<Submitted, EngineError> {
        let id = request.id.unwrap_or_else(|| self.runtime().new_task_id());
        let input = qo_engine::payload::place(
            "input",
            &request.input,
            INLINE_PAYLOAD_MAX_BYTES,
            self.config().payload_max_bytes,
        )?;
        let now = self.client().now();
        // Validate the request before anything is written.
        submit(
            request.clone().into_submission(id, input.clone(), now),
            self.runtime().new_op_id(),
            now,
        )?;
        let id = match &request.idempotency {
            None => id,
            Some(key) => match self.acquire_key(&request, key, id).await? {
                KeyOwner::Caller(id) => id,
                KeyOwner::Existing(task) => {
                    return Ok(Submitted {
                        task: *task,
                        duplicate: true,
                    });
                }
            },
        };
        let submitted = self.create(id, request, input).await?;
        if !submitted.duplicate {
            self.shared.watchers.notify("submit", &submitted.task);
        }
        Ok(submitted)
    }

    async fn create(
        &self,
        id: TaskId,
        request: SubmitRequest,
        input: Payload,
    ) -> Result<Submitted, EngineError> {
        if let Payload::Stored(reference) = &input {
            let key = Key::Input {
                id,
                sha256: reference.sha256,
            };
            self.put_payload(&key, &request.input).await?;
        }
        let op = self.runtime().new_op_id();
        let now = self.client().now();
        let task = submit(request.into_submission(id, input, now), op, now)?;
        match self
            .client()
            .create(&Key::Task(id).to_string(), encode_task(&task)?, &op)
            .await
        {
            Ok(_) => {
                self.publish(&task).await;
                Ok(Submitted {
                    task,
                    duplicate: false,
                })
            }
            Err(StoreError::AlreadyExists { .. }) => {
                let task = self.read(id).await?.task;
                let ours = task.carries(op);
                if ours {
                    self.publish(&task).await;
                }
                Ok(Submitted {
                    task,
                    duplicate: !ours,
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Submits concurrently and returns the results in the order of the requests.
    pub(super) async fn submit_all(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        futures_util::stream::iter(requests)
            .map(|request| self.submit_one(request))
            .buffered(self.config().concurrency)
            .collect()
            .await
    }
}

/// The result of acquiring an idempotency key.
pub(super) enum KeyOwner {
    /// The caller has the key and must create the task with this id.
    Caller(TaskId),
    /// The key belongs to an existing task.
    Existing(Box<qo_core::Task>),
}
