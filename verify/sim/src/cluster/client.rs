//! Clients of the simulated cluster. They know all nodes, find the leader, and repeat what may not have happened.

use std::sync::Arc;
use std::time::Duration;

use qo_core::task::IdempotencyScope;
use qo_core::{Json, Task, TaskId};
use qo_engine::api::{ClaimRequest, IdempotencyRequest, SubmitRequest};
use qo_engine::{Engine, EngineError};
use qo_store::runtime::BoxFuture;
use tokio::sync::oneshot;

use super::rules::{Rules, worker_name};
use super::run::Stage;
use crate::random::Random;
use crate::sched::lock;

/// How long a call waits for its response.
const ANSWER_MAX: Duration = Duration::from_secs(8);
/// How often a call is repeated.
const REPEATS: usize = 400;
const LEASE_MS: u64 = 6_000;
/// A worker that keeps a task for longer than this may lose it.
const LEASE_SAFE: Duration = Duration::from_secs(5);

/// What became of a call.
pub(super) enum Answer<T> {
    Done(T),
    /// The rules reject it.
    Rejected(EngineError),
    /// It may have happened or not.
    Unknown,
}

impl Stage {
    /// Makes a call on one node, in its process.
    async fn ask<T: Send + 'static>(
        &self,
        node: u64,
        call: impl FnOnce(Arc<dyn Engine>) -> BoxFuture<Result<T, EngineError>>,
    ) -> Answer<T> {
        let Some((process, engine)) = self.engine(node) else {
            return Answer::Unknown;
        };
        let (reply, response) = oneshot::channel();
        let calling = call(engine);
        self.scheduler.spawn(
            process,
            Box::pin(async move {
                let _ = reply.send(calling.await);
            }),
        );
        tokio::select! {
            biased;
            response = response => match response {
                Ok(Ok(done)) => Answer::Done(done),
                Ok(Err(error @ EngineError::Rejected(_))) => Answer::Rejected(error),
                Ok(Err(_)) | Err(_) => Answer::Unknown,
            },
            () = self.scheduler.sleep(ANSWER_MAX) => Answer::Unknown,
        }
    }

    /// Repeats a call on all nodes in turn until one of them responds.
    pub(super) async fn insist<T: Send + 'static>(
        &self,
        dice: &mut Random,
        call: impl Fn(Arc<dyn Engine>) -> BoxFuture<Result<T, EngineError>>,
    ) -> Answer<T> {
        for _ in 0..REPEATS {
            let node = self.any_node(dice);
            match self.ask(node, &call).await {
                Answer::Unknown => self.scheduler.sleep(dice.millis(20, 300)).await,
                answer => return answer,
            }
            if self.is_over() {
                break;
            }
        }
        Answer::Unknown
    }

    /// Submits tasks, some of them with a key.
    pub(super) async fn submit_tasks(self: Arc<Self>, number: u64, tasks: u64) {
        let mut dice = Random::of(&[self.seed, 0xc1, number]);
        for task in 0..tasks {
            self.scheduler.sleep(dice.millis(10, 2_000)).await;
            let input = format!("{{\"n\":{task},\"client\":{number}}}");
            let Ok(json) = Json::parse(input.clone()) else {
                continue;
            };
            let Ok(task_type) = "work".parse() else {
                continue;
            };
            let mut request = SubmitRequest::new(task_type, json);
            let mut key = None;
            if dice.chance(0.3) {
                let name = format!("key{}", dice.below(6));
                request.idempotency = name.parse().ok().map(|parsed| IdempotencyRequest {
                    key: parsed,
                    scope: IdempotencyScope::Global,
                    window_ms: None,
                });
                key = Some(name);
            } else {
                let random = u128::from(dice.bits()) << 64 | u128::from(dice.bits());
                request.id = Some(TaskId::from_random(random));
            }
            let mut is_changeable = false;
            if let Some(rules) = &self.rules {
                let left = self.faults.trouble.saturating_sub(self.scheduler.elapsed());
                rules.apply(&mut request, &mut dice, left);
                is_changeable = rules.is_unique() && key.is_some();
            }
            let answer = self
                .insist(&mut dice, |engine| {
                    let request = request.clone();
                    Box::pin(async move { engine.submit(request).await })
                })
                .await;
            if let Answer::Done(submitted) = answer {
                let mut ledger = lock(&self.ledger);
                if is_changeable {
                    ledger.submitted_for_change(&submitted.task);
                } else {
                    ledger.submitted(key.as_deref(), &input, &submitted.task);
                }
                drop(ledger);
                self.read_everywhere(submitted.task.id);
            }
        }
        self.submitter_ends();
    }

    /// Claims tasks and finishes most of them, until the run is over.
    pub(super) async fn work(self: Arc<Self>, number: u64) {
        let mut dice = Random::of(&[self.seed, 0x3b, number]);
        let Ok(worker) = worker_name(number).parse() else {
            return;
        };
        let mut claim = ClaimRequest::new(worker, Vec::new());
        claim.max = 3;
        claim.lease_ms = Some(LEASE_MS);
        claim.wait_ms = 2_000;
        while !self.is_over() {
            let began = self.scheduler.elapsed();
            let node = self.any_node(&mut dice);
            let claiming = claim.clone();
            let answer = self
                .ask(node, |engine| {
                    Box::pin(async move { engine.claim(&claiming).await })
                })
                .await;
            let Answer::Done(tasks) = answer else {
                self.scheduler.sleep(dice.millis(20, 300)).await;
                continue;
            };
            let claimed = self.scheduler.elapsed();
            for task in &tasks {
                lock(&self.ledger).claimed(began, claimed, task);
            }
            for task in tasks {
                self.finish(&mut dice, task).await;
                self.note_if_late(number, claimed);
            }
        }
    }

    /// Notes that a worker kept tasks for almost as long as their leases, whether because it stalled or because calls took long.
    fn note_if_late(&self, worker: u64, claimed: Duration) {
        let now = self.scheduler.elapsed();
        if let Some(rules) = &self.rules
            && now.saturating_sub(claimed) > LEASE_SAFE
        {
            rules.note_late(worker, claimed, now);
        }
    }

    async fn finish(self: &Arc<Self>, dice: &mut Random, task: Task) {
        let (id, Some(lease)) = (task.id, task.lease_id) else {
            return;
        };
        self.scheduler.sleep(dice.millis(1, 1_500)).await;
        // Some workers stall past their lease, or vanish.
        if !self.is_calm() && dice.chance(0.1) {
            self.scheduler
                .sleep(dice.millis(LEASE_MS, 2 * LEASE_MS))
                .await;
            if dice.chance(0.5) {
                return;
            }
        }
        if dice.chance(0.2) {
            let renewed = self.insist(dice, |engine| {
                Box::pin(async move { engine.renew(id, lease, Some(LEASE_MS)).await })
            });
            if !matches!(renewed.await, Answer::Done(_)) {
                return;
            }
        }
        if dice.chance(0.1) {
            let released = self.insist(dice, |engine| {
                Box::pin(async move { engine.release(id, lease).await })
            });
            released.await;
            return;
        }
        if self.rules.is_some()
            && !self.is_calm()
            && let Some(failure) = Rules::failure(dice)
        {
            let failed = self.insist(dice, |engine| {
                let failure = failure.clone();
                Box::pin(async move { engine.fail(id, lease, failure).await })
            });
            failed.await;
            return;
        }
        let completed = self.insist(dice, |engine| {
            Box::pin(async move { engine.complete(id, lease, None).await })
        });
        if let Answer::Done(task) = completed.await {
            let now = self.scheduler.elapsed();
            lock(&self.ledger).completed(now, &task);
            self.read_everywhere(id);
        }
    }

    /// Reads a task from every node at once, right after a change of it was acknowledged. A leader that was cut off and does not know yet that it
    /// was replaced must not respond with what it remembers. Nobody waits for the responses.
    fn read_everywhere(self: &Arc<Self>, id: TaskId) {
        for node in self.present() {
            let stage = Arc::clone(self);
            self.spawn(async move { stage.read_from(node, id).await });
        }
    }

    /// Reads acknowledged tasks from random nodes, until the run is over.
    pub(super) async fn read(self: Arc<Self>, number: u64) {
        let mut dice = Random::of(&[self.seed, 0x4ead, number]);
        while !self.is_over() {
            self.scheduler.sleep(dice.millis(5, 400)).await;
            let ids: Vec<TaskId> = lock(&self.ledger).submitted.keys().copied().collect();
            let place = usize::try_from(dice.below(ids.len() as u64)).unwrap_or_default();
            let Some(id) = ids.get(place).copied() else {
                continue;
            };
            let node = self.any_node(&mut dice);
            self.read_from(node, id).await;
        }
    }

    async fn read_from(&self, node: u64, id: TaskId) {
        let began = self.scheduler.elapsed();
        let answer = self
            .ask(node, |engine| Box::pin(async move { engine.get(id).await }))
            .await;
        let mut ledger = lock(&self.ledger);
        match answer {
            Answer::Done(task) => ledger.read(began, id, Some(&task)),
            Answer::Rejected(error) if error.is_not_found() => ledger.read(began, id, None),
            _ => {}
        }
    }
}
