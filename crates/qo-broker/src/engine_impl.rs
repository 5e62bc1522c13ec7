//! The [`Engine`] implementation of broker mode.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use qo_core::keys::Key;
use qo_core::task::Event;
use qo_core::{
    Action, DocumentName, Json, Limit, LimitUsage, PauseNote, PauseTarget, Rejection, Status, Task,
    TaskId, Timestamp, WorkerId,
};
use qo_engine::api::{
    ClaimRequest, Document, DocumentQuery, DocumentWrite, DueTask, Duty, ListPosition, Stats,
    SubmitRequest, Submitted, TaskOrder, TaskPage, TaskQuery, VersionedTask, WaitReason,
    WorkerInfo, WorkerRequest,
};
use qo_engine::watch::Watcher;
use qo_engine::{Engine, EngineError, Operation, payload, worker_records};
use qo_store::runtime::RuntimeExt;

use super::BrokerEngine;
use super::apply::jitter;
use super::message::{ClaimOrder, Claimed, DocumentOrder, ListOrder, Listed, Message, Submit};
use super::payload_removal::remove_payloads;
use super::submit_batch::SubmitBatch;
use super::unused_inputs::StoredInput;

/// How many large inputs `submit_many` stores at once.
const PLACED_CONCURRENTLY: usize = 64;
/// How many tasks `submit_many` sends to the loop in one message.
const SUBMITS_PER_MESSAGE: usize = 1_000;
/// How many such messages of one call wait for their responses at once.
const MESSAGES_AT_ONCE: usize = 8;
/// How many submits that are sent alone wait for their responses at once, of one call.
const SPECIAL_AT_ONCE: usize = 4_096;
/// The most tasks in one page.
const LIMIT_MAX: usize = 1_000;

impl BrokerEngine {
    async fn place(&self, request: SubmitRequest) -> Result<Submit, EngineError> {
        let id = request.id.unwrap_or_else(|| self.runtime().new_task_id());
        let (input, input_guard) = self.place_input(id, &request).await?;
        Ok(Submit {
            id,
            id_is_chosen: request.id.is_some(),
            unreadable: None,
            request,
            input,
            is_exempt: false,
            _input_guard: input_guard,
        })
    }

    /// Submits tasks whose inputs are stored. The results have the order of the submits.
    async fn submit_placed(&self, submits: Vec<Submit>) -> Vec<Result<Submitted, EngineError>> {
        let count = submits.len();
        match self.call(Message::Submit, submits).await {
            Ok(results) => results
                .into_iter()
                .map(|result| result.map(Submitted::from))
                .collect(),
            Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
        }
    }

    /// Submits tasks whose inputs are stored, and deletes the inputs of those that were not created.
    async fn submit_apart(&self, submits: Vec<Submit>) -> Vec<Result<Submitted, EngineError>> {
        let inputs: Vec<Option<StoredInput>> = submits.iter().map(StoredInput::of).collect();
        let results = self.submit_placed(submits).await;
        for (input, result) in inputs.into_iter().zip(&results) {
            if let Some(input) = input {
                self.delete_unused_input(input, result);
            }
        }
        results
    }

    /// Converts an operation to the core's action. The output of a completion is stored first if it is too large for the record.
    async fn prepare(
        &self,
        id: TaskId,
        operation: Operation,
    ) -> Result<(TaskId, Action), EngineError> {
        let output = match (operation.lease(), operation.output()) {
            (Some(lease), Some(json)) => Some(self.place_output(id, lease, json).await?),
            _ => None,
        };
        let lease_ms = self.config().lease_ms;
        let action = operation.into_action(lease_ms, output, || jitter(self.runtime()));
        Ok((id, action))
    }

    async fn apply_one(&self, prepared: (TaskId, Action)) -> Result<Task, EngineError> {
        let task = self.call(Message::Act, prepared).await?;
        Ok(Arc::unwrap_or_clone(task))
    }
}

impl BrokerEngine {
    /// Claims due tasks, or only looks at them.
    async fn call_claim(
        &self,
        request: &ClaimRequest,
        only_looks: bool,
    ) -> Result<Claimed, EngineError> {
        let lease_ms = request.checked_lease_ms(self.config().lease_ms)?;
        if !request.shards.is_empty() {
            return Err(EngineError::BadRequest(
                "only direct mode supports claims by shard; remove the shards".to_owned(),
            ));
        }
        if request.max == 0 {
            return Ok(Claimed::default());
        }
        let order = ClaimOrder {
            request: request.clone(),
            lease_ms,
            only_looks,
            until: self.runtime().monotonic() + Duration::from_millis(request.wait_ms),
            arrival: None,
        };
        self.call(Message::Claim, order).await
    }
}

#[async_trait]
impl Engine for BrokerEngine {
    fn now(&self) -> Timestamp {
        self.client().now()
    }

    async fn submit(&self, request: SubmitRequest) -> Result<Submitted, EngineError> {
        let submit = self.place(request).await?;
        let mut results = self.submit_apart(vec![submit]).await;
        results.pop().unwrap_or(Err(EngineError::Closed))
    }

