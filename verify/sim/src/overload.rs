//! More submits than a broker commits, while workers hold long tasks.
//!
//! The store is slow, a write serves few callers, and few submits may wait. A crowd of clients submits for several leases' time. Workers renew
//! the leases of long tasks meanwhile, and others work on short tasks. There are no faults, so:
//!
//! - no worker loses a lease, and every task is completed by its first attempt;
//! - a submit that was refused has changed nothing: the task does not exist, and a repeated submit creates it;
//! - after the flood every accepted task is finished.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{join, join_all};
use qo_check::{Breaches, Promise};
use qo_core::{QueueName, Status, Task, TaskId};
use qo_engine::api::{ClaimRequest, SubmitRequest};
use qo_engine::{Engine, EngineError};

use crate::actor::{TYPES, small};
use crate::plan::{BrokerLimits, Plan};
use crate::random::Random;
use crate::run::Stage;
use crate::sched::{Scheduler, lock};
use crate::subject::Subject;

/// The number of long tasks, each with a worker of its own.
const HOLDERS: u64 = 24;
/// The number of clients. Each waits for one response at a time.
const CLIENTS: u64 = 80;
/// The number of workers for short tasks.
const WORKERS: u64 = 2;
/// How many leases' time the flood lasts.
const FLOOD_LEASES: u32 = 5;
/// How long the accepted tasks may take after the flood.
const DRAIN_MAX: Duration = Duration::from_mins(10);
/// The types of long and of short tasks.
const LONG: usize = 0;
const SHORT: usize = 1;

/// What happened in an overload.
#[derive(Debug, Default)]
pub struct Overload {
    /// What is wrong.
    pub found: Breaches,
    /// The number of accepted submits.
    pub accepted: u64,
    /// The number of refused submits.
    pub refused: u64,
}

/// Overloads an engine.
pub fn overload(subject: &Arc<dyn Subject>, seed: u64) -> Overload {
    let mut dice = Random::of(&[seed, 0x0f10d]);
    // Leases are some writes long. An engine with brokers has shorter ones: a slower store would unseat the leader.
    let (latency_us, lease_ms) = if subject.brokers() > 0 {
        ((50_000, 200_000), 4_000)
    } else {
        ((200_000, 800_000), 10_000)
    };
    let plan = Plan {
        faults: [].into(),
        gateways_ahead_ms: Vec::new(),
        latency_us,
        limits: Some(BrokerLimits {
            lease_ms,
            group_max: usize::try_from(dice.between(1, 3)).unwrap_or(1),
            submits_max: dice.between(30, 60),
        }),
        ..Plan::of(seed)
    };
    let stage = Stage::new(&plan, Arc::clone(subject), false);
    let scheduler = stage.scheduler().clone();
    let outcome = Arc::new(Mutex::new(Overload::default()));
    let (main, state) = (Arc::clone(&stage), Arc::clone(&outcome));
    let played = scheduler.run(Box::pin(async move {
        let running = main.only_caller("caller").await;
        let flood = Flood {
            engine: running.engine,
            scheduler: main.scheduler().clone(),
            lease: Duration::from_millis(lease_ms),
            seed,
            ends_at: Mutex::default(),
            tasks: Mutex::default(),
            outcome: state,
        };
        if let Err(error) = flood.play().await {
            flood.breach(
                Promise::Run,
                format!("in an overload, a call was told: {error}"),
            );
        }
    }));
    let mut outcome = std::mem::take(&mut *lock(&outcome));
    if let Err(stuck) = played {
        let text = format!("{stuck:?} in an overload");
        outcome.found.add(Promise::Run, text);
    }
    scheduler.finish();
    outcome
}

struct Flood {
    engine: Arc<dyn Engine>,
    scheduler: Scheduler,
    lease: Duration,
    seed: u64,
    ends_at: Mutex<Duration>,
    tasks: Mutex<Tasks>,
    outcome: Arc<Mutex<Overload>>,
}

#[derive(Default)]
struct Tasks {
    accepted: Vec<TaskId>,
    refused: Vec<TaskId>,
}

impl Flood {
    async fn play(&self) -> Result<(), EngineError> {
        let mut dice = Random::of(&[self.seed, 0x0f10e]);
        let held = (0..HOLDERS).filter_map(|_| request(LONG, &mut dice));
        let held = join_all(held.map(|request| self.engine.submit(request)));
        let mut ids = Vec::new();
        for submitted in held.await {
            ids.push(submitted?.task.id);
        }
        let most = usize::try_from(HOLDERS).unwrap_or(usize::MAX);
        let held = self.claim("holder", LONG, most, 0).await?;
        *lock(&self.ends_at) = self.scheduler.elapsed() + self.lease * FLOOD_LEASES;
        let holders = join_all(held.iter().map(|task| self.hold(task)));
        let clients = join_all((0..CLIENTS).map(|number| self.submit(number)));
        let workers = join_all((0..WORKERS).map(|number| self.work(number)));
        let ((held, submitted), worked) = join(join(holders, clients), workers).await;
        held.into_iter()
            .chain(submitted)
            .chain(worked)
            .collect::<Result<(), _>>()?;
        self.drain().await?;
        self.check(&ids).await
    }

    fn is_over(&self) -> bool {
        self.scheduler.elapsed() >= *lock(&self.ends_at)
    }

