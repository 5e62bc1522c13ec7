//! The queue: operations on single tasks, workers and pauses, and statistics.

mod blobs;
mod list;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use qo_blob::{BlobStore, Blobs};
use qo_core::task::Event;
use qo_core::transition::{Failure, ProgressReport};
use qo_core::{
    Json, LeaseId, PauseNote, PauseTarget, Pauses, QueueName, Task, TaskId, Timestamp, WorkerId,
};
use qo_direct::DirectEngine;
use qo_engine::api::{
    ClaimRequest, Stats, SubmitRequest, Submitted, VersionedTask, WaitReason, WorkerInfo,
    WorkerRequest,
};
use qo_engine::{Engine, Operation};
use qo_store::Store;
use qo_store::runtime::Runtime;
use tokio::sync::Notify;

use crate::encryption::{EncryptionError, KeyId, Keyring, Sealer, new_id};
use crate::error::Error;

/// A queue. Clones are cheap and share everything.
///
/// Every operation is durable when it returns. Operations on a claimed task take the lease id of the claim. With a stale lease they
/// change nothing and fail with [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost). Most programs use a
/// [`Worker`](crate::Worker), which claims, renews and completes tasks itself.
#[derive(Clone)]
pub struct Queue {
    engine: Arc<dyn Engine>,
    runtime: Arc<dyn Runtime>,
    direct: Option<Arc<Direct>>,
    blobs: Option<Arc<dyn BlobStore>>,
    sealer: Arc<Sealer>,
    /// Rings when a schedule is changed through this queue or a clone of it.
    schedule_bell: Arc<Notify>,
}

/// What only direct mode has.
struct Direct {
    engine: DirectEngine,
    store: Store,
    environment: BTreeMap<String, String>,
}

impl Queue {
    /// Creates a queue on any engine.
    pub fn new(engine: Arc<dyn Engine>, runtime: Arc<dyn Runtime>) -> Self {
        Self {
            engine,
            runtime,
            direct: None,
            blobs: None,
            sealer: Arc::default(),
            schedule_bell: Arc::default(),
        }
    }

    /// Creates a queue in direct mode on an existing engine, for instance one whose store counts requests. `environment` has the
    /// variables that begin with `QO_`, which configure the queue's workers.
    pub fn direct(
        engine: DirectEngine,
        runtime: Arc<dyn Runtime>,
        store: Store,
        environment: BTreeMap<String, String>,
    ) -> Self {
        let blobs = Blobs::new(
            engine.client().clone(),
            Arc::clone(&runtime),
            Blobs::limit_of(store.kind),
        );
        Self {
            engine: Arc::new(engine.clone()),
            runtime,
            blobs: Some(Arc::new(blobs)),
            schedule_bell: Arc::default(),
            direct: Some(Arc::new(Direct {
                engine,
                store,
                environment,
            })),
            sealer: Arc::default(),
        }
    }

    /// The same queue with another engine and runtime.
    pub(crate) fn with(&self, engine: Arc<dyn Engine>, runtime: Arc<dyn Runtime>) -> Self {
        Self {
            engine,
            runtime,
            direct: self.direct.clone(),
            blobs: self.blobs.clone(),
            sealer: Arc::clone(&self.sealer),
            schedule_bell: Arc::clone(&self.schedule_bell),
        }
    }

    /// The same queue with encryption: it encrypts the inputs, outputs, errors and logs that it writes with the first key, and decrypts what it
    /// reads with all of them. Unencrypted tasks stay readable. See [`crate::encryption`].
    #[must_use]
    pub fn encrypted(mut self, keyring: Keyring) -> Self {
        self.sealer = Arc::new(Sealer::new(keyring));
        self
    }

    /// The same queue without encryption: it reads and writes payloads as they are. Servers use it, which pass them on.
    #[must_use]
    pub fn without_encryption(mut self) -> Self {
        self.sealer = Arc::default();
        self
    }

    /// The names of the encryption keys, that which encrypts first; empty without encryption.
    pub fn encryption_keys(&self) -> Vec<KeyId> {
        self.sealer.keys()
    }

    pub(crate) fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    /// Tells the driver of this queue's schedules that one was changed.
    pub fn ring_schedules(&self) {
        self.schedule_bell.notify_one();
    }

    /// Waits until a schedule is changed through this queue or a clone of it.
    pub(crate) async fn schedules_changed(&self) {
        self.schedule_bell.notified().await;
    }

    /// The `QO_` variables with which the queue was opened, in direct mode.
    pub(crate) fn environment(&self) -> Option<&BTreeMap<String, String>> {
        self.direct.as_ref().map(|direct| &direct.environment)
    }

    /// The engine. It knows nothing of encryption: what it reads and writes is as it is stored.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// The engine of direct mode, if the queue uses it. [`Maintenance`](crate::Maintenance) needs it.
    pub fn direct_engine(&self) -> Option<&DirectEngine> {
        self.direct.as_ref().map(|direct| &direct.engine)
    }

    /// The store, in direct mode.
    pub fn store(&self) -> Option<&Store> {
        self.direct.as_ref().map(|direct| &direct.store)
    }

