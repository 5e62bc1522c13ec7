//! The queue: every operation on one task, and what there is to see.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use futures_util::Stream;
use futures_util::stream::try_unfold;
use qo_core::task::Event;
use qo_core::transition::{Failure, ProgressReport};
use qo_core::{Json, LeaseId, QueueName, Task, TaskId, Timestamp, WorkerId};
use qo_direct::DirectEngine;
use qo_engine::api::{
    ClaimRequest, Stats, SubmitRequest, Submitted, TaskFilter, TaskPage, VersionedTask, WorkerInfo,
};
use qo_engine::{Engine, Operation};
use qo_store::Store;
use qo_store::runtime::Runtime;

use crate::error::Error;

/// How many tasks [`Queue::list_all`] asks for at once.
const PAGE_LIMIT: usize = 500;

/// A queue. Clones are cheap and share everything.
///
/// Every operation is durable when it returns. Operations of a worker present the lease of their claim; with a stale one they
/// change nothing, and fail with [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost).
#[derive(Clone)]
pub struct Queue {
    engine: Arc<dyn Engine>,
    runtime: Arc<dyn Runtime>,
    direct: Option<Arc<Direct>>,
}

/// What direct mode has that other modes have not.
struct Direct {
    engine: DirectEngine,
    store: Store,
    environment: BTreeMap<String, String>,
}

impl Queue {
    /// A queue on any engine.
    pub fn new(engine: Arc<dyn Engine>, runtime: Arc<dyn Runtime>) -> Self {
        Self {
            engine,
            runtime,
            direct: None,
        }
    }

    /// A queue in direct mode, on an engine that was made by hand, for instance one whose store counts its requests. The variables
    /// that begin with `QO_` are what workers of the queue go by.
    pub fn direct(
        engine: DirectEngine,
        runtime: Arc<dyn Runtime>,
        store: Store,
        environment: BTreeMap<String, String>,
    ) -> Self {
        Self {
            engine: Arc::new(engine.clone()),
            runtime,
            direct: Some(Arc::new(Direct {
                engine,
                store,
                environment,
            })),
        }
    }

