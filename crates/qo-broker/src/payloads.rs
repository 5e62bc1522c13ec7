//! Payloads that are too large for the record. Each is an object, as in direct mode.
//!
//! An input is stored before the submit that refers to it, under a key with its hash. An output is stored before the completion,
//! under a key with its attempt. So a record never refers to a missing object. An object that no record refers to is an orphan:
//! it takes storage and does no harm. [`super::unused_inputs`] deletes the orphans of refused submits; a crash between the two writes leaves
//! one.

use qo_core::keys::Key;
use qo_core::{Json, LeaseId, Payload, Task, TaskId};
use qo_engine::EngineError;
use qo_engine::api::SubmitRequest;
use qo_engine::payload;

use super::BrokerEngine;
use super::payload_guard::PayloadGuard;

impl BrokerEngine {
    /// Decides where to store an input, and stores it if it becomes its own object. Nobody deletes that object while the guard exists.
    pub(super) async fn place_input(
        &self,
        id: TaskId,
        request: &SubmitRequest,
    ) -> Result<(Payload, Option<PayloadGuard>), EngineError> {
        let config = self.config();
        let input = payload::place(
            "input",
            &request.input,
            config.inline_max_bytes,
            config.payload_max_bytes,
        )?;
        let mut guard = None;
        if let Payload::Stored(reference) = &input {
            // Validate before anything is written.
            let now = self.client().now();
            let submission = request.clone().into_submission(id, input.clone(), now);
            qo_core::transition::submit(submission, self.new_op(), now)?;
            let key = Key::Input {
                id,
                sha256: reference.sha256,
            };
            // A new id has no other payloads.
            if request.id.is_some() {
                guard = Some(self.shared.payload_guards.store(id).await);
            }
            payload::put(self.client(), &key, &request.input).await?;
        }
        Ok((input, guard))
    }

    /// Decides where to store an output, and stores it if it becomes its own object. Only the holder of the lease may store.
    pub(super) async fn place_output(
        &self,
        id: TaskId,
        lease: LeaseId,
        json: &Json,
    ) -> Result<Payload, EngineError> {
        let config = self.config();
        let output = payload::place(
            "output",
            json,
            config.inline_max_bytes,
            config.payload_max_bytes,
        )?;
        if let Payload::Stored(_) = &output {
            let task = self.read(id).await?;
            if task.lease_id == Some(lease) {
                let attempt = task.attempt;
                payload::put(self.client(), &Key::Output { id, attempt }, json).await?;
            }
        }
        Ok(output)
    }
}

/// Whether a task has payloads in their own objects, now or from an earlier attempt.
pub(super) fn has_stored_payloads(task: &Task) -> bool {
    let is_stored = |payload: Payload| matches!(payload, Payload::Stored(_));
    is_stored(task.input()) || task.output().is_some_and(is_stored)
}
