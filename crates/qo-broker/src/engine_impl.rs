//! Broker mode as an [`Engine`].

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use qo_core::keys::Key;
use qo_core::limits::LEASE_MAX_MS;
use qo_core::task::Event;
use qo_core::transition::{Failure, ProgressReport};
use qo_core::{
    Action, Json, LeaseId, QueueName, Rejection, Status, Task, TaskId, Timestamp, WorkerId,
};
use qo_engine::Engine;
use qo_engine::EngineError;
use qo_engine::api::{
    ClaimRequest, Completion, Stats, SubmitRequest, Submitted, TaskFilter, TaskPage, VersionedTask,
    WorkerInfo,
};
use qo_engine::watch::Watcher;
use qo_engine::{payload, worker_records};
use qo_store::runtime::RuntimeExt;

use super::BrokerEngine;
use super::apply::jitter;
use super::message::{Answer, Ask, ListAsk, Listed, Submit, Taken, Wish};

/// How many large inputs `submit_many` stores at once.
const PLACED_AT_ONCE: usize = 64;
/// How many tasks `submit_many` hands to the loop at once.
const SUBMITS_PER_ASK: usize = 1_000;
/// The most tasks in one page.
const LIMIT_MAX: usize = 1_000;

impl BrokerEngine {
    async fn place(&self, request: SubmitRequest) -> Result<Submit, EngineError> {
        let id = request.id.unwrap_or_else(|| self.runtime().new_task_id());
        let input = self.place_input(id, &request).await?;
        Ok(Submit {
            id,
            id_is_chosen: request.id.is_some(),
            request,
            input,
        })
    }

    /// Submits what was placed; the answers come in order.
    async fn submit_placed(&self, submits: Vec<Submit>) -> Vec<Result<Submitted, EngineError>> {
        let count = submits.len();
        match self.ask(Ask::Submit(submits)).await {
            Ok(Answer::Submitted(results)) => results
                .into_iter()
                .map(|result| result.map(Taken::told))
                .collect(),
            Ok(_) => (0..count).map(|_| Err(EngineError::Closed)).collect(),
            Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
        }
    }

    /// Submits one that was placed, and clears up if nothing came of it.
    async fn submit_alone(&self, submit: Submit) -> Result<Submitted, EngineError> {
        let copy = matches!(submit.input, qo_core::Payload::Stored(_)).then(|| Submit {
            id: submit.id,
            id_is_chosen: submit.id_is_chosen,
            request: submit.request.clone(),
            input: submit.input.clone(),
        });
        let result = self
            .submit_placed(vec![submit])
            .await
            .pop()
            .unwrap_or(Err(EngineError::Closed));
        if let Some(copy) = copy {
            self.clear_up(&copy, &result);
        }
        result
    }

    /// Decides where the output of a completion goes, and stores it if it goes beside the record.
    async fn place_completion(
        &self,
        completion: Completion,
    ) -> Result<(TaskId, Action), EngineError> {
        let Completion { id, lease, output } = completion;
        let output = match output {
            None => None,
            Some(json) => Some(self.place_output(id, lease, &json).await?),
        };
        Ok((id, Action::Complete { lease, output }))
    }

    async fn act(&self, id: TaskId, action: Action) -> Result<Task, EngineError> {
        self.ask_task(Ask::Act { id, action }).await
    }

    async fn ask_list(&self, ask: ListAsk) -> Result<Listed, EngineError> {
        match self.ask(Ask::List(ask)).await? {
            Answer::Listed(result) => result,
            _ => Err(EngineError::Closed),
        }
    }
}

#[async_trait]
impl Engine for BrokerEngine {
    fn now(&self) -> Timestamp {
        self.client().now()
    }

    async fn submit(&self, request: SubmitRequest) -> Result<Submitted, EngineError> {
        let submit = self.place(request).await?;
        self.submit_alone(submit).await
    }

