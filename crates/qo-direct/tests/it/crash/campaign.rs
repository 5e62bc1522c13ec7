//! Many processes under random faults, with random crashes and restarts, seed by seed.
//!
//! Each seed is a small runtime of its own: three workers and two submitters, whose requests are slow and fail in every way, and
//! who die and come back. When the faults stop, everything must come to its end and the promises must hold.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use qo_core::transition::FailureKind;
use qo_core::{Json, QueueName, RetryPolicy, Task, TaskId};
use qo_engine::Engine;
use qo_engine::api::{IdempotencyRequest, SubmitRequest, When, WorkerInfo};
use qo_store::runtime::{Runtime, RuntimeExt};
use qo_store::wrap::{Delay, FaultKind, FaultPlan, FaultRule};

use super::bucket::Bucket;
use super::checker::{self, Excuse, Step};
use super::journal::Journal;
use super::process::{Process, Setting};
use super::runtime::{TrueClock, VirtualRuntime};
use super::stage::{large, small};
use super::upkeep;

/// How long the faults last.
const TROUBLE: Duration = Duration::from_secs(100);
const SEEDS: u64 = 150;
/// How many different steps the checker knows.
const STEPS: usize = 14;
/// A purge follows no sooner: by then nothing of the task's creation is on its way.
const PURGE_AFTER: Duration = Duration::from_secs(30);

#[test]
fn seeds_even() {
    campaign(0);
}

#[test]
fn seeds_odd() {
    campaign(1);
}

/// Runs every second seed. With `QO_SEED` set, only that one; with `QO_SEEDS`, as many as it says.
fn campaign(parity: u64) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seeds: Vec<u64> = match number("QO_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("QO_SEEDS").unwrap_or(SEEDS)).collect(),
    };
    let mut failures = Vec::new();
    let mut total: BTreeMap<Step, usize> = BTreeMap::new();
    let seeds: Vec<u64> = seeds
        .into_iter()
        .filter(|seed| seed % 2 == parity)
        .collect();
    for seed in &seeds {
        match run(*seed) {
            Ok(steps) => {
                for (step, count) in steps {
                    *total.entry(step).or_default() += count;
                }
            }
            Err(wrong) => failures.push(format!("QO_SEED={seed}: {wrong}")),
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} seeds broke a promise:\n{}",
        failures.len(),
        seeds.len(),
        failures.join("\n")
    );
    println!("{} seeds: {total:?}", seeds.len());
    // A campaign in which something never happens proves nothing about it.
    if seeds.len() as u64 >= SEEDS / 2 {
        assert_eq!(total.len(), STEPS, "{total:?}");
    }
}

fn run(seed: u64) -> Result<BTreeMap<Step, usize>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let trouble = Trouble::new(seed);
        let roles = ["worker", "worker", "worker", "submitter", "submitter"];
        let lives = (0..).zip(roles);
        join_all(lives.map(|(slot, role)| trouble.lives(role, slot))).await;
        let Trouble {
            bucket, journal, ..
        } = &trouble;
        upkeep::drain(bucket, journal).await?;
        let reader = Process::start(bucket, journal, Setting::new("reader", seed));
        let wrong = checker::check(bucket, journal, &reader.engine, Excuse::Died).await;
        if wrong.is_empty() {
            Ok(checker::steps(bucket))
        } else {
            Err(wrong.join("; "))
        }
    })
}

/// One seed's runtime.
struct Trouble {
    bucket: Arc<Bucket>,
    journal: Journal,
    /// Where the choices of the test itself come from.
    dice: Arc<VirtualRuntime>,
    seed: u64,
    submitted: RefCell<Vec<(TaskId, Duration)>>,
}

impl Trouble {
    fn new(seed: u64) -> Self {
        let clock = TrueClock::start();
        Self {
            bucket: Bucket::shared(clock),
            journal: Journal::default(),
            dice: VirtualRuntime::shared(clock, seed, 0),
            seed,
            submitted: RefCell::default(),
        }
    }

    fn below(&self, bound: u64) -> u64 {
        self.dice.random_below(bound)
    }

    fn plan(&self) -> FaultPlan {
        let mut plan = FaultPlan::none();
        plan.late_apply_max = Duration::from_secs(1 + self.below(8));
        plan.stale_by = Duration::from_secs(1 + self.below(5));
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let rate = self.below(40) as f64 / 1_000.0;
        for kind in [
            FaultKind::LostRequest,
            FaultKind::LostResponse,
            FaultKind::LateApply,
            FaultKind::DuplicateApply,
            FaultKind::Conflict,
            FaultKind::ErrorAfterApply,
            FaultKind::StaleList,
            FaultKind::TornRead,
        ] {
            plan = plan.with(FaultRule::new(kind, rate));
        }
        plan.with(FaultRule::new(FaultKind::Unavailable, rate / 20.0))
    }

