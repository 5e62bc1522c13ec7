//! A schedule that several processes fire, under faults.
//!
//! Each process drives the schedule with the library's driver and works on its tasks. Processes die at any await, pause, and are cut off;
//! responses get lost. On engines that drop finished tasks, the retention is shorter than the run. After the faults:
//!
//! - each tick that was due made exactly one task, and no task that was dropped was submitted again;
//! - the record names no task that is not submitted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo::schedule::{ScheduleSpec, TaskTemplate};
use qo::{Queue, ScheduleDriver};
use qo_check::{Breaches, Promise};
use qo_core::{QueueName, Task, TaskId, Timestamp};
use qo_engine::Engine;
use qo_engine::api::{ClaimRequest, TaskFilter, TaskQuery};
use qo_store::runtime::Runtime;

use super::{Stage, lock};
use crate::faults::FaultKind;
use crate::plan::Plan;
use crate::subject::Subject;

const NAME: &str = "often";
const TYPE: &str = "tick";
const PROCESSES: u64 = 3;
const EVERY: Duration = Duration::from_secs(10);
const RETENTION: Duration = Duration::from_mins(1);
/// The longest time of faults.
const TROUBLE_MAX: Duration = Duration::from_mins(5);
/// After the faults, everything that is due is decided and submitted within this time.
const SETTLED_AFTER: Duration = Duration::from_mins(4);
const LOOK: Duration = Duration::from_secs(1);
/// How often a failed definition of the schedule is repeated.
const DEFINITIONS_MAX: usize = 10;

/// The tasks that were seen: by tick, the ids and when each was created.
type Seen = Arc<Mutex<BTreeMap<Timestamp, BTreeSet<(TaskId, Timestamp)>>>>;

/// Runs a schedule on an engine that every process opens itself, and returns what is wrong.
pub fn schedules(subject: &Arc<dyn Subject>, seed: u64) -> Breaches {
    let mut plan = Plan {
        retention: subject.drops_finished().then_some(RETENTION),
        ..Plan::of(seed)
    };
    // A record that is damaged or cannot be written any more stops its schedule, as it should.
    for kind in [FaultKind::CorruptObject, FaultKind::VersionLimit] {
        plan.faults.remove(&kind);
    }
    plan.trouble = plan.trouble.min(TROUBLE_MAX);
    let stage = Stage::new(&plan, Arc::clone(subject), false);
    let scheduler = stage.scheduler().clone();
    let main = Arc::clone(&stage);
    let played = scheduler.run(Box::pin(async move { main.play_schedules().await }));
    if let Err(stuck) = played {
        stage.breach(Promise::Run, format!("{stuck:?} while a schedule is fired"));
    }
    scheduler.finish();
    std::mem::take(&mut lock(&stage.state).found)
}

impl Stage {
    async fn play_schedules(self: Arc<Self>) {
        let (process, runtime, running) = self.start_process("definer", "definer", 0);
        let queue = Queue::new(Arc::clone(&running.engine), runtime);
        let Ok(task_type) = TYPE.parse() else { return };
        let every_ms = u64::try_from(EVERY.as_millis()).unwrap_or(u64::MAX);
        let spec = ScheduleSpec::every_ms(every_ms, TaskTemplate::new(task_type));
        let Ok(ticks) = spec.ticks() else { return };
        // Requests get lost here, too. A user who sees that repeats the command.
        let mut defined = queue.schedules().put(NAME, spec.clone()).await;
        for _ in 0..DEFINITIONS_MAX {
            if defined.is_ok() {
                break;
            }
            self.scheduler.sleep(LOOK).await;
            defined = queue.schedules().put(NAME, spec.clone()).await;
        }
        if let Err(error) = defined {
            return self.breach(Promise::Run, format!("a schedule was refused: {error}"));
        }
        self.scheduler.kill(process);
        // The processes may know the time a little less well than the store.
        let began = self.scheduler.true_now().plus_millis(2_000);
        self.trouble.begin_gateway();
        let seen = Seen::default();
        for number in 1..=PROCESSES {
            self.spawn(Arc::clone(&self).lives_of_a_driver(number, Arc::clone(&seen)));
        }
        self.spawn(Arc::clone(&self).storms_of_the_store());
        self.scheduler.sleep(self.plan.trouble).await;
        let ended = self.scheduler.true_now();
        self.calm_down();
        self.scheduler.sleep(SETTLED_AFTER).await;
        let processes: Vec<_> = {
            let mut state = lock(&self.state);
            state.over = true;
            state.lives.iter().map(|lived| lived.process).collect()
        };
        for process in processes {
            self.scheduler.kill(process);
        }
        let (_, runtime, running) = self.start_process("reader", "reader", 0);
        self.read_tasks(&running.engine, &seen).await;
        let queue = Queue::new(running.engine, runtime);
        match queue.schedules().get(NAME).await {
            Ok(info) if info.next.is_none_or(|next| next <= ended) => {
                let text = format!(
                    "the schedule stands still: its next tick is {:?}",
                    info.next
                );
                self.breach(Promise::Ends, text);
            }
            Ok(_) => {}
            Err(error) => self.breach(Promise::Run, format!("the schedule is lost: {error}")),
        }
        let seen = lock(&seen);
        for tick in ticks.between(began, ended, usize::MAX) {
            if !seen.contains_key(&tick) {
                self.breach(
                    Promise::NothingLost,
                    format!("the tick {tick} made no task"),
                );
            }
        }
        for (tick, tasks) in seen.iter().filter(|(_, tasks)| tasks.len() > 1) {
            let text = format!("the tick {tick} made more than one task: {tasks:?}");
            self.breach(Promise::OneTask, text);
        }
    }

