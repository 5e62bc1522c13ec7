//! The place of a leader: an engine that is there while this process leads, and refuses everything otherwise.
//!
//! Servers and callers hold the gate for as long as the process lives; the engine in it comes and goes with the terms.
//!
//! | step | asked meanwhile | a crash right after it leaves |
//! | --- | --- | --- |
//! | 1. a leadership is acquired, and put into the gate | `NotLeader` | a leader that does not answer challenges: the next one takes over |
//! | 2. the engine is opened, and put into the gate | the engine answers | the same; the engine's journal holds all that was acknowledged |
//! | 3. the gate is vacated: nothing reaches the engine any more | `NotLeader` | the same |
//! | 4. the engine is closed | `NotLeader` | the same |
//! | 5. the leadership is released: others need not wait | `NotLeader` | nothing |
//!
//! The leadership is given up last, so that whoever comes next does not open the journal while this process still writes to it. If it does,
//! because the leadership was lost, the journal itself fences the older writer out.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use qo_core::task::Event;
use qo_core::{Json, QueueName, Task, TaskId, Timestamp, WorkerId};
use qo_engine::api::{
    ClaimRequest, Stats, SubmitRequest, Submitted, TaskFilter, TaskPage, VersionedTask, WorkerInfo,
};
use qo_engine::watch::Watcher;
use qo_engine::{Engine, EngineError, Operation};
use qo_store::StoreClient;
use tokio::sync::watch;

use super::Leadership;

/// The place of a leader.
pub struct LeaderGate {
    client: StoreClient,
    taken: watch::Sender<Taken>,
    /// Those who are told what becomes durable, by whichever engine sits here.
    watchers: Mutex<Vec<Weak<dyn Watcher>>>,
}

/// Who sits there.
#[derive(Default)]
struct Taken {
    leadership: Option<Arc<Leadership>>,
    engine: Option<Arc<dyn Engine>>,
    /// Nobody will sit there any more.
    closed: bool,
}

impl Taken {
    /// The leadership, once its engine is there.
    fn serving(&self) -> Option<&Arc<Leadership>> {
        self.leadership.as_ref().filter(|_| self.engine.is_some())
    }
}

impl LeaderGate {
    /// A gate that nobody has. The client tells the time while nobody does.
    pub fn new(client: StoreClient) -> Self {
        Self {
            client,
            taken: watch::Sender::default(),
            watchers: Mutex::default(),
        }
    }

    /// Begins a leadership, whose engine is still to come.
    pub fn begin(&self, leadership: Arc<Leadership>) {
        self.taken.send_replace(Taken {
            leadership: Some(leadership),
            ..Taken::default()
        });
    }

    /// Serves with this engine from now on.
    pub fn serve(&self, engine: Arc<dyn Engine>) {
        let watchers = self.lock_watchers();
        for watcher in watchers.iter() {
            engine.watch(Weak::clone(watcher));
        }
        self.taken.send_modify(|taken| taken.engine = Some(engine));
    }

    /// Makes sure that this process leads and serves at this moment, and says in which epoch.
    pub async fn confirm(&self) -> Option<u64> {
        let leadership = self.taken.borrow().serving().cloned()?;
        leadership.confirm().await.ok()?;
        Some(leadership.epoch())
    }

    /// Returns once this process does not serve in this epoch any more.
    pub async fn over(&self, epoch: u64) {
        let mut taken = self.taken.subscribe();
        let is_over = |taken: &Taken| {
            taken
                .serving()
                .is_none_or(|leadership| leadership.epoch() != epoch)
        };
        // The sender lives as long as this.
        let _ = taken.wait_for(is_over).await;
    }

    /// Ends the leadership, in order: nothing reaches the engine any more, it is closed, and the leadership is given up.
    pub async fn leave(&self) {
        self.vacate(Taken::default()).await;
    }

    async fn vacate(&self, next: Taken) {
        let Taken {
            leadership, engine, ..
        } = self.taken.send_replace(next);
        if let Some(engine) = engine {
            engine.close().await;
        }
        if let Some(leadership) = leadership {
            leadership.release().await;
        }
    }

