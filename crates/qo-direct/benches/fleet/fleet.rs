//! A fleet of workers in virtual time, with shipped defaults: each worker has an engine of its own, its maintenance and its heartbeat.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use object_store::ObjectStore;
use qo_core::transition::{Failure, FailureKind};
use qo_core::{Json, Task, TaskType, Timestamp, WorkerId};
use qo_direct::{DirectConfig, DirectEngine, Maintenance, MaintenanceConfig};
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, SubmitRequest, WorkerInfo};
use qo_fixtures::{PausableRuntime, START_MS};
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::wrap::{CountingStore, Counts, Delay, LatencyStore};

use crate::store;
use crate::virtual_tasks::VirtualTasks;

/// The time that a request takes.
const LATENCY: Duration = Duration::from_millis(30);
/// As in the worker.
const HEARTBEAT: Duration = Duration::from_secs(15);
const CLAIM_WAIT_MS: u64 = 1_000;
/// How long a claim gathers free slots.
const GATHER: Duration = Duration::from_millis(20);

/// What the workers do with a task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// How long each task takes.
    pub(crate) takes: Duration,
    /// How many attempts of each task fail first.
    pub(crate) failures: u32,
    /// How many tasks a worker runs at once.
    pub(crate) slots: usize,
}

pub(crate) struct Fleet {
    pub(crate) runtime: Arc<PausableRuntime>,
    objects: Arc<dyn ObjectStore>,
    counting: Arc<CountingStore>,
    processes: Vec<Arc<PausableRuntime>>,
    completed: Arc<AtomicU64>,
}

pub(crate) fn task_type(number: usize) -> TaskType {
    format!("type-{number:02}").parse().unwrap()
}

impl Fleet {
    pub(crate) fn new(pending: u64, finished: u64) -> Self {
        let runtime = Arc::new(PausableRuntime::new(1));
        let tasks = VirtualTasks {
            pending,
            finished,
            start: Timestamp::from_millis(START_MS),
        };
        let bucket = store::bucket(runtime.clone(), tasks);
        let delay = Delay::Uniform {
            low: LATENCY / 2,
            high: LATENCY * 3 / 2,
        };
        let slowed = LatencyStore::new(bucket, runtime.clone(), delay, 1);
        let counting = Arc::new(CountingStore::new(Arc::new(slowed)));
        Self {
            objects: counting.clone(),
            counting,
            runtime,
            processes: Vec::new(),
            completed: Arc::default(),
        }
    }

    /// The engine of another process.
    pub(crate) fn engine(&mut self) -> (DirectEngine, Arc<PausableRuntime>) {
        let runtime = self.runtime.beside(100 + self.processes.len() as u64, 0);
        self.processes.push(runtime.clone());
        let client = StoreClient::new(
            self.objects.clone(),
            Arc::new(StoreClock::new()),
            runtime.clone(),
            ClientConfig::default(),
        );
        let engine = DirectEngine::new(client, None, runtime.clone(), DirectConfig::default());
        (engine, runtime)
    }

    /// Starts workers that serve these types, over a minute.
    pub(crate) async fn start(&mut self, workers: usize, types: &[TaskType], work: Work) {
        for number in 0..workers {
            let (engine, runtime) = self.engine();
            let name: WorkerId = format!("worker-{number:04}").parse().unwrap();
            let worker = Worker {
                engine,
                runtime: runtime.clone(),
                name,
                types: types.to_vec(),
                work,
                completed: self.completed.clone(),
            };
            runtime.spawn(Box::pin(worker.run()));
            self.runtime
                .sleep(Duration::from_mins(1) / u32::try_from(workers).unwrap())
                .await;
        }
        self.runtime.sleep(Duration::from_secs(30)).await;
    }

