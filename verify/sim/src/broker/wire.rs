//! A process's connection to the brokers: an engine whose calls run in another process, and whose requests and replies can be lost.
//!
//! It stands for the HTTP API without its parsing. A call without a reply is in doubt and is not retried here: that is up to the caller. A
//! process finds its broker in the leader record, and stays with it as long as it serves.
//!
//! A server checks before and after each call that its process leads. In half of the runs nobody checks, as in a program that opened the
//! queue for itself: the engine must be safe on its own.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use qo_broker::election::LeaderGate;
use qo_core::task::Event;
use qo_core::{Json, PauseNote, PauseTarget, Task, TaskId, Timestamp, WorkerId};
use qo_engine::api::{
    ClaimRequest, Document, DocumentQuery, DocumentWrite, Duty, Stats, SubmitRequest, Submitted,
    TaskPage, TaskQuery, VersionedTask, WaitReason, WorkerInfo, WorkerRequest,
};
use qo_engine::{Engine, EngineError, Operation};
use qo_store::StoreError;
use qo_store::runtime::BoxFuture;
use tokio::sync::oneshot;

use super::{BrokerSeat, Hub};
use crate::faults::{FaultKind, Reach, Trouble};
use crate::sched::{HARNESS, ProcessId, Scheduler};

/// How long a call waits for a broker.
const FIND_MAX: Duration = Duration::from_secs(10);
/// How long it waits for its reply: longer than a claim waits, and longer than a broker tries to settle a write.
const ANSWER_MAX: Duration = Duration::from_mins(1);
/// How long it takes to notice a lost request.
const SILENCE: Duration = Duration::from_secs(10);
/// How often a call checks whether there is a broker.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// A process's connection to the brokers. Clones share everything.
#[derive(Clone)]
pub struct Wire {
    shared: Arc<Shared>,
}

struct Shared {
    scheduler: Scheduler,
    trouble: Arc<Trouble>,
    hub: Arc<Hub>,
    process: ProcessId,
    life: String,
    life_number: u64,
    calls: AtomicU64,
    /// The broker that replied last; the harness if there is none.
    broker: AtomicU32,
    /// Whether brokers check that they lead.
    checks_leader: bool,
}

