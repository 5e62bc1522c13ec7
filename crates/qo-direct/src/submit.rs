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
//! If step 3 finds that the task exists, and the task is purged before it can be read, then an id that qo generated was that of this very submit,
//! which is done. An id that the caller chose is used again, as by a submit that comes after the purge.
//!
//! A repeated submit of a task that nobody has claimed yet confirms the key and writes the ready entry again, so a caller that retries
//! after an error does not have to wait for the sweeper.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use qo_core::keys::Key;
use qo_core::task::{KeyHold, OnConflict, OrderingLine};
use qo_core::transition::submit;
use qo_core::{Payload, QueueSettings, Rejection, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::{SubmitRequest, Submitted};
use qo_store::StoreError;
use qo_store::runtime::RuntimeExt;

use super::change::{encode_task, in_doubt};
use super::{DirectEngine, StoredTask};

/// How often to create a task whose id is taken by one that is purged at the same moment.
const CREATE_TRIES_MAX: usize = 3;

/// The error of a submit whose id was taken by a task that has been purged since. It may have been the task of this very submit.
pub(super) fn purged_meanwhile(id: TaskId) -> EngineError {
    EngineError::Store(StoreError::Unavailable {
        key: Key::Task(id).to_string(),
        detail: "a task with this id was purged at the same moment".to_owned(),
        attempts: 1,
        elapsed: Duration::ZERO,
        in_doubt: true,
    })
}

/// A task to create.
#[derive(Clone, Copy)]
pub(super) struct NewTask<'a> {
    pub(super) request: &'a SubmitRequest,
    /// The input of the request, and where it is stored.
    pub(super) input: &'a Payload,
    /// The settings of its queue.
    pub(super) settings: &'a QueueSettings,
}

impl DirectEngine {
    pub(super) async fn submit_one(
        &self,
        request: SubmitRequest,
        admission: Admission,
    ) -> Result<Submitted, EngineError> {
        if let Some(line) = request.ordering_line() {
            let requests = vec![request];
            let mut results = self.submit_ordered(&line, requests, admission).await;
            return results.pop().unwrap_or(Err(EngineError::Closed));
        }
        let submitted = self.create_task(request, admission).await?;
        self.announce(&submitted).await;
        Ok(submitted)
    }

    /// Creates the task of a request, or finds the existing one. Its ready entry is still to be written.
    pub(super) async fn create_task(
        &self,
        request: SubmitRequest,
        admission: Admission,
    ) -> Result<Submitted, EngineError> {
        let id = request.id.unwrap_or_else(|| self.new_task_id());
        let input = self.place_input(&request.input)?;
        let now = self.client().now();
        let settings = self.settings_of(&request.queue).await?;
        // Validate the request before anything is written.
        let mut submission = request.clone().into_submission(id, input.clone(), now);
        settings.complete(&mut submission);
        submit(submission, self.runtime().new_op_id(), now)?;
        if admission == Admission::Bounded
            && let Err(error) = self.admit(&request.queue, &settings).await
        {
            return match error {
                EngineError::Rejected(full) => self.find_submitted(&request, full).await,
                error => Err(error),
            };
        }
        let new = NewTask {
            request: &request,
            input: &input,
            settings: &settings,
        };
        let created = self.create_admitted(id, new).await;
        if created.as_ref().is_ok_and(|created| created.duplicate) {
            self.return_place(&request.queue, &settings).await;
        }
        created
    }

    async fn create_admitted(
        &self,
        id: TaskId,
        new: NewTask<'_>,
    ) -> Result<Submitted, EngineError> {
        match &new.request.idempotency {
            None => {
                for _ in 0..CREATE_TRIES_MAX {
                    match self.create(id, None, new).await {
                        // As a submit after the purge would: the caller uses an id again, see [`super::purge`].
                        Err(error) if error.is_not_found() => {}
                        created => return created,
                    }
                }
                Err(purged_meanwhile(id))
            }
            Some(key) => self.create_with_key(id, key, new).await,
        }
    }

    /// A new id, by the store's clock: the sweeper finds new tasks by the time in their ids.
    pub(super) fn new_task_id(&self) -> TaskId {
        TaskId::from_time(self.client().now(), self.runtime().random_u128())
    }

