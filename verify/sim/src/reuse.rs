//! Ids and idempotency keys that are used again, with a retention much shorter than the run.
//!
//! One caller uses a few ids and keys again and again, without faults: it submits, completes, archives and replays, and waits for the
//! retention and the cleanup to pass in between. The checks of a run assume that every task is kept, so this has checks of its own:
//!
//! - the input of a live task can be read, whatever became of an earlier task with its id;
//! - while a key is held, no other task gets it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_check::{Breaches, Promise};
use qo_core::task::IdempotencyScope;
use qo_core::{QueueName, Task, TaskId};
use qo_engine::api::{ClaimRequest, IdempotencyRequest, SubmitRequest};
use qo_engine::{Engine, EngineError};

use crate::actor::large;
use crate::plan::Plan;
use crate::random::Random;
use crate::run::Stage;
use crate::sched::{Scheduler, lock};
use crate::subject::Subject;

const STEPS: usize = 120;
const IDS: u64 = 4;
const KEYS: u64 = 2;
const RETENTION: Duration = Duration::from_mins(1);
const SWEEP_SECONDS: u64 = 20;
/// The validity of some keys.
const WINDOW: Duration = Duration::from_secs(15);
/// Nothing is expected of what ends within this time.
const MARGIN: Duration = Duration::from_secs(5);

/// Uses ids and keys again on an engine, and returns what is wrong.
pub fn reuse(subject: &Arc<dyn Subject>, seed: u64) -> Breaches {
    let plan = Plan {
        faults: [].into(),
        latency_us: (100, 3_000),
        retention: Some(RETENTION),
        sweep_seconds: SWEEP_SECONDS,
        ..Plan::of(seed)
    };
    let stage = Stage::new(&plan, Arc::clone(subject), false);
    let scheduler = stage.scheduler().clone();
    let breaches = Arc::new(Mutex::new(Breaches::default()));
    let (main, found) = (Arc::clone(&stage), Arc::clone(&breaches));
    let played = scheduler.run(Box::pin(async move {
        let running = main.only_caller("caller").await;
        // In direct mode, the sweeper of any process drops what is kept for too long.
        let _maintenance = (running.maintain)();
        let mut reuser = Reuser {
            engine: running.engine,
            scheduler: main.scheduler().clone(),
            dice: Random::of(&[seed, 0x4e05e]),
            live: BTreeMap::new(),
            finished: BTreeMap::new(),
            holders: BTreeMap::new(),
            breaches: found,
        };
        for _ in 0..STEPS {
            if let Err(error) = reuser.step().await {
                reuser.breach(
                    Promise::Run,
                    format!("without faults, a call was told: {error}"),
                );
            }
        }
    }));
    let mut breaches = std::mem::take(&mut *lock(&breaches));
    if let Err(stuck) = played {
        breaches.add(Promise::Run, format!("{stuck:?} while ids are used again"));
    }
    scheduler.finish();
    breaches
}

/// The last task that got a key.
#[derive(Debug, Clone, Copy)]
struct KeyHolder {
    id: TaskId,
    /// When the key is free at the earliest, if that is known.
    until: Option<Duration>,
}

struct Reuser {
    engine: Arc<dyn Engine>,
    scheduler: Scheduler,
    dice: Random,
    live: BTreeMap<TaskId, Task>,
    /// When each task finished.
    finished: BTreeMap<TaskId, Duration>,
    holders: BTreeMap<u64, KeyHolder>,
    breaches: Arc<Mutex<Breaches>>,
}

impl Reuser {
    async fn step(&mut self) -> Result<(), EngineError> {
        match self.dice.below(10) {
            0..=3 => self.submit().await?,
            4..=6 => self.complete().await?,
            7 => self.operate().await?,
            8 => self.scheduler.sleep(self.dice.millis(0, 20_000)).await,
            _ => self.scheduler.sleep(self.dice.millis(0, 90_000)).await,
        }
        for task in self.live.values() {
            if let Err(error) = self.engine.input(task).await {
                let text = format!("the input of live task {} is lost: {error}", task.id);
                self.breach(Promise::NothingLost, text);
            }
        }
        Ok(())
    }

    async fn submit(&mut self) -> Result<(), EngineError> {
        let Ok(task_type) = "noop".parse() else {
            return Ok(());
        };
        // Few inputs, so that the same id also comes back with the same input.
        let mut request = SubmitRequest::new(task_type, large(self.dice.below(2)));
        let key = self.dice.below(KEYS);
        let has_key = self.dice.chance(0.5);
        // A task with a key has an id of its own, so that only the key can make it a duplicate.
        let id = if has_key {
            TaskId::from_random(u128::from(self.dice.bits()))
        } else {
            TaskId::from_random(u128::from(self.dice.below(IDS)))
        };
        request.id = Some(id);
        let has_window = self.dice.chance(0.6);
        if has_key && let Ok(name) = format!("key-{key}").parse() {
            let window_ms = u64::try_from(WINDOW.as_millis()).unwrap_or(u64::MAX);
            request.idempotency = Some(IdempotencyRequest {
                key: name,
                scope: IdempotencyScope::Global,
                window_ms: has_window.then_some(window_ms),
            });
        }
        let began = self.scheduler.elapsed();
        let submitted = self.engine.submit(request).await?;
        if submitted.duplicate {
            return Ok(());
        }
        self.finished.remove(&id);
        self.live.insert(id, submitted.task);
        if has_key {
            if let Some(holder) = self.holders.get(&key).copied()
                && self.holds(holder, began)
            {
                let text = format!("key-{key} of task {} was given to task {id}", holder.id);
                self.breach(Promise::OneTask, text);
            }
            let until = has_window.then(|| began + WINDOW);
            self.holders.insert(key, KeyHolder { id, until });
        }
        Ok(())
    }

    /// Whether a task certainly holds its key.
    fn holds(&self, holder: KeyHolder, at: Duration) -> bool {
        match (holder.until, self.finished.get(&holder.id)) {
            (Some(until), _) => at + MARGIN < until,
            (None, Some(finished)) => at + MARGIN < *finished + RETENTION,
            (None, None) => self.live.contains_key(&holder.id),
        }
    }

    async fn complete(&mut self) -> Result<(), EngineError> {
        let (Ok(worker), Ok(task_type)) = ("caller".parse(), "noop".parse()) else {
            return Ok(());
        };
        let mut request = ClaimRequest::new(worker, vec![task_type]);
        request.queues = vec![QueueName::default()];
        for task in self.engine.claim(&request).await? {
            if let Some(lease) = task.lease_id {
                let began = self.scheduler.elapsed();
                self.engine.complete(task.id, lease, None).await?;
                self.live.remove(&task.id);
                self.finished.insert(task.id, began);
            }
        }
        Ok(())
    }

    /// Archives or replays a finished task, which may have been dropped.
    async fn operate(&mut self) -> Result<(), EngineError> {
        let count = self.finished.len() as u64;
        let index = usize::try_from(self.dice.below(count)).unwrap_or_default();
        let Some(id) = self.finished.keys().nth(index).copied() else {
            return Ok(());
        };
        if self.dice.chance(0.5) {
            if let Ok(task) = self.engine.replay(id).await {
                self.finished.remove(&id);
                self.live.insert(id, task);
            }
        } else {
            // Some engines keep an archived task for longer, so nothing more is expected of it.
            let _ = self.engine.archive(id).await;
        }
        Ok(())
    }

    fn breach(&self, promise: Promise, text: String) {
        lock(&self.breaches).add(promise, text);
    }
}