    /// One life after the other until the trouble is over, each ended in the middle of whatever it is doing.
    async fn lives(&self, role: &str, slot: u64) {
        let mut life = 0;
        while self.bucket.clock().elapsed() < TROUBLE {
            life += 1;
            let setting = Setting {
                skew_ms: i64::try_from(self.below(120_000)).unwrap() - 60_000,
                delay: Some(Delay::Uniform {
                    low: Duration::from_millis(1),
                    high: Duration::from_millis(1 + self.below(200)),
                }),
                ..Setting::new(
                    format!("{role}-{slot}-{life}"),
                    self.seed * 1_000 + slot * 100 + life,
                )
            };
            let process = Process::start(&self.bucket, &self.journal, setting);
            process.faults.set_plan(self.plan());
            let left = TROUBLE.saturating_sub(self.bucket.clock().elapsed());
            let lifetime = Duration::from_millis(5_000 + self.below(60_000)).min(left);
            tokio::select! {
                biased;
                () = self.dice.sleep(lifetime) => {}
                () = self.live(role, &process) => {}
            }
            process.kill();
            drop(process);
            self.dice
                .sleep(Duration::from_millis(self.below(8_000)))
                .await;
        }
    }

    async fn live(&self, role: &str, process: &Process) {
        if role == "submitter" {
            loop {
                self.operate(process).await;
                self.dice
                    .sleep(Duration::from_millis(self.below(4_000)))
                    .await;
            }
        }
        // What goes wrong is told to the journal; a worker goes on.
        let info = WorkerInfo::new(process.name.parse().unwrap(), process.engine.now());
        let _ = process.engine.heartbeat(&info).await;
        let work = async {
            loop {
                self.work(process).await;
            }
        };
        let watch = async {
            loop {
                let _ = upkeep::check_leases(process).await;
                let _ = upkeep::sweep_pass(process).await;
                process.sleep(15 + self.below(20)).await;
            }
        };
        futures_util::future::join(work, watch).await;
    }

    /// Takes a few tasks and does something with each.
    async fn work(&self, process: &Process) {
        let claim = process.claim(3, 5_000);
        // Sometimes nobody waits for the answer.
        let patience = Duration::from_millis(if self.below(10) == 0 { 100 } else { 60_000 });
        let tasks = tokio::select! {
            biased;
            tasks = claim => tasks.unwrap_or_default(),
            () = self.dice.sleep(patience) => Vec::new(),
        };
        if tasks.is_empty() {
            process.sleep(1).await;
        }
        join_all(tasks.iter().map(|task| self.handle(process, task))).await;
    }

    async fn handle(&self, process: &Process, task: &Task) {
        self.dice
            .sleep(Duration::from_millis(self.below(2_000)))
            .await;
        match self.below(12) {
            0 => drop(process.fail(task, FailureKind::Retryable).await),
            1 => drop(process.fail(task, FailureKind::Permanent).await),
            2 => drop(process.release(task).await),
            3 => drop(process.snooze(task, self.below(9_000)).await),
            4 => drop(process.complete(task, large("out")).await),
            5 => {
                for _ in 0..3 {
                    process.sleep(10).await;
                    if process.renew(task).await.is_err() {
                        return;
                    }
                }
                drop(process.complete(task, small()).await);
            }
            6 => {
                // It stalls for longer than its lease, and wakes up as a zombie.
                process.sleep(35 + self.below(10)).await;
                drop(process.complete(task, small()).await);
            }
            7 => {
                let _ = process.progress(task).await;
                drop(process.complete(task, small()).await);
            }
            _ => {
                // A caller that is told that nobody knows asks again.
                for _ in 0..3 {
                    match process.complete(task, small()).await {
                        Err(error) if !error.is_lease_lost() => {}
                        _ => return,
                    }
                }
            }
        }
    }

    /// Submits, or does something to a task that was submitted before.
    async fn operate(&self, process: &Process) {
        let known = {
            let submitted = self.submitted.borrow();
            let count = submitted.len() as u64;
            let index = usize::try_from(self.below(count)).unwrap();
            submitted.get(index).copied()
        };
        match (self.below(10), known) {
            (0, Some((id, _))) => drop(process.cancel(id).await),
            (1, Some((id, _))) => drop(process.replay(id).await),
            (2, Some((id, _))) => drop(process.archive(id).await),
            (3, Some((id, _))) => drop(process.unarchive(id).await),
            (4, Some((id, at))) if self.bucket.clock().elapsed() > at + PURGE_AFTER => {
                drop(process.purge(id).await);
            }
            (5, _) => {
                let queue = QueueName::default();
                let _ = process.engine.pause(&queue).await;
                process.sleep(self.below(5)).await;
                let _ = process.engine.resume(&queue).await;
            }
            _ => self.submit(process).await,
        }
    }

    async fn submit(&self, process: &Process) {
        let mut request = SubmitRequest::new("job".parse().unwrap(), Json::null());
        let id = self.dice.new_task_id();
        request.id = Some(id);
        request.max_retries = u32::try_from(self.below(4)).unwrap();
        request.priority = u8::try_from(self.below(10)).unwrap();
        request.retry_policy = RetryPolicy {
            initial_interval_ms: 200,
            max_interval_ms: 5_000,
            ..RetryPolicy::default()
        };
        match self.below(8) {
            0 => request.input = large("in"),
            1 => request.available = When::InMillis(self.below(20_000)),
            2 => request.expires = Some(When::InMillis(1 + self.below(20_000))),
            3 | 4 => {
                request.idempotency = Some(IdempotencyRequest {
                    key: format!("key-{}", self.below(4)).parse().unwrap(),
                    scope: qo_core::task::IdempotencyScope::Global,
                    window_ms: None,
                });
            }
            _ => {}
        }
        if process.submit(request.clone()).await.is_err() {
            // A caller that is told that nobody knows asks again.
            let _ = process.submit(request).await;
        }
        let at = self.bucket.clock().elapsed();
        self.submitted.borrow_mut().push((id, at));
    }
}