    fn lock_watchers(&self) -> MutexGuard<'_, Vec<Weak<dyn Watcher>>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn engine(&self) -> Result<Arc<dyn Engine>, EngineError> {
        let taken = self.taken.borrow();
        match &taken.engine {
            Some(engine) => Ok(Arc::clone(engine)),
            None if taken.closed => Err(EngineError::Closed),
            None => Err(EngineError::NotLeader),
        }
    }
}

impl fmt::Debug for LeaderGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = self.taken.borrow();
        f.debug_struct("LeaderGate")
            .field(
                "epoch",
                &taken
                    .leadership
                    .as_ref()
                    .map(|leadership| leadership.epoch()),
            )
            .field("serves", &taken.engine.is_some())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Engine for LeaderGate {
    fn now(&self) -> Timestamp {
        match self.engine() {
            Ok(engine) => engine.now(),
            Err(_) => self.client.now(),
        }
    }

    async fn submit(&self, request: SubmitRequest) -> Result<Submitted, EngineError> {
        self.engine()?.submit(request).await
    }

    async fn submit_many(
        &self,
        requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, EngineError>> {
        match self.engine() {
            Ok(engine) => engine.submit_many(requests).await,
            Err(error) => requests.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, EngineError> {
        self.engine()?.claim(request).await
    }

    async fn act(&self, id: TaskId, operation: Operation) -> Result<Task, EngineError> {
        self.engine()?.act(id, operation).await
    }

    async fn act_many(
        &self,
        operations: Vec<(TaskId, Operation)>,
    ) -> Vec<Result<Task, EngineError>> {
        match self.engine() {
            Ok(engine) => engine.act_many(operations).await,
            Err(error) => operations.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn purge(&self, id: TaskId) -> Result<(), EngineError> {
        self.engine()?.purge(id).await
    }

    async fn get(&self, id: TaskId) -> Result<Task, EngineError> {
        self.engine()?.get(id).await
    }

    async fn input(&self, task: &Task) -> Result<Json, EngineError> {
        self.engine()?.input(task).await
    }

    async fn output(&self, task: &Task) -> Result<Option<Json>, EngineError> {
        self.engine()?.output(task).await
    }

    async fn list(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<TaskPage, EngineError> {
        self.engine()?.list(filter, cursor, limit).await
    }

    async fn history(&self, id: TaskId) -> Result<Vec<Event>, EngineError> {
        self.engine()?.history(id).await
    }

    async fn versions(&self, id: TaskId, limit: usize) -> Result<Vec<VersionedTask>, EngineError> {
        self.engine()?.versions(id, limit).await
    }

    async fn stats(&self) -> Result<Stats, EngineError> {
        self.engine()?.stats().await
    }

    async fn workers(&self) -> Result<Vec<WorkerInfo>, EngineError> {
        self.engine()?.workers().await
    }

    async fn heartbeat(&self, worker: &WorkerInfo) -> Result<(), EngineError> {
        self.engine()?.heartbeat(worker).await
    }

    async fn deregister(&self, worker: &WorkerId) -> Result<(), EngineError> {
        self.engine()?.deregister(worker).await
    }

    async fn pause(&self, queue: &QueueName) -> Result<(), EngineError> {
        self.engine()?.pause(queue).await
    }

    async fn resume(&self, queue: &QueueName) -> Result<(), EngineError> {
        self.engine()?.resume(queue).await
    }

    /// Engines that lead tell what they do. One that sits here now is watched at once, and later ones when they come.
    fn watch(&self, watcher: Weak<dyn Watcher>) -> bool {
        let mut watchers = self.lock_watchers();
        watchers.retain(|watcher| watcher.strong_count() > 0);
        if let Ok(engine) = self.engine() {
            engine.watch(Weak::clone(&watcher));
        }
        watchers.push(watcher);
        true
    }

    async fn close(&self) {
        self.vacate(Taken {
            closed: true,
            ..Taken::default()
        })
        .await;
    }
}