    /// The source of time, timers, tasks and randomness.
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    /// The queue's time. Leases, delays and expiries use it.
    pub fn now(&self) -> Timestamp {
        self.engine.now()
    }

    /// Submits a task. Most callers build one with [`Queue::task`] or [`Queue::task_of`].
    pub async fn submit(&self, mut request: SubmitRequest) -> Result<Submitted, Error> {
        self.seal_submit(&mut request)?;
        Ok(self.open_submitted(self.engine.submit(request).await?))
    }

    /// Submits many tasks at once. Returns one result per request, in order; each task succeeds or fails on its own.
    pub async fn submit_many(
        &self,
        mut requests: Vec<SubmitRequest>,
    ) -> Vec<Result<Submitted, Error>> {
        let mut refused = Vec::new();
        let mut position = 0;
        requests.retain_mut(|request| {
            let sealed = self.seal_submit(request);
            let is_sealed = sealed.is_ok();
            refused.extend(sealed.err().map(|error| (position, Error::from(error))));
            position += 1;
            is_sealed
        });
        let results = self.engine.submit_many(requests).await;
        let mut results: Vec<Result<Submitted, Error>> = results
            .into_iter()
            .map(|result| Ok(self.open_submitted(result?)))
            .collect();
        // In ascending order, so that each position is the final one.
        for (position, error) in refused {
            results.insert(position.min(results.len()), Err(error));
        }
        results
    }

    fn seal_submit(&self, request: &mut SubmitRequest) -> Result<(), EncryptionError> {
        let runtime = self.runtime.as_ref();
        let id = || new_id(self.now(), runtime);
        self.sealer.seal_submit(request, runtime, id)
    }

    fn open_submitted(&self, submitted: Submitted) -> Submitted {
        Submitted {
            task: self.sealer.open_task(submitted.task),
            ..submitted
        }
    }

    /// Claims due tasks, the most urgent first. Each has a lease and an attempt number. Waits up to `wait_ms` for the first task.
    pub async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, Error> {
        let tasks = self.engine.claim(request).await?;
        let tasks = tasks.into_iter().map(|task| self.sealer.open_task(task));
        Ok(tasks.collect())
    }

    /// Claims like [`Queue::claim`], and passes each task to `each` as soon as it is claimed, in no particular order.
    pub async fn claim_each(
        &self,
        request: &ClaimRequest,
        mut each: impl FnMut(Task) + Send,
    ) -> Result<(), Error> {
        let mut each = |task| each(self.sealer.open_task(task));
        Ok(self.engine.claim_each(request, &mut each).await?)
    }

    /// Carries out an operation on one task and returns the task as it is afterwards. The methods below are short forms.
    pub async fn act(&self, id: TaskId, mut operation: Operation) -> Result<Task, Error> {
        let runtime = self.runtime.as_ref();
        self.sealer.seal_operation(id, &mut operation, runtime)?;
        Ok(self.sealer.open_task(self.engine.act(id, operation).await?))
    }

    /// Renews the lease of an attempt. The returned task shows whether a cancel was requested.
    pub async fn renew(
        &self,
        id: TaskId,
        lease: LeaseId,
        lease_ms: Option<u64>,
    ) -> Result<Task, Error> {
        self.act(id, Operation::Renew { lease, lease_ms }).await
    }

    /// Stores the progress of an attempt.
    pub async fn progress(
        &self,
        id: TaskId,
        lease: LeaseId,
        report: ProgressReport,
    ) -> Result<Task, Error> {
        self.act(id, Operation::Progress { lease, report }).await
    }

    /// Completes a task with an optional output.
    pub async fn complete(
        &self,
        id: TaskId,
        lease: LeaseId,
        output: Option<Json>,
    ) -> Result<Task, Error> {
        self.act(id, Operation::Complete { lease, output }).await
    }

    /// Fails an attempt. The task is retried, failed or cancelled, depending on the failure and its retries.
    pub async fn fail(&self, id: TaskId, lease: LeaseId, failure: Failure) -> Result<Task, Error> {
        self.act(id, Operation::Fail { lease, failure }).await
    }

    /// Returns a task to the queue at once, without using a retry.
    pub async fn release(&self, id: TaskId, lease: LeaseId) -> Result<Task, Error> {
        self.act(id, Operation::Release { lease }).await
    }

    /// Returns a task to the queue with a delay, without using a retry.
    pub async fn snooze(&self, id: TaskId, lease: LeaseId, delay_ms: u64) -> Result<Task, Error> {
        self.act(id, Operation::Snooze { lease, delay_ms }).await
    }

    /// Cancels a task: a pending one at once, a running one by a request to its worker.
    pub async fn cancel(&self, id: TaskId, reason: Option<&str>) -> Result<Task, Error> {
        let reason = reason.map(str::to_owned);
        self.act(id, Operation::Cancel { reason }).await
    }

    /// Makes a delayed task due now.
    pub async fn run_now(&self, id: TaskId) -> Result<Task, Error> {
        self.act(id, Operation::RunNow).await
    }

