//! Payloads that are too large for the record: objects of their own, as in direct mode.
//!
//! An input is stored before the submit that names it, under a key that its content names; an output before the completion,
//! under a key that its attempt names. So a record never names what is not there. What no record names is an orphan: it costs
//! its storage and does no harm. The ordinary ways to one are cleared up here; a crash right between the two writes leaves one.

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
const AT_ONCE: usize = 16;

impl BrokerEngine {
    /// Decides where an input goes, and stores it if it goes beside the record.
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
            // The rules have their say before anything is written.
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

    /// Decides where an output goes, and stores it if it goes beside the record. Only the holder of the lease gets to store.
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

    /// Deletes an input that was stored for a submit from which nothing came.
    pub(super) fn clear_up(&self, submit: &Submit, result: &Result<Submitted, EngineError>) {
        let Payload::Stored(reference) = &submit.input else {
            return;
        };
        let is_used = match result {
            Ok(submitted) => {
                submitted.task.id == submit.id && submitted.task.input() == submit.input
            }
            Err(EngineError::Rejected(_) | EngineError::QueueFull { .. }) => false,
            // It may yet have been written.
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

/// Whether a task has payloads beside its record, now or from an earlier attempt.
pub(super) fn has_stored_payloads(task: &Task) -> bool {
    let is_stored = |payload: Payload| matches!(payload, Payload::Stored(_));
    is_stored(task.input()) || task.output().is_some_and(is_stored)
}

/// Deletes the payloads of tasks that were dropped, beside the caller.
pub(super) fn forget_payloads(client: &StoreClient, runtime: &dyn Runtime, dropped: &[Task]) {
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
            .for_each_concurrent(AT_ONCE, |id| {
                let client = &client;
                async move {
                    if let Err(error) = remove_payloads(client, id).await {
                        tracing::warn!(task = %id, %error, "payloads of a dropped task are left behind");
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
        tracing::warn!(?failures, "a payload that nobody names is left behind");
    }
}