    async fn submit_many(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        let placed: Vec<_> = futures_util::stream::iter(requests)
            .map(|request| self.place(request))
            .buffered(PLACED_AT_ONCE)
            .collect()
            .await;
        let mut results = BTreeMap::new();
        let mut plain = Vec::new();
        let mut special = Vec::new();
        for (index, placed) in placed.into_iter().enumerate() {
            match placed {
                Err(error) => {
                    results.insert(index, Err(error));
                }
                // What may have to be looked up, or cleared up, goes its own way, so that the others need not wait for it.
                Ok(submit)
                    if submit.id_is_chosen
                        || submit.request.idempotency.is_some()
                        || matches!(submit.input, qo_core::Payload::Stored(_)) =>
                {
                    special.push((index, submit));
                }
                Ok(submit) => plain.push((index, submit)),
            }
        }
        let mut indexes: Vec<Vec<usize>> = Vec::new();
        let mut parts: Vec<Vec<Submit>> = Vec::new();
        for (index, submit) in plain {
            match (indexes.last_mut(), parts.last_mut()) {
                (Some(indexes), Some(part)) if part.len() < SUBMITS_PER_ASK => {
                    indexes.push(index);
                    part.push(submit);
                }
                _ => {
                    indexes.push(vec![index]);
                    parts.push(vec![submit]);
                }
            }
        }
        let plain =
            futures_util::future::join_all(parts.into_iter().map(|part| self.submit_placed(part)));
        let special = futures_util::future::join_all(
            special
                .into_iter()
                .map(|(index, submit)| async move { (index, self.submit_alone(submit).await) }),
        );
        let (plain, special) = futures_util::future::join(plain, special).await;
        results.extend(special);
        results.extend(
            indexes
                .into_iter()
                .flatten()
                .zip(plain.into_iter().flatten()),
        );
        results.into_values().collect()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        let lease_ms = request.lease_ms.unwrap_or(self.config().lease_ms);
        if !(1..=LEASE_MAX_MS).contains(&lease_ms) {
            return Err(Rejection::OutOfBounds {
                field: "lease_ms",
                allowed: "1 ms to 30 days",
            }
            .into());
        }
        if !request.shards.is_empty() {
            return Err(EngineError::BadRequest(
                "only direct mode hands out tasks by shard; leave the shards out".to_owned(),
            ));
        }
        if request.max == 0 {
            return Ok(Vec::new());
        }
        let wish = Wish {
            worker: request.worker.clone(),
            queues: request.queues.clone(),
            types: request.types.clone(),
            max: request.max,
            lease_ms,
            until: self.runtime().monotonic() + Duration::from_millis(request.wait_ms),
        };
        match self.ask(Ask::Claim(wish)).await? {
            Answer::Tasks(result) => {
                result.map(|tasks| tasks.into_iter().map(Arc::unwrap_or_clone).collect())
            }
            _ => Err(EngineError::Closed),
        }
    }

    async fn renew(
        &self,
        id: TaskId,
        lease: LeaseId,
        lease_ms: Option<u64>,
    ) -> Result<Task, EngineError> {
        let lease_ms = lease_ms.unwrap_or(self.config().lease_ms);
        self.act(id, Action::Renew { lease, lease_ms }).await
    }

    async fn progress(
        &self,
        id: TaskId,
        lease: LeaseId,
        report: ProgressReport,
    ) -> Result<Task, EngineError> {
        self.act(id, Action::Progress { lease, report }).await
    }

    async fn complete(
        &self,
        id: TaskId,
        lease: LeaseId,
        output: Option<Json>,
    ) -> Result<Task, EngineError> {
        let completion = Completion { id, lease, output };
        let (id, action) = self.place_completion(completion).await?;
        self.act(id, action).await
    }

    async fn complete_many(&self, completions: Vec<Completion>) -> Vec<Result<Task, EngineError>> {
        let placed: Vec<_> = futures_util::stream::iter(completions)
            .map(|completion| self.place_completion(completion))
            .buffered(PLACED_AT_ONCE)
            .collect()
            .await;
        let mut results: Vec<Result<Task, EngineError>> = Vec::with_capacity(placed.len());
        let mut acts = Vec::with_capacity(placed.len());
        let mut indexes = Vec::with_capacity(placed.len());
        for (index, placed) in placed.into_iter().enumerate() {
            results.push(Err(match placed {
                Err(error) => error,
                Ok(act) => {
                    indexes.push(index);
                    acts.push(act);
                    // Until the answer is there.
                    EngineError::Closed
                }
            }));
        }
        let asked = self.ask(Ask::Acts(acts.clone())).await;
        let answers = match asked {
            Ok(Answer::Each(answers)) => answers,
            Ok(_) => return results,
            Err(error) => acts.iter().map(|_| Err(error.clone())).collect(),
        };
        for ((index, (id, action)), answer) in indexes.into_iter().zip(acts).zip(answers) {
            results[index] = match answer {
                Ok(task) => Ok(Arc::unwrap_or_clone(task)),
                // It may be among those that have left the memory.
                Err(EngineError::Rejected(Rejection::NotFound { .. })) => {
                    self.act(id, action).await
                }
                Err(error) => Err(error),
            };
        }
        results
    }

    async fn fail(
        &self,
        id: TaskId,
        lease: LeaseId,
        failure: Failure,
    ) -> Result<Task, EngineError> {
        let jitter = jitter(self.runtime());
        let action = Action::Fail {
            lease,
            failure,
            jitter,
        };
        self.act(id, action).await
    }

    async fn release(&self, id: TaskId, lease: LeaseId) -> Result<Task, EngineError> {
        self.act(id, Action::Release { lease }).await
    }