    /// A process that fires the schedule and works on its tasks, and restarts when it dies.
    async fn lives_of_a_driver(self: Arc<Self>, number: u64, seen: Seen) {
        let slot = format!("d{number}");
        for life in 1_u64.. {
            if lock(&self.state).over {
                return;
            }
            let name = format!("{slot}.{life}");
            let mut dice = self.trouble.dice(&[0x5c4ed, number, life]);
            let skew_ms = self.draw_skew(&mut dice);
            let (process, runtime, running) = self.start_process(&name, &slot, skew_ms);
            self.doom(process, &name, &mut dice, 1);
            self.spawn(Arc::clone(&self).storms_of_a_process(process, name.clone()));
            let queue = Queue::new(Arc::clone(&running.engine), Arc::clone(&runtime) as _);
            let driver = ScheduleDriver::new(queue).run();
            self.scheduler.spawn(process, Box::pin(driver));
            let work = work(running.engine, runtime, slot.clone(), Arc::clone(&seen));
            self.scheduler.spawn(process, Box::pin(work));
            if !self.outlive(process, &name).await {
                return;
            }
        }
    }

    async fn read_tasks(&self, engine: &Arc<dyn Engine>, seen: &Seen) {
        let mut cursor = None;
        loop {
            let filter = TaskFilter::default();
            let page = match engine
                .list(TaskQuery::first(&filter, 1_000).at(cursor.as_deref()))
                .await
            {
                Ok(page) => page,
                Err(error) => {
                    let text = format!("without faults, a list failed: {error}");
                    return self.breach(Promise::Run, text);
                }
            };
            page.tasks.iter().for_each(|task| see(seen, task));
            cursor = page.next;
            if cursor.is_none() {
                return;
            }
        }
    }
}

/// Completes tasks, and records each before it can be dropped.
async fn work(engine: Arc<dyn Engine>, runtime: Arc<dyn Runtime>, slot: String, seen: Seen) {
    let (Ok(worker), Ok(task_type)) = (slot.parse(), TYPE.parse()) else {
        return;
    };
    let mut request = ClaimRequest::new(worker, vec![task_type]);
    request.queues = vec![QueueName::default()];
    request.max = 10;
    loop {
        for task in engine.claim(&request).await.unwrap_or_default() {
            see(&seen, &task);
            if let Some(lease) = task.lease_id {
                // A failure leaves the task to another process.
                let _ = engine.complete(task.id, lease, None).await;
            }
        }
        runtime.sleep(LOOK).await;
    }
}

/// Records a task. Without jitter it was due at its tick, and a retry does not change the times of its creation.
fn see(seen: &Seen, task: &Task) {
    let tick = task
        .tags
        .iter()
        .any(|tag| tag.as_str() == "schedule:often")
        .then_some(first_due(task));
    if let Some(tick) = tick {
        let mut seen = lock(seen);
        seen.entry(tick)
            .or_default()
            .insert((task.id, task.created_at));
    }
}

/// The tick of a task: its id contains it, because a retry changes when the task is due.
fn first_due(task: &Task) -> Timestamp {
    let bits = task.id.as_uuid().as_u128();
    let millis = (bits >> 80) & ((1 << 44) - 1);
    Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}
