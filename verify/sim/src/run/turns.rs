//! Groups that take turns in an engine without a common count of turns, without faults.
//!
//! One process submits a long backlog of a large group. Workers begin with it, and another process submits a task of a small group now and
//! then. In direct mode a worker first takes what it has listed, for at most five seconds. So a task of the small group starts within that time,
//! the time that a task runs, and a few requests, however long the backlog is.
//!
//! That holds once the workers agree on who is there. Until then two busy workers may each leave a task to the other, so the run begins when
//! all have read the same roster.
//!
//! Under faults nothing like that holds: a worker that is suspended keeps the tasks that are meant for it, and a late or lost write of the index
//! delays a task by any time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use qo::{Context, Queue, TaskError, TaskHandler, Worker};
use qo_check::{Breaches, Promise};
use qo_core::{Json, TaskId};
use qo_engine::api::SubmitRequest;
use qo_engine::{Engine, EngineError};
use qo_store::runtime::Runtime;

use super::{Stage, lock};
use crate::plan::Plan;
use crate::random::Random;
use crate::subject::Subject;

const TYPE: &str = "import";
/// The tasks of the large group.
const BACKLOG: u64 = 200;
/// The tasks of the small group.
const LATER: u64 = 3;
/// How long it takes at most until workers that start together have read the same roster: two of its intervals, and some requests.
const AGREEMENT: Duration = Duration::from_secs(25);
const RUN: Duration = Duration::from_secs(1);
/// How long a worker uses a page of the index.
const PAGE_FRESH: Duration = Duration::from_secs(5);
/// For the requests from the submit of a task to its start.
const REQUESTS: Duration = Duration::from_secs(1);
/// The latency of a request or a response.
const LATENCY_US: (u64, u64) = (500, 30_000);

/// When each task first started.
type Starts = Arc<Mutex<BTreeMap<TaskId, Duration>>>;

/// Lets two groups compete, and returns what is wrong.
pub fn turns(subject: &Arc<dyn Subject>, seed: u64) -> Breaches {
    let plan = Plan {
        faults: [].into(),
        gateways_ahead_ms: Vec::new(),
        latency_us: LATENCY_US,
        ..Plan::of(seed)
    };
    let stage = Stage::new(&plan, Arc::clone(subject), false);
    let scheduler = stage.scheduler().clone();
    let main = Arc::clone(&stage);
    let played = scheduler.run(Box::pin(async move { main.play_turns().await }));
    if let Err(stuck) = played {
        stage.breach(Promise::Run, format!("{stuck:?} while groups take turns"));
    }
    scheduler.finish();
    std::mem::take(&mut lock(&stage.state).found)
}

impl Stage {
    async fn play_turns(self: Arc<Self>) {
        let mut dice = Random::of(&[self.plan.seed, 0x7025]);
        let starts = Starts::default();
        // The more of them, the sooner the backlog is done. It must last for longer than the bound.
        for number in 1..=dice.between(1, 3) {
            let slots = usize::try_from(dice.between(1, 4)).unwrap_or(1);
            self.spawn_worker(number, slots, &starts);
        }
        self.scheduler.sleep(AGREEMENT).await;
        let (_, _, large) = self.start_process("large", "large", 0);
        let backlog = (0..BACKLOG).filter_map(|_| request_of("large")).collect();
        for submitted in large.engine.submit_many(backlog).await {
            if let Err(error) = submitted {
                self.breach_submit(&error);
            }
        }
        let (_, _, small) = self.start_process("small", "small", 0);
        for _ in 0..LATER {
            self.scheduler.sleep(dice.millis(0, 2_000)).await;
            let Some(id) = self.submit_of(&small.engine, "small").await else {
                continue;
            };
            let submitted = self.scheduler.elapsed();
            let bound = PAGE_FRESH + RUN + REQUESTS;
            self.scheduler.sleep(bound).await;
            let started = lock(&starts).get(&id).copied();
            if started.is_none_or(|started| started > submitted + bound) {
                let text = format!(
                    "task {id} of a small group has not started {bound:?} after its submit"
                );
                self.breach(Promise::InTurn, text);
            }
        }
    }

    async fn submit_of(&self, engine: &Arc<dyn Engine>, group: &str) -> Option<TaskId> {
        match engine.submit(request_of(group)?).await {
            Ok(submitted) => Some(submitted.task.id),
            Err(error) => {
                self.breach_submit(&error);
                None
            }
        }
    }

    fn breach_submit(&self, error: &EngineError) {
        let text = format!("without faults, a submit failed: {error}");
        self.breach(Promise::Run, text);
    }

    fn spawn_worker(&self, number: u64, slots: usize, starts: &Starts) {
        let name = format!("w{number}");
        let (process, runtime, running) = self.start_process(&name, &name, 0);
        let queue = Queue::new(running.engine, Arc::clone(&runtime) as _);
        let worker = Worker::builder(queue)
            .no_schedules()
            .id(name)
            .concurrency(slots)
            .handlers_in_runtime()
            .no_maintenance()
            .handler(Slow {
                runtime,
                scheduler: self.scheduler.clone(),
                starts: Arc::clone(starts),
            })
            .build();
        if let Ok(worker) = worker {
            self.scheduler.spawn(
                process,
                Box::pin(async move {
                    // It works until the run is over.
                    let _ = worker.run_until(std::future::pending()).await;
                }),
            );
        }
    }
}

/// A task of a group.
fn request_of(group: &str) -> Option<SubmitRequest> {
    let request = SubmitRequest::new(TYPE.parse().ok()?, Json::null());
    let fairness_group = Some(group.parse().ok()?);
    Some(SubmitRequest {
        fairness_group,
        ..request
    })
}

/// Notes when each task starts.
struct Slow {
    runtime: Arc<dyn Runtime>,
    scheduler: crate::sched::Scheduler,
    starts: Starts,
}

#[async_trait]
impl TaskHandler for Slow {
    fn task_type(&self) -> &str {
        TYPE
    }

    async fn handle(&self, _input: Json, context: Context) -> Result<Option<Json>, TaskError> {
        let now = self.scheduler.elapsed();
        lock(&self.starts).entry(context.id()).or_insert(now);
        self.runtime.sleep(RUN).await;
        Ok(None)
    }
}