    async fn snooze(&self, id: TaskId, lease: LeaseId, delay_ms: u64) -> Result<Task, EngineError> {
        self.act(id, Action::Snooze { lease, delay_ms }).await
    }

    async fn cancel(&self, id: TaskId, reason: Option<String>) -> Result<Task, EngineError> {
        let reason = reason.map(String::into_boxed_str);
        self.act(id, Action::Cancel { reason }).await
    }

    async fn replay(&self, id: TaskId) -> Result<Task, EngineError> {
        self.act(id, Action::Replay).await
    }

    async fn archive(&self, id: TaskId) -> Result<Task, EngineError> {
        self.act(id, Action::Archive).await
    }

    async fn run_now(&self, id: TaskId) -> Result<Task, EngineError> {
        self.act(id, Action::RunNow).await
    }

    async fn unarchive(&self, id: TaskId) -> Result<Task, EngineError> {
        self.act(id, Action::Unarchive).await
    }

    /// An archived task cannot be replayed, so that its payloads can go before it does.
    async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        let task = self.look(id).await?;
        if !task.status.is_terminal() {
            return Err(Rejection::WrongStatus {
                action: "purge",
                status: task.status,
            }
            .into());
        }
        if task.status != Status::Archived {
            self.act(id, Action::Archive).await?;
        }
        self.remove_payloads(id).await?;
        self.ask_task(Ask::Purge(id)).await?;
        Ok(())
    }

    async fn get(&self, id: TaskId) -> Result<Task, EngineError> {
        self.look(id).await
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

    /// Tasks in the state and tasks beyond it are listed in the order of their ids, and merged.
    async fn list(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<TaskPage, EngineError> {
        let after: Option<TaskId> = match cursor.map(str::parse) {
            None => None,
            Some(Ok(id)) => Some(id),
            Some(Err(_)) => {
                return Err(EngineError::BadRequest(
                    "this is not a cursor: use the one that the page before gave, unchanged"
                        .to_owned(),
                ));
            }
        };
        let limit = limit.clamp(1, LIMIT_MAX);
        let ask = || ListAsk {
            filter: filter.clone(),
            after,
            limit,
        };
        let live = self.ask_list(ask()).await?;
        let (mut tasks, last) = match &self.shared.archive {
            None => (live.tasks, live.last),
            Some(archive) => {
                let ended = archive.list(ask()).await?;
                merge(live, ended)
            }
        };
        let mut next = last;
        if tasks.len() > limit {
            tasks.truncate(limit);
            next = tasks.last().map(|task| task.id);
        }
        Ok(TaskPage {
            tasks,
            next: next.map(|id| id.to_string()),
        })
    }

    async fn history(&self, id: TaskId) -> Result<Vec<Event>, EngineError> {
        Ok(self.look(id).await?.events.to_vec())
    }

    async fn versions(&self, id: TaskId, _limit: usize) -> Result<Vec<VersionedTask>, EngineError> {
        // A task that is not there is the clearer answer.
        self.look(id).await?;
        Err(EngineError::NotVersioned)
    }

    async fn stats(&self) -> Result<Stats, EngineError> {
        match self.ask(Ask::Stats).await? {
            Answer::Stats(result) => result.map(|stats| *stats),
            _ => Err(EngineError::Closed),
        }
    }

    async fn workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        worker_records::list(self.client()).await
    }

    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<(), EngineError> {
        worker_records::put(self.client(), worker).await
    }

    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError> {
        worker_records::remove(self.client(), worker).await
    }

    async fn pause(&self, queue: &QueueName) -> Result<(), EngineError> {
        let (queue, paused) = (queue.clone(), true);
        self.ask_done(Ask::SetPaused { queue, paused }).await
    }

    async fn resume(&self, queue: &QueueName) -> Result<(), EngineError> {
        let (queue, paused) = (queue.clone(), false);
        self.ask_done(Ask::SetPaused { queue, paused }).await
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) -> bool {
        self.shared.watchers.add(watcher);
        true
    }

    async fn close(&self) {
        // Whoever has closed it before has done it.
        let _ = self.ask_done(Ask::Close).await;
    }
}

/// Both lists as one, up to the place that both have reached. A task that came to its end between the two looks is in both,
/// and counts as the state had it.
fn merge(live: Listed, ended: Listed) -> (Vec<Task>, Option<TaskId>) {
    let reached = match (live.last, ended.last) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    let mut tasks: BTreeMap<TaskId, Task> = BTreeMap::new();
    for task in ended.tasks.into_iter().chain(live.tasks) {
        if reached.is_none_or(|reached| task.id <= reached) {
            tasks.insert(task.id, task);
        }
    }
    (tasks.into_values().collect(), reached)
}