    async fn submit_many(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        let placed: Vec<_> = futures_util::stream::iter(requests)
            .map(|request| self.place(request))
            .buffered(PLACED_CONCURRENTLY)
            .collect()
            .await;
        let mut batch = SubmitBatch::default();
        for (index, placed) in placed.into_iter().enumerate() {
            batch.add(index, placed);
        }
        batch.separate_mixed_lines();
        let SubmitBatch {
            mut results,
            plain,
            alone,
            has_order,
        } = batch;
        let mut indexes: Vec<Vec<usize>> = Vec::new();
        let mut parts: Vec<Vec<Submit>> = Vec::new();
        for (index, submit) in plain {
            match (indexes.last_mut(), parts.last_mut()) {
                (Some(indexes), Some(part)) if part.len() < SUBMITS_PER_MESSAGE => {
                    indexes.push(index);
                    part.push(submit);
                }
                _ => {
                    indexes.push(vec![index]);
                    parts.push(vec![submit]);
                }
            }
        }
        // One call sends only some of its tasks at once, so that a large one does not overload the broker by itself. Messages with ordered
        // tasks must not overtake each other.
        let plain = futures_util::stream::iter(parts)
            .map(|part| self.submit_placed(part))
            .buffered(if has_order { 1 } else { MESSAGES_AT_ONCE })
            .collect::<Vec<_>>();
        let alone = futures_util::stream::iter(alone)
            .map(|line| async move {
                let mut results = Vec::with_capacity(line.len());
                let mut line = line.into_iter().peekable();
                while line.peek().is_some() {
                    let part = line.by_ref().take(SUBMITS_PER_MESSAGE);
                    let (indexes, part): (Vec<usize>, Vec<Submit>) = part.unzip();
                    results.extend(indexes.into_iter().zip(self.submit_apart(part).await));
                }
                results
            })
            .buffer_unordered(SPECIAL_AT_ONCE)
            .collect::<Vec<_>>();
        let (plain, alone) = futures_util::future::join(plain, alone).await;
        results.extend(alone.into_iter().flatten());
        results.extend(
            indexes
                .into_iter()
                .flatten()
                .zip(plain.into_iter().flatten()),
        );
        results.into_values().collect()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        let claimed = self.call_claim(request, false).await?;
        Ok(claimed.into_tasks())
    }

    async fn due(&self, request: &ClaimRequest) -> Result<Option<Vec<DueTask>>, EngineError> {
        let due = self.call_claim(request, true).await?;
        Ok(Some(
            due.tasks.iter().map(|task| DueTask::of(task)).collect(),
        ))
    }

    async fn act(&self, id: TaskId, operation: Operation) -> Result<Task, EngineError> {
        let prepared = self.prepare(id, operation).await?;
        self.apply_one(prepared).await
    }

    async fn act_many(
        &self,
        operations: Vec<(TaskId, Operation)>,
    ) -> Vec<Result<Task, EngineError>> {
        let mut results: Vec<_> = futures_util::stream::iter(operations)
            .map(|(id, operation)| self.prepare(id, operation))
            .buffered(PLACED_CONCURRENTLY)
            .collect()
            .await;
        let prepared: Vec<_> = results.iter().flatten().cloned().collect();
        let applied = match self.call(Message::ActMany, prepared.clone()).await {
            Ok(applied) => applied,
            Err(error) => prepared.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut applied = applied.into_iter();
        let mut tasks = Vec::with_capacity(results.len());
        for result in results.drain(..) {
            tasks.push(match result {
                Err(error) => Err(error),
                Ok(prepared) => match applied.next().unwrap_or(Err(EngineError::Closed)) {
                    Ok(task) => Ok(Arc::unwrap_or_clone(task)),
                    // Finished tasks are not in memory. A single operation looks them up.
                    Err(EngineError::Rejected(Rejection::NotFound { .. })) => {
                        self.apply_one(prepared).await
                    }
                    Err(error) => Err(error),
                },
            });
        }
        tasks
    }

    /// An archived task cannot be replayed, so its payloads can be deleted before its record.
    async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        let task = self.read(id).await?;
        if !task.status.is_terminal() {
            return Err(Rejection::WrongStatus {
                action: "purge",
                status: task.status,
            }
            .into());
        }
        if task.stops_line() {
            return Err(Rejection::StopsLine { action: "purge" }.into());
        }
        if task.status != Status::Archived {
            self.act(id, Operation::Archive).await?;
        }
        // A submit of the same id stores its input after this, and then finds no task.
        let _guard = self.shared.payload_guards.delete(id).await;
        remove_payloads(self.client(), id).await?;
        self.call(Message::Purge, id).await?;
        Ok(())
    }

    async fn get(&self, id: TaskId) -> Result<Task, EngineError> {
        self.read(id).await
    }

    async fn waits_for(&self, task: &Task) -> Result<Option<WaitReason>, EngineError> {
        if task.status != Status::Pending {
            return Ok(None);
        }
        self.call(Message::WaitsFor, task.id).await
    }

    async fn limit_usage(
        &self,
        _limits: &[(DocumentName, Limit)],
    ) -> Result<BTreeMap<DocumentName, LimitUsage>, EngineError> {
        self.call(Message::LimitUsage, ()).await
    }