impl Wire {
    /// The connection of one life of a process.
    pub fn new(
        scheduler: &Scheduler,
        trouble: &Arc<Trouble>,
        hub: &Arc<Hub>,
        process: ProcessId,
        life: (String, u64),
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                scheduler: scheduler.clone(),
                trouble: Arc::clone(trouble),
                hub: Arc::clone(hub),
                process,
                life: life.0,
                life_number: life.1,
                calls: AtomicU64::new(0),
                broker: AtomicU32::new(HARNESS),
                checks_leader: trouble.dice(&[0x3174]).chance(0.5),
            }),
        }
    }

    /// The broker that this process talks to, or else the one that the record names.
    async fn find(&self) -> Result<BrokerSeat, EngineError> {
        let shared = &self.shared;
        let until = shared.scheduler.elapsed() + FIND_MAX;
        loop {
            let known = shared.hub.find(shared.broker.load(Ordering::Relaxed));
            if let Some(broker) = known.or_else(|| shared.hub.leader()) {
                shared.broker.store(broker.process, Ordering::Relaxed);
                return Ok(broker);
            }
            if shared.scheduler.elapsed() >= until {
                return Err(no_answer("there is no broker", false));
            }
            shared.scheduler.sleep(LOOK_INTERVAL).await;
        }
    }

    /// Makes a call in the broker's process.
    async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(Arc<LeaderGate>) -> BoxFuture<Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let shared = &self.shared;
        let broker = self.find().await?;
        let number = shared.calls.fetch_add(1, Ordering::Relaxed);
        let mut dice = shared.trouble.dice(&[0x3172, shared.life_number, number]);
        shared
            .scheduler
            .sleep(shared.trouble.latency(&mut dice))
            .await;
        if self.is_cut_off(&broker) || self.is_lost(FaultKind::LostRequest, number) {
            shared.scheduler.sleep(SILENCE).await;
            self.forget_broker();
            return Err(no_answer("the request was lost", true));
        }
        let (mut answer, answered) = oneshot::channel();
        let (gate, hub) = (Arc::clone(&broker.gate), Arc::clone(&shared.hub));
        let calling = if shared.checks_leader {
            Box::pin(checked(gate, hub, call)) as BoxFuture<_>
        } else {
            call(gate)
        };
        shared.scheduler.spawn(
            broker.process,
            Box::pin(async move {
                // A caller that goes away cancels its call, as a closed connection does.
                tokio::select! {
                    biased;
                    result = calling => drop(answer.send(result)),
                    () = answer.closed() => {}
                }
            }),
        );
        let result = tokio::select! {
            biased;
            result = answered => result,
            () = shared.scheduler.sleep(ANSWER_MAX) => {
                self.forget_broker();
                return Err(no_answer("no answer came", true));
            }
        };
        let Ok(result) = result else {
            self.forget_broker();
            shared.scheduler.sleep(LOOK_INTERVAL).await;
            return Err(no_answer("the broker has died", true));
        };
        if let Err(EngineError::NotLeader | EngineError::Closed) = &result {
            // Another broker has the queue, or will have it.
            self.forget_broker();
        }
        if self.is_cut_off(&broker) || self.is_lost(FaultKind::LostResponse, number) {
            shared.scheduler.sleep(SILENCE).await;
            return Err(no_answer("the answer was lost", true));
        }
        shared
            .scheduler
            .sleep(shared.trouble.latency(&mut dice))
            .await;
        result
    }

    fn is_cut_off(&self, broker: &BrokerSeat) -> bool {
        let trouble = &self.shared.trouble;
        [self.shared.process, broker.process]
            .into_iter()
            .any(|process| trouble.is_cut_off(process, Reach::Callers))
    }

    fn forget_broker(&self) {
        self.shared.broker.store(HARNESS, Ordering::Relaxed);
    }

    fn is_lost(&self, kind: FaultKind, number: u64) -> bool {
        let shared = &self.shared;
        let Some(rate) = shared.trouble.rate(kind) else {
            return false;
        };
        let stream = [0x3173, kind as u64, shared.life_number, number];
        let id = format!("{}~{number}", shared.life);
        shared.trouble.dice(&stream).chance(rate)
            && shared
                .trouble
                .begin(id, kind, shared.process, Duration::ZERO)
    }
}

/// Makes a call as a server does: only while this process is sure to lead, and with a reply only if it has led all the time.
async fn checked<T: Send + 'static>(
    gate: Arc<LeaderGate>,
    hub: Arc<Hub>,
    call: impl FnOnce(Arc<LeaderGate>) -> BoxFuture<Result<T, EngineError>> + Send + 'static,
) -> Result<T, EngineError> {
    let epoch = gate.confirm().await.ok_or(EngineError::NotLeader)?;
    let result = call(Arc::clone(&gate)).await;
    if gate.confirm().await != Some(epoch) {
        return Err(EngineError::NotLeader);
    }
    hub.responded(epoch);
    result
}

fn no_answer(detail: &str, in_doubt: bool) -> EngineError {
    EngineError::Store(StoreError::Unavailable {
        key: "the broker".to_owned(),
        detail: detail.to_owned(),
        attempts: 1,
        elapsed: Duration::ZERO,
        in_doubt,
    })
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({})", self.shared.life)
    }
}

#[async_trait]
impl Engine for Wire {
    fn now(&self) -> Timestamp {
        // A broker's reply carries the time.
        self.shared.scheduler.true_now()
    }

    async fn submit(&self, request: SubmitRequest) -> Result<Submitted, EngineError> {
        self.call(|engine| Box::pin(async move { engine.submit(request).await }))
            .await
    }