    /// Holds a task until the flood is over: renews its lease three times in its length, as workers do.
    async fn hold(&self, task: &Task) -> Result<(), EngineError> {
        let Some(lease) = task.lease_id else {
            return Ok(());
        };
        while !self.is_over() {
            let began = self.scheduler.elapsed();
            let renewed = self.engine.renew(task.id, lease, None).await;
            if self.loses_lease(task, renewed)? {
                return Ok(());
            }
            let next = began + self.lease / 3;
            let pause = next.saturating_sub(self.scheduler.elapsed());
            self.scheduler.sleep(pause).await;
        }
        self.complete(task).await
    }

    async fn complete(&self, task: &Task) -> Result<(), EngineError> {
        let Some(lease) = task.lease_id else {
            return Ok(());
        };
        let completed = self.engine.complete(task.id, lease, None).await;
        self.loses_lease(task, completed).map(drop)
    }

    /// Whether a live worker was told that its lease is lost.
    fn loses_lease(
        &self,
        task: &Task,
        result: Result<Task, EngineError>,
    ) -> Result<bool, EngineError> {
        match result {
            Ok(_) => Ok(false),
            Err(error) if error.is_lease_lost() => {
                let text = format!(
                    "in an overload, the live worker of task {} lost its lease",
                    task.id
                );
                self.breach(Promise::Explained, text);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// A client: submits one task after the other, and tries some of the refused ones again.
    async fn submit(&self, number: u64) -> Result<(), EngineError> {
        let mut dice = Random::of(&[self.seed, 0x0f10f, number]);
        while !self.is_over() {
            let Some(wanted) = request(SHORT, &mut dice) else {
                return Ok(());
            };
            let Some(id) = wanted.id else { return Ok(()) };
            let tries_again = dice.chance(0.5);
            loop {
                match self.engine.submit(wanted.clone()).await {
                    Ok(submitted) => {
                        if submitted.duplicate {
                            let text = format!("a refused submit has created task {id}");
                            self.breach(Promise::OneTask, text);
                        }
                        lock(&self.tasks).accepted.push(id);
                        lock(&self.outcome).accepted += 1;
                        break;
                    }
                    Err(EngineError::Overloaded { .. }) => {
                        lock(&self.outcome).refused += 1;
                        self.scheduler.sleep(dice.millis(200, 2_000)).await;
                        if !tries_again || self.is_over() {
                            lock(&self.tasks).refused.push(id);
                            break;
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// A worker for short tasks.
    async fn work(&self, number: u64) -> Result<(), EngineError> {
        let worker = format!("worker-{number}");
        while !self.is_over() {
            let tasks = self.claim(&worker, SHORT, 4, 1_000).await?;
            let completed = join_all(tasks.iter().map(|task| self.complete(task)));
            completed.await.into_iter().collect::<Result<(), _>>()?;
        }
        Ok(())
    }

    async fn claim(
        &self,
        worker: &str,
        task_type: usize,
        max: usize,
        wait_ms: u64,
    ) -> Result<Vec<Task>, EngineError> {
        let (Ok(worker), Ok(task_type)) = (worker.parse(), TYPES[task_type].parse()) else {
            return Ok(Vec::new());
        };
        let request = ClaimRequest {
            queues: vec![QueueName::default()],
            max,
            wait_ms,
            ..ClaimRequest::new(worker, vec![task_type])
        };
        self.engine.claim(&request).await
    }

    /// Finishes the accepted tasks.
    async fn drain(&self) -> Result<(), EngineError> {
        let until = self.scheduler.elapsed() + DRAIN_MAX;
        while self.scheduler.elapsed() < until {
            let tasks = self.claim("drain", SHORT, 8, 0).await?;
            if tasks.is_empty() {
                return Ok(());
            }
            let completed = join_all(tasks.iter().map(|task| self.complete(task)));
            completed.await.into_iter().collect::<Result<(), _>>()?;
        }
        let text = format!("accepted tasks are not finished {DRAIN_MAX:?} after an overload");
        self.breach(Promise::Ends, text);
        Ok(())
    }

    async fn check(&self, held: &[TaskId]) -> Result<(), EngineError> {
        let Tasks { accepted, refused } = std::mem::take(&mut *lock(&self.tasks));
        for id in held.iter().chain(&accepted) {
            match self.engine.get(*id).await {
                Ok(task) if task.status == Status::Completed && task.attempt == 1 => {}
                Ok(task) => {
                    let text = format!(
                        "after an overload, task {id} is {} in attempt {}",
                        task.status, task.attempt
                    );
                    self.breach(Promise::Explained, text);
                }
                Err(error) if error.is_not_found() => {
                    let text = format!("after an overload, accepted task {id} is lost");
                    self.breach(Promise::NothingLost, text);
                }
                Err(error) => return Err(error),
            }
        }
        for id in refused {
            match self.engine.get(id).await {
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
                Ok(task) => {
                    let text = format!("a refused submit has created task {id}: {}", task.status);
                    self.breach(Promise::Rules, text);
                }
            }
        }
        Ok(())
    }

    fn breach(&self, promise: Promise, text: String) {
        lock(&self.outcome).found.add(promise, text);
    }
}

fn request(task_type: usize, dice: &mut Random) -> Option<SubmitRequest> {
    let bits = (u128::from(dice.bits()) << 64) | u128::from(dice.bits());
    let mut request = SubmitRequest::new(TYPES[task_type].parse().ok()?, small(dice.below(100)));
    request.id = Some(TaskId::from_random(bits));
    Some(request)
}