    /// Stores a pending task as a submitter that dies before it writes the entry.
    pub(crate) async fn submit_without_entry(&self, engine: &DirectEngine) {
        let now = engine.now();
        let id = qo_core::TaskId::from_random(self.runtime.random_u128());
        let input = qo_core::Payload::Inline(Json::null());
        let submission = request(task_type(0)).into_submission(id, input, now);
        let op = self.runtime.new_op_id();
        let task = qo_core::transition::submit(submission, op, now).unwrap();
        let body = qo_core::task::encode(&task).unwrap();
        let key = qo_core::keys::Key::Task(id).to_string();
        let created = engine.client().create(&key, body.into(), &op).await;
        created.unwrap();
    }

    pub(crate) async fn pass(&self, time: Duration) {
        self.runtime.sleep(time).await;
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counting.counts()
    }

    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Waits until this many tasks are completed, and returns how long that took; `None` after the limit.
    pub(crate) async fn until_completed(&self, count: u64, limit: Duration) -> Option<Duration> {
        let began = self.runtime.monotonic();
        while self.completed() < count {
            if self.runtime.monotonic() > began + limit {
                return None;
            }
            self.runtime.sleep(Duration::from_millis(100)).await;
        }
        Some(self.runtime.monotonic() - began)
    }

    /// Ends all processes at once.
    pub(crate) fn kill(&self) {
        for process in &self.processes {
            process.kill();
        }
    }
}

struct Worker {
    engine: DirectEngine,
    runtime: Arc<PausableRuntime>,
    name: WorkerId,
    types: Vec<TaskType>,
    work: Work,
    completed: Arc<AtomicU64>,
}

impl Worker {
    async fn run(self) {
        let _maintenance = Maintenance::spawn(self.engine.clone(), MaintenanceConfig::default());
        let worker = Arc::new(self);
        let heartbeat = Arc::clone(&worker);
        heartbeat.beat().await;
        let beats = async {
            loop {
                let factor = 0.9 + 0.2 * heartbeat.runtime.random_unit();
                heartbeat.runtime.sleep(HEARTBEAT.mul_f64(factor)).await;
                heartbeat.beat().await;
            }
        };
        let free = Arc::new(tokio::sync::Semaphore::new(worker.work.slots));
        let claims = async {
            loop {
                drop(free.acquire().await.unwrap());
                worker.runtime.sleep(GATHER).await;
                let max = free.available_permits();
                let slots = free.clone().acquire_many_owned(u32::try_from(max).unwrap());
                let mut slots = slots.await.unwrap();
                let request = ClaimRequest {
                    max,
                    wait_ms: CLAIM_WAIT_MS,
                    ..ClaimRequest::new(worker.name.clone(), worker.types.clone())
                };
                for task in worker.engine.claim(&request).await.unwrap_or_default() {
                    let slot = slots.split(1);
                    let worker_of_task = Arc::clone(&worker);
                    worker.runtime.spawn(Box::pin(async move {
                        worker_of_task.handle(task).await;
                        drop(slot);
                    }));
                }
            }
        };
        futures_util::future::join(beats, claims).await;
    }

    async fn beat(&self) {
        let mut info = WorkerInfo::new(self.name.clone(), self.engine.now());
        info.types.clone_from(&self.types);
        info.queues = vec![qo_core::QueueName::default()];
        info.slots = u32::try_from(self.work.slots).unwrap();
        let _ = self.engine.heartbeat(&info).await;
    }

    async fn handle(&self, task: Task) {
        let lease = task.lease_id.unwrap();
        let renewal = Duration::from_millis(DirectConfig::default().lease_ms) / 3;
        let mut left = self.work.takes;
        while left > renewal {
            self.runtime.sleep(renewal).await;
            left -= renewal;
            if self.engine.renew(task.id, lease, None).await.is_err() {
                return;
            }
        }
        self.runtime.sleep(left).await;
        if task.attempt <= self.work.failures {
            let failure = Failure {
                kind: FailureKind::Retryable,
                error: "a test".into(),
            };
            let _ = self.engine.fail(task.id, lease, failure).await;
        } else if self
            .engine
            .complete(task.id, lease, Some(Json::null()))
            .await
            .is_ok()
        {
            self.completed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub(crate) fn request(task_type: TaskType) -> SubmitRequest {
    SubmitRequest::new(task_type, Json::null())
}