    /// Runs a finished task again, with all its retries.
    pub async fn replay(&self, id: TaskId) -> Result<Task, Error> {
        self.act(id, Operation::Replay).await
    }

    /// Moves a pending task to another queue, with its due time and the retries that it has used, or runs a failed one again there. A task
    /// with an ordering key stays in its queue, and one that is already in this queue is rejected.
    pub async fn redrive(&self, id: TaskId, to: QueueName) -> Result<Task, Error> {
        self.act(id, Operation::Redrive { to }).await
    }

    /// Archives a finished task.
    pub async fn archive(&self, id: TaskId) -> Result<Task, Error> {
        self.act(id, Operation::Archive).await
    }

    /// Restores an archived task to its earlier status.
    pub async fn unarchive(&self, id: TaskId) -> Result<Task, Error> {
        self.act(id, Operation::Unarchive).await
    }

    /// Deletes a finished task with its payloads, index entries and stored versions.
    pub async fn purge(&self, id: TaskId) -> Result<(), Error> {
        Ok(self.engine.purge(id).await?)
    }

    /// Returns a task. What is encrypted with a key that the queue has not stays encrypted.
    pub async fn get(&self, id: TaskId) -> Result<Task, Error> {
        Ok(self.sealer.open_task(self.engine.get(id).await?))
    }

    /// Says what a pending task waits for besides its due time and a worker: another task with the same ordering key, or a limit. `None` if there is
    /// nothing.
    pub async fn waits_for(&self, task: &Task) -> Result<Option<WaitReason>, Error> {
        Ok(self.engine.waits_for(task).await?)
    }

    /// Returns the input of a task. Fails if it is encrypted and the queue has not its key.
    pub async fn input(&self, task: &Task) -> Result<Json, Error> {
        let input = self.engine.input(task).await?;
        Ok(self.sealer.open_input(task, input)?)
    }

    /// Returns the output of a task, if it has one. Fails if it is encrypted and the queue has not its key.
    pub async fn output(&self, task: &Task) -> Result<Option<Json>, Error> {
        match self.engine.output(task).await? {
            Some(output) => Ok(Some(self.sealer.open_output(task, output)?)),
            None => Ok(None),
        }
    }

    /// Returns the events of a task, oldest first.
    pub async fn history(&self, id: TaskId) -> Result<Vec<Event>, Error> {
        let mut events = self.engine.history(id).await?;
        self.sealer.open_events(id, &mut events);
        Ok(events)
    }

    /// Returns the newest `limit` stored versions of a task, oldest first. Requires a versioned store.
    pub async fn versions(&self, id: TaskId, limit: usize) -> Result<Vec<VersionedTask>, Error> {
        let mut versions = self.engine.versions(id, limit).await?;
        for version in &mut versions {
            version.task = version.task.take().map(|task| self.sealer.open_task(task));
        }
        Ok(versions)
    }

    /// Counts tasks by queue and status.
    pub async fn stats(&self) -> Result<Stats, Error> {
        Ok(self.engine.stats().await?)
    }

    /// Returns the registered workers.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>, Error> {
        Ok(self.engine.workers().await?)
    }

    /// Registers a worker, or updates its record. Returns what an operator asks the worker to do.
    pub async fn heartbeat(&self, worker: &WorkerInfo) -> Result<Option<WorkerRequest>, Error> {
        Ok(self.engine.heartbeat(worker).await?)
    }

    /// Asks a worker to claim no more tasks, or to finish and exit; with `None`, withdraws the request. The worker sees it with its next
    /// heartbeat, within about 15 seconds, and the request ends with the worker. Returns its record.
    pub async fn ask_worker(
        &self,
        worker: &WorkerId,
        request: Option<WorkerRequest>,
    ) -> Result<WorkerInfo, Error> {
        Ok(self.engine.ask_worker(worker, request).await?)
    }

    /// Removes the record of a worker.
    pub async fn deregister(&self, worker: &WorkerId) -> Result<(), Error> {
        Ok(self.engine.deregister(worker).await?)
    }

    /// Pauses a queue: claims skip it. See [`Queue::set_pause`].
    pub async fn pause(&self, queue: &QueueName) -> Result<(), Error> {
        Ok(self.engine.pause(queue).await?)
    }

    /// Resumes a paused queue.
    pub async fn resume(&self, queue: &QueueName) -> Result<(), Error> {
        Ok(self.engine.resume(queue).await?)
    }

    /// Pauses a queue or a type, with the reason and the author in the note, or resumes it if there is no note. Claims skip what is
    /// paused; running tasks continue. A repeated pause changes only the reason.
    pub async fn set_pause(
        &self,
        target: &PauseTarget,
        note: Option<PauseNote>,
    ) -> Result<(), Error> {
        Ok(self.engine.set_pause(target, note).await?)
    }

    /// Returns the paused queues and types, with who paused them, when and why.
    pub async fn pauses(&self) -> Result<Pauses, Error> {
        Ok(self.engine.pauses().await?)
    }

    /// Finishes background work. Nothing is lost without it. If this process holds the queue exclusively (`?engine=slate` without
    /// a broker), the next process can open it at once instead of after most of a minute.
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
