//! Submitting tasks.
//!
//! | step | what | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1 | if the request has an idempotency key: write its record, which names the task's id | a key whose task does not exist; the next submit with the key creates the task with that id |
//! | 2 | store a large input | an orphan, which the sweeper deletes |
//! | 3 | create the task: **from here on it is never lost** | a pending task without a ready entry, which the sweeper finds |
//! | 4 | if the request has an idempotency key: confirm that the task was not purged before step 3, see [`super::idempotency`] | the same |
//! | 5 | write its ready entry, then the signal | nothing |
//!
//! A task with an ordering key joins its line between steps 4 and 5 ([`super::ordering`]).
//!
//! A repeated submit of a task that nobody has claimed yet confirms the key and writes the ready entry again, so a caller that retries
//! after an error does not have to wait for the sweeper.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use qo_core::keys::Key;
use qo_core::limits::INLINE_PAYLOAD_MAX_BYTES;
use qo_core::task::OrderingLine;
use qo_core::transition::submit;
use qo_core::{Payload, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::{SubmitRequest, Submitted};
use qo_store::StoreError;
use qo_store::runtime::RuntimeExt;

use super::DirectEngine;
use super::change::{encode_task, in_doubt};

/// How often a submit starts over because its task was purged meanwhile.
const TRIES_MAX: u32 = 8;

impl DirectEngine {
    pub(super) async fn submit_one(
        &self,
        request: SubmitRequest,
    ) -> Result<Submitted, EngineError> {
        if let Some(line) = request.ordering_line() {
            let mut results = self.submit_ordered(&line, vec![request]).await;
            return results.pop().unwrap_or(Err(EngineError::Closed));
        }
        let submitted = self.create_task(request).await?;
        self.announce(&submitted).await;
        Ok(submitted)
    }

    /// Creates the task of a request, or finds the existing one. Its ready entry is still to be written.
    pub(super) async fn create_task(
        &self,
        request: SubmitRequest,
    ) -> Result<Submitted, EngineError> {
        let id = request.id.unwrap_or_else(|| self.new_task_id());
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
        let Some(idempotency) = request.idempotency.clone() else {
            return self.create(id, None, request, &input).await;
        };
        let mut id = id;
        for _ in 0..TRIES_MAX {
            let submitted = match self.acquire_key(&request, &idempotency, id).await? {
                KeyOwner::Existing(task) => Submitted {
                    task: *task,
                    duplicate: true,
                },
                KeyOwner::Caller(held) => {
                    let id = held.id;
                    self.create(id, Some(held), request.clone(), &input).await?
                }
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

    /// A new id, by the store's clock: the sweeper finds new tasks by the time in their ids.
    pub(super) fn new_task_id(&self) -> TaskId {
        TaskId::from_time(self.client().now(), self.runtime().random_u128())
    }

    /// Creates a task, or finds the existing one.
    async fn create(
        &self,
        id: TaskId,
        held: Option<HeldKey>,
        request: SubmitRequest,
        input: &Payload,
    ) -> Result<Submitted, EngineError> {
        if let Payload::Stored(reference) = input {
            let key = Key::Input {
                id,
                sha256: reference.sha256,
            };
            self.put_payload(&key, &request.input).await?;
        }
        let op = self.runtime().new_op_id();
        let now = held.map_or_else(|| self.client().now(), |held| held.submitted_at);
        let mut task = submit(request.into_submission(id, input.clone(), now), op, now)?;
        if let Some(held) = held {
            task.idempotency_until = held.until;
        }
        match self
            .client()
            .create(&Key::Task(id).to_string(), encode_task(&task)?, &op)
            .await
        {
            Ok(_) => Ok(Submitted {
                task,
                duplicate: false,
            }),
            Err(StoreError::AlreadyExists { .. }) => {
                // The refusal may be the response to a second copy of a create that was applied.
                let task = self.read(id).await.map_err(in_doubt)?.task;
                let duplicate = !task.carries(op);
                Ok(Submitted { task, duplicate })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the ready entry of a task that nobody has claimed yet, and notifies watchers of a new task.
    async fn announce(&self, submitted: &Submitted) {
        if submitted.task.attempt == 0 {
            self.publish(&submitted.task).await;
        }
        if !submitted.duplicate {
            self.shared.watchers.notify("submit", &submitted.task);
        }
    }

    /// Submits concurrently and returns the results in the order of the requests. Tasks with the same ordering key are submitted together.
    pub(super) async fn submit_all(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        let mut single = Vec::new();
        let mut lines: BTreeMap<OrderingLine, (Vec<usize>, Vec<SubmitRequest>)> = BTreeMap::new();
        for (index, request) in requests.into_iter().enumerate() {
            match request.ordering_line() {
                None => single.push((index, request)),
                Some(line) => {
                    let (indexes, requests) = lines.entry(line).or_default();
                    indexes.push(index);
                    requests.push(request);
                }
            }
        }
        let concurrency = self.config().concurrency;
        let single = futures_util::stream::iter(single)
            .map(|(index, request)| async move { (index, self.submit_one(request).await) })
            .buffer_unordered(concurrency)
            .collect::<Vec<_>>();
        let ordered = futures_util::stream::iter(lines)
            .map(|(line, (indexes, requests))| async move {
                let results = self.submit_ordered(&line, requests).await;
                indexes.into_iter().zip(results).collect::<Vec<_>>()
            })
            .buffer_unordered(concurrency)
            .collect::<Vec<_>>();
        let (single, ordered) = futures_util::future::join(single, ordered).await;
        let ordered = ordered.into_iter().flatten();
        let results: BTreeMap<usize, _> = single.into_iter().chain(ordered).collect();
        results.into_values().collect()
    }
}

/// The result of acquiring an idempotency key.
pub(super) enum KeyOwner {
    /// The caller must create the task of the key.
    Caller(HeldKey),
    /// The key belongs to an existing task.
    Existing(Box<qo_core::Task>),
}

/// A key whose task is to be created.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldKey {
    /// The id that the key's record names.
    pub(super) id: TaskId,
    /// When the key is free again.
    pub(super) until: Option<Timestamp>,
    /// The time of the submit.
    pub(super) submitted_at: Timestamp,
}