    async fn submit_many(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        futures_util::future::join_all(requests.into_iter().map(|request| self.submit(request)))
            .await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        let request = request.clone();
        self.call(|engine| Box::pin(async move { engine.claim(&request).await }))
            .await
    }

    async fn act(&self, id: TaskId, operation: Operation) -> Result<Task, EngineError> {
        self.call(move |engine| Box::pin(async move { engine.act(id, operation).await }))
            .await
    }

    async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        self.call(move |engine| Box::pin(async move { engine.purge(id).await }))
            .await
    }

    async fn get(&self, id: TaskId) -> Result<Task, EngineError> {
        self.call(move |engine| Box::pin(async move { engine.get(id).await }))
            .await
    }

    async fn waits_for(&self, task: &Task) -> Result<Option<WaitReason>, EngineError> {
        let task = task.clone();
        self.call(|engine| Box::pin(async move { engine.waits_for(&task).await }))
            .await
    }

    async fn input(&self, task: &Task) -> Result<Json, EngineError> {
        let task = task.clone();
        self.call(|engine| Box::pin(async move { engine.input(&task).await }))
            .await
    }

    async fn output(&self, task: &Task) -> Result<Option<Json>, EngineError> {
        let task = task.clone();
        self.call(|engine| Box::pin(async move { engine.output(&task).await }))
            .await
    }

    async fn list(&self, query: TaskQuery<'_>) -> Result<TaskPage, EngineError> {
        let (filter, limit) = (query.filter.clone(), query.limit);
        let cursor = query.cursor.map(str::to_owned);
        self.call(move |engine| {
            Box::pin(async move {
                let query = TaskQuery::first(&filter, limit).at(cursor.as_deref());
                engine.list(query).await
            })
        })
        .await
    }

    async fn history(&self, id: TaskId) -> Result<Vec<Event>, EngineError> {
        self.call(move |engine| Box::pin(async move { engine.history(id).await }))
            .await
    }

    async fn versions(&self, id: TaskId, limit: usize) -> Result<Vec<VersionedTask>, EngineError> {
        self.call(move |engine| Box::pin(async move { engine.versions(id, limit).await }))
            .await
    }

    async fn stats(&self) -> Result<Stats, EngineError> {
        self.call(|engine| Box::pin(async move { engine.stats().await }))
            .await
    }

    async fn workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        self.call(|engine| Box::pin(async move { engine.workers().await }))
            .await
    }

    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<Option<WorkerRequest>, EngineError> {
        let worker = worker.clone();
        self.call(|engine| Box::pin(async move { engine.heartbeat(&worker).await }))
            .await
    }

    async fn ask_worker(
        &self,
        worker: &WorkerId,
        request: Option<WorkerRequest>,
    ) -> Result<WorkerInfo, EngineError> {
        let worker = worker.clone();
        self.call(|engine| Box::pin(async move { engine.ask_worker(&worker, request).await }))
            .await
    }

    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError> {
        let worker = worker.clone();
        self.call(|engine| Box::pin(async move { engine.deregister(&worker).await }))
            .await
    }

    async fn set_pause(
        &self,
        target: &PauseTarget,
        note: Option<PauseNote>,
    ) -> Result<(), EngineError> {
        let target = target.clone();
        self.call(|engine| Box::pin(async move { engine.set_pause(&target, note).await }))
            .await
    }

    async fn documents(&self, query: &DocumentQuery) -> Result<Vec<Document>, EngineError> {
        let query = query.clone();
        self.call(|engine| Box::pin(async move { engine.documents(&query).await }))
            .await
    }

    async fn write_document(&self, write: DocumentWrite) -> Result<Option<Document>, EngineError> {
        self.call(|engine| Box::pin(async move { engine.write_document(write).await }))
            .await
    }

    /// The brokers do the work of the queue.
    fn duty(&self) -> Duty {
        Duty::None
    }

    /// Other processes use the broker as well.
    async fn close(&self) {}
}