    /// The variables in whose sight direct mode was opened, if this is direct mode: those that begin with `QO_`.
    pub(crate) fn environment(&self) -> Option<&BTreeMap<String, String>> {
        self.direct.as_ref().map(|direct| &direct.environment)
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// The engine of direct mode, if this is direct mode: its monitor and its sweeper are run through it.
    pub fn objects_engine(&self) -> Option<&DirectEngine> {
        self.direct.as_ref().map(|direct| &direct.engine)
    }

    /// The store, if this is direct mode.
    pub fn store(&self) -> Option<&Store> {
        self.direct.as_ref().map(|direct| &direct.store)
    }

    /// Time, sleeping, spawning and randomness.
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    /// The time by which the queue judges.
    pub fn now(&self) -> Timestamp {
        self.engine.now()
    }

    /// Adds a task. [`Queue::task`] is how most callers describe one.
    pub async fn submit(&self, request: SubmitRequest) -> Result<Submitted, Error> {
        Ok(self.engine.submit(request).await?)
    }

    /// Adds many tasks at once. Each has its own answer, in the order of the requests: a failure of one says nothing about
    /// the others, and none is left out.
    pub async fn submit_many(&self, requests: Vec<SubmitRequest>) -> Vec<Result<Submitted, Error>> {
        let results = self.engine.submit_many(requests).await;
        results
            .into_iter()
            .map(|result| result.map_err(Error::from))
            .collect()
    }

    /// Hands out tasks that are due, the most urgent first. Each carries its lease and its attempt number.
    pub async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, Error> {
        Ok(self.engine.claim(request).await?)
    }

    /// Carries out an operation on one task and returns the task as it is afterwards. The methods below are short forms.
    pub async fn act(&self, id: TaskId, operation: Operation) -> Result<Task, Error> {
        Ok(self.engine.act(id, operation).await?)
    }

    /// Keeps an attempt alive. The answer tells whether a cancel was requested.
    pub async fn renew(
        &self,
        id: TaskId,
        lease: LeaseId,
        lease_ms: Option<u64>,
    ) -> Result<Task, Error> {
        Ok(self.engine.renew(id, lease, lease_ms).await?)
    }

    /// Says how far an attempt is.
    pub async fn progress(
        &self,
        id: TaskId,
        lease: LeaseId,
        report: ProgressReport,
    ) -> Result<Task, Error> {
        Ok(self.engine.progress(id, lease, report).await?)
    }

    /// Ends an attempt, and the task, with success.
    pub async fn complete(
        &self,
        id: TaskId,
        lease: LeaseId,
        output: Option<Json>,
    ) -> Result<Task, Error> {
        Ok(self.engine.complete(id, lease, output).await?)
    }

    /// Ends an attempt without success.
    pub async fn fail(&self, id: TaskId, lease: LeaseId, failure: Failure) -> Result<Task, Error> {
        Ok(self.engine.fail(id, lease, failure).await?)
    }

    /// Gives a task back at once, not counted against its retries.
    pub async fn release(&self, id: TaskId, lease: LeaseId) -> Result<Task, Error> {
        Ok(self.engine.release(id, lease).await?)
    }

    /// Puts a task off, not counted against its retries.
    pub async fn snooze(&self, id: TaskId, lease: LeaseId, delay_ms: u64) -> Result<Task, Error> {
        Ok(self.engine.snooze(id, lease, delay_ms).await?)
    }

    /// Calls a task off: a pending one at once, a running one by asking its worker.
    pub async fn cancel(&self, id: TaskId, reason: Option<&str>) -> Result<Task, Error> {
        Ok(self.engine.cancel(id, reason.map(str::to_owned)).await?)
    }

    /// Makes a pending task due at once that would be due later.
    pub async fn run_now(&self, id: TaskId) -> Result<Task, Error> {
        Ok(self.engine.run_now(id).await?)
    }

    /// Starts over a task that has come to its end.
    pub async fn replay(&self, id: TaskId) -> Result<Task, Error> {
        Ok(self.engine.replay(id).await?)
    }

    /// Puts away a task that has come to its end.
    pub async fn archive(&self, id: TaskId) -> Result<Task, Error> {
        Ok(self.engine.archive(id).await?)
    }

    /// Undoes an archive.
    pub async fn unarchive(&self, id: TaskId) -> Result<Task, Error> {
        Ok(self.engine.unarchive(id).await?)
    }

    /// Removes a task that has come to its end, with its payloads, its index entries and its versions.
    pub async fn purge(&self, id: TaskId) -> Result<(), Error> {
        Ok(self.engine.purge(id).await?)
    }

    /// A task.
    pub async fn get(&self, id: TaskId) -> Result<Task, Error> {
        Ok(self.engine.get(id).await?)
    }

    /// A task's input, wherever it is kept.
    pub async fn input(&self, task: &Task) -> Result<Json, Error> {
        Ok(self.engine.input(task).await?)
    }

    /// A task's output, wherever it is kept.
    pub async fn output(&self, task: &Task) -> Result<Option<Json>, Error> {
        Ok(self.engine.output(task).await?)
    }

    /// Some of the tasks that match, from the place that `cursor` names, at most `limit` of them.
    pub async fn list(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<TaskPage, Error> {
        Ok(self.engine.list(filter, cursor, limit).await?)
    }

    /// All tasks that match, page by page as they are taken. After an error the stream ends.
    pub fn list_all(&self, filter: TaskFilter) -> impl Stream<Item = Result<Task, Error>> + Send {
        let start = Pages {
            engine: Arc::clone(&self.engine),
            filter,
            tasks: VecDeque::new(),
            cursor: None,
            at_end: false,
        };
        try_unfold(start, |mut pages| async move {
            while pages.tasks.is_empty() && !pages.at_end {
                pages.turn().await?;
            }
            Ok(pages.tasks.pop_front().map(|task| (task, pages)))
        })
    }

    /// What happened to a task, oldest first.
    pub async fn history(&self, id: TaskId) -> Result<Vec<Event>, Error> {
        Ok(self.engine.history(id).await?)
    }

    /// The newest `limit` stored versions of a task, oldest first, where the store keeps them.
    pub async fn versions(&self, id: TaskId, limit: usize) -> Result<Vec<VersionedTask>, Error> {
        Ok(self.engine.versions(id, limit).await?)
    }

    /// How many tasks there are.
    pub async fn stats(&self) -> Result<Stats, Error> {
        Ok(self.engine.stats().await?)
    }

    /// The workers that have said of themselves that they are there.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>, Error> {
        Ok(self.engine.workers().await?)
    }

    /// Says that a worker is there, or still there.
    pub async fn heartbeat(&self, worker: &WorkerInfo) -> Result<(), Error> {
        Ok(self.engine.heartbeat(worker).await?)
    }

    /// Says that a worker is gone.
    pub async fn deregister(&self, worker: &WorkerId) -> Result<(), Error> {
        Ok(self.engine.deregister(worker).await?)
    }

    /// Lets claims pass a queue by.
    pub async fn pause(&self, queue: &QueueName) -> Result<(), Error> {
        Ok(self.engine.pause(queue).await?)
    }

    /// Lets claims serve a queue again.
    pub async fn resume(&self, queue: &QueueName) -> Result<(), Error> {
        Ok(self.engine.resume(queue).await?)
    }

    /// Finishes what goes on in the background. Nothing is lost without it. Where this process alone has the queue open
    /// (`?engine=slate` without a broker), the next one can open it at once; without this it waits for most of a minute.
    pub async fn close(&self) {
        self.engine.close().await;
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("engine", &self.engine)
            .field("store", &self.store())
            .finish_non_exhaustive()
    }
}

/// Where a walk through all pages of a list is.
struct Pages {
    engine: Arc<dyn Engine>,
    filter: TaskFilter,
    tasks: VecDeque<Task>,
    cursor: Option<String>,
    at_end: bool,
}

impl Pages {
    async fn turn(&mut self) -> Result<(), Error> {
        let page = self
            .engine
            .list(&self.filter, self.cursor.as_deref(), PAGE_LIMIT)
            .await?;
        self.tasks.extend(page.tasks);
        self.at_end = page.next.is_none();
        self.cursor = page.next;
        Ok(())
    }
}
