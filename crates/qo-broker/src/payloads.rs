//! Payloads that are too large for the record. Each is an object, as in direct mode.
//!
//! An input is stored before the submit that refers to it, under a key with its hash. An output is stored before the completion,
//! under a key with its attempt. So a record never refers to a missing object. An object that no record refers to is an orphan:
//! it takes storage and does no harm. This module deletes the orphans of failed requests; a crash between the two writes leaves
//! one.

use futures_util::StreamExt;
use qo_core::keys::{Key, data_prefix};
use qo_core::{Json, LeaseId, Payload, Task, TaskId};
use qo_engine::EngineError;
use qo_engine::api::{SubmitRequest, Submitted};
use qo_engine::payload;
use qo_store::StoreClient;
use qo_store::client::PAGE_LIMIT_MAX;
use qo_store::runtime::Runtime;

use super::BrokerEngine;
use super::message::Submit;

/// How many payloads are stored or deleted at once.
const CONCURRENCY: usize = 16;

impl BrokerEngine {
    /// Decides where to store an input, and stores it if it becomes its own object.
    pub(super) async fn place_input(
        &self,
        id: TaskId,
        request: &SubmitRequest,
    ) -> Result<Payload, EngineError> {
        let config = self.config();
        let input = payload::place(
            "input",
            &request.input,
            config.inline_max_bytes,
            config.payload_max_bytes,
        )?;
        if let Payload::Stored(reference) = &input {
            // Validate before anything is written.
            let now = self.client().now();
            let submission = request.clone().into_submission(id, input.clone(), now);
            qo_core::transition::submit(submission, self.new_op(), now)?;
            let key = Key::Input {
                id,
                sha256: reference.sha256,
            };
            payload::put(self.client(), &key, &request.input).await?;
        }
        Ok(input)
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

    /// Deletes an input that was stored for a submit that created no task.
    pub(super) fn delete_unused_input(
        &self,
        submit: &Submit,
        result: &Result<Submitted, EngineError>,
    ) {
        let Payload::Stored(reference) = &submit.input else {
            return;
        };
        let is_used = match result {
            Ok(submitted) => {
                submitted.task.id == submit.id && submitted.task.input() == submit.input
            }
            Err(EngineError::Rejected(_) | EngineError::QueueFull { .. }) => false,
            // The submit may still have been written.
            Err(_) => true,
        };
        if !is_used {
            let key = Key::Input {
                id: submit.id,
                sha256: reference.sha256,
            };
            let client = self.client().clone();
            self.runtime().spawn(Box::pin(async move {
                delete(&client, &[key.to_string()]).await;
            }));
        }
    }

    /// Deletes all payloads of a task.
    pub(super) async fn remove_payloads(&self, id: TaskId) -> Result<(), EngineError> {
        remove_payloads(self.client(), id).await
    }
}

/// Whether a task has payloads in their own objects, now or from an earlier attempt.
pub(super) fn has_stored_payloads(task: &Task) -> bool {
    let is_stored = |payload: Payload| matches!(payload, Payload::Stored(_));
    is_stored(task.input()) || task.output().is_some_and(is_stored)
}

/// Deletes the payloads of dropped tasks in the background.
pub(super) fn remove_payloads_of(client: &StoreClient, runtime: &dyn Runtime, dropped: &[Task]) {
    let ids: Vec<_> = dropped
        .iter()
        .filter(|task| has_stored_payloads(task))
        .map(|task| task.id)
        .collect();
    if ids.is_empty() {
        return;
    }
    let client = client.clone();
    runtime.spawn(Box::pin(async move {
        futures_util::stream::iter(ids)
            .for_each_concurrent(CONCURRENCY, |id| {
                let client = &client;
                async move {
                    if let Err(error) = remove_payloads(client, id).await {
                        tracing::warn!(task = %id, %error, "could not delete the payloads of a dropped task");
                    }
                }
            })
            .await;
    }));
}

pub(super) async fn remove_payloads(client: &StoreClient, id: TaskId) -> Result<(), EngineError> {
    let page = client.page(&data_prefix(id), None, PAGE_LIMIT_MAX).await?;
    let keys: Vec<_> = page.entries.into_iter().map(|entry| entry.key).collect();
    if keys.is_empty() {
        return Ok(());
    }
    match client.delete_many(&keys).await {
        Ok(()) => Ok(()),
        Err(mut failures) => match failures.failed.pop() {
            Some((_, error)) => Err(error.into()),
            None => Ok(()),
        },
    }
}

async fn delete(client: &StoreClient, keys: &[String]) {
    if let Err(failures) = client.delete_many(keys).await {
        tracing::warn!(?failures, "could not delete an unused payload");
    }
}