    async fn input(&self, task: &Task) -> Result<Json, EngineError> {
        let id = task.id;
        payload::load(self.client(), task.input(), |sha256| Key::Input {
            id,
            sha256,
        })
        .await
    }

    async fn output(&self, task: &Task) -> Result<Option<Json>, EngineError> {
        let (id, attempt) = (task.id, task.attempt);
        match task.output() {
            None => Ok(None),
            Some(output) => payload::load(self.client(), output, |_| Key::Output { id, attempt })
                .await
                .map(Some),
        }
    }

    /// Lists live and finished tasks in the same order, and merges both lists.
    async fn list(&self, query: TaskQuery<'_>) -> Result<TaskPage, EngineError> {
        let by = query.filter.order;
        let after = query.cursor.map(|cursor| by.parse_cursor(cursor));
        let after = after.transpose()?;
        let limit = query.limit.clamp(1, LIMIT_MAX);
        let order = || ListOrder {
            filter: query.filter.clone(),
            after,
            limit,
        };
        let live = self.call(Message::List, order()).await?;
        let mut examined = live.examined;
        let (mut tasks, last) = match &self.shared.archive {
            None => (live.tasks, live.last),
            Some(archive) => {
                let ended = archive.list(order()).await?;
                examined += ended.examined;
                merge(by, live, ended)
            }
        };
        let mut next = last;
        if tasks.len() > limit {
            tasks.truncate(limit);
            next = tasks.last().map(|task| by.position_of(task));
        }
        Ok(TaskPage {
            tasks,
            next: next.map(|place| by.cursor(place)),
            examined: u64::try_from(examined).ok(),
        })
    }

    async fn history(&self, id: TaskId) -> Result<Vec<Event>, EngineError> {
        Ok(self.read(id).await?.events.to_vec())
    }

    async fn versions(&self, id: TaskId, _limit: usize) -> Result<Vec<VersionedTask>, EngineError> {
        // If the task does not exist, that is the more useful error.
        self.read(id).await?;
        Err(EngineError::NotVersioned)
    }

    async fn stats(&self) -> Result<Stats, EngineError> {
        self.call(Message::Stats, ()).await.map(|stats| *stats)
    }

    async fn workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        worker_records::list(self.client()).await
    }

    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<Option<WorkerRequest>, EngineError> {
        let op = self.shared.runtime.new_op_id();
        self.shared.workers.beat(self.client(), worker, op).await
    }

    async fn ask_worker(
        &self,
        worker: &WorkerId,
        request: Option<WorkerRequest>,
    ) -> Result<WorkerInfo, EngineError> {
        let op = self.shared.runtime.new_op_id();
        worker_records::ask(self.client(), worker, request, op).await
    }

    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError> {
        self.shared.workers.remove(self.client(), worker).await
    }

    async fn set_pause(
        &self,
        target: &PauseTarget,
        note: Option<PauseNote>,
    ) -> Result<(), EngineError> {
        self.call(Message::SetPause, (target.clone(), note)).await
    }

    async fn documents(&self, query: &DocumentQuery) -> Result<Vec<Document>, EngineError> {
        self.call(Message::Documents, query.clone()).await
    }

    async fn write_document(&self, write: DocumentWrite) -> Result<Option<Document>, EngineError> {
        write.validate()?;
        let mut submits = Vec::with_capacity(write.submits.len());
        for request in write.submits.clone() {
            let mut submit = self.place(request).await?;
            submit.is_exempt = true;
            submits.push(submit);
        }
        let order = Box::new(DocumentOrder { write, submits });
        self.call(Message::WriteDocument, order).await
    }

    /// An engine of rows is the only one of its queue. Several processes may share a JSON object.
    fn duty(&self) -> Duty {
        match self.shared.archive {
            Some(_) => Duty::Sole,
            None => Duty::Shared,
        }
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) -> bool {
        self.shared.watchers.add(watcher);
        true
    }

    async fn close(&self) {
        // An error means that the engine was closed already.
        let _ = self.call(Message::Close, ()).await;
    }
}

/// Merges both lists up to the last place that both have reached. A task that finished between the two reads is in both lists; its
/// live version is used.
fn merge(by: TaskOrder, live: Listed, ended: Listed) -> (Vec<Task>, Option<ListPosition>) {
    let reached = match (live.last, ended.last) {
        (Some(one), Some(other)) if by.compare(other, one).is_lt() => Some(other),
        (Some(one), Some(_)) => Some(one),
        (one, other) => one.or(other),
    };
    let mut tasks: BTreeMap<TaskId, Task> = BTreeMap::new();
    for task in ended.tasks.into_iter().chain(live.tasks) {
        let is_reached = |place| by.compare(by.position_of(&task), place).is_le();
        if reached.is_none_or(is_reached) {
            tasks.insert(task.id, task);
        }
    }
    let mut tasks: Vec<Task> = tasks.into_values().collect();
    tasks.sort_by(|one, other| by.compare(by.position_of(one), by.position_of(other)));
    (tasks, reached)
}