    /// Creates a task, or finds the existing one. Returns `NotFound` if the existing one was purged before it could be read. It is never
    /// created again under an id that qo generated: then the purged task was that of this very submit.
    pub(super) async fn create(
        &self,
        id: TaskId,
        held: Option<HeldKey>,
        new: NewTask<'_>,
    ) -> Result<Submitted, EngineError> {
        let NewTask {
            request,
            input,
            settings,
        } = new;
        if let Payload::Stored(reference) = input {
            let key = Key::Input {
                id,
                sha256: reference.sha256,
            };
            self.put_payload(&key, &request.input).await?;
        }
        let op = self.runtime().new_op_id();
        let now = held.map_or_else(|| self.client().now(), |held| held.submitted_at);
        let mut submission = request.clone().into_submission(id, input.clone(), now);
        settings.complete(&mut submission);
        if let Some(held) = held {
            submission.uniqueness.hold = held.hold;
        }
        let mut task = submit(submission, op, now)?;
        if let Some(held) = held {
            task.idempotency_until = held.until;
        }
        task.fairness_rank = self.rank_of(&task, settings).await;
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
                match self.read(id).await {
                    Ok(stored) => Ok(Submitted {
                        duplicate: !stored.task.carries(op),
                        task: stored.task,
                    }),
                    // Nobody else knows the id. So the create was applied, and the task has been purged since.
                    Err(error)
                        if error.is_not_found() && request.id.is_none() && held.is_none() =>
                    {
                        Ok(Submitted {
                            task,
                            duplicate: false,
                        })
                    }
                    Err(error) => Err(in_doubt(error)),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The existing task of a submit for which there is no room.
    pub(super) async fn find_submitted(
        &self,
        request: &SubmitRequest,
        full: Rejection,
    ) -> Result<Submitted, EngineError> {
        let existing = |task| Submitted {
            task,
            duplicate: true,
        };
        if let Some(id) = request.id {
            match self.read(id).await {
                Ok(stored) => return Ok(existing(stored.task)),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let holder = match request.scoped_key() {
            Some(key) => self.key_holder(&key).await?,
            None => None,
        };
        let Some(holder) = holder else {
            return Err(full.into());
        };
        if request.uniqueness.on_conflict == OnConflict::Keep {
            return Ok(existing(holder));
        }
        // It changes the task that holds its key, which needs no room.
        let settings = self.settings_of(&request.queue).await?;
        let (id, input) = (self.new_task_id(), self.place_input(&request.input)?);
        let id = request.id.unwrap_or(id);
        let new = NewTask {
            request,
            input: &input,
            settings: &settings,
        };
        self.create_admitted(id, new).await
    }

    /// Writes the ready entry of a task that nobody has claimed yet, and notifies watchers of a new task.
    async fn announce(&self, submitted: &Submitted) {
        if submitted.task.attempt == 0 {
            self.publish(&submitted.task).await;
        }
        self.rank_is_published(&submitted.task);
        if !submitted.duplicate {
            self.shared.watchers.notify("submit", &submitted.task);
        }
    }

    /// Submits concurrently and returns the results in the order of the requests. Tasks with the same ordering key are submitted together.
    pub(super) async fn submit_all(
        &self,
        requests: Vec<SubmitRequest>,
        admission: Admission,
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
        let single =
            futures_util::stream::iter(single)
                .map(|(index, request)| async move {
                    (index, self.submit_one(request, admission).await)
                })
                .buffer_unordered(concurrency)
                .collect::<Vec<_>>();
        let ordered = futures_util::stream::iter(lines)
            .map(|(line, (indexes, requests))| async move {
                let results = self.submit_ordered(&line, requests, admission).await;
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

/// Whether a submit must fit into its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is rejected if the queue is full.
    Bounded,
    /// It is a run of a schedule, which must not get lost.
    Exempt,
}

/// The result of acquiring an idempotency key.
pub(super) enum KeyOwner {
    /// The caller must create the task of the key.
    Caller(HeldKey),
    /// The key belongs to an existing task.
    Existing(Box<StoredTask>),
}

/// A key whose task is to be created.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldKey {
    /// The id that the key's record names.
    pub(super) id: TaskId,
    /// When the key is free again.
    pub(super) until: Option<Timestamp>,
    /// How long the task holds it.
    pub(super) hold: KeyHold,
    /// The time of the submit.
    pub(super) submitted_at: Timestamp,
}
