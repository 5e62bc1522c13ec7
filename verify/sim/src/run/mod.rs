//! One run of workers and clients: faults, recovery and checks.
//!
//! | phase | content |
//! | --- | --- |
//! | trouble | workers and clients run under the faults of the plan; processes that die restart |
//! | recovery | no faults; workers work and run maintenance until every task is finished, or until the limit |
//! | cleanup | all processes are gone; a day later one process cleans up, twice |
//! | checks | [`crate::check`] |

mod brokers;
mod lives;
mod recovery;
mod schedules;
mod storms;
mod turns;
mod verdict;

pub use schedules::schedules;
pub use turns::turns;

pub(crate) use self::verdict::excuse;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_check::{Breaches, Promise};
use qo_core::{DocumentId, DocumentKind, Json, QueueName, QueueSettings, TaskId};
use qo_engine::api::DocumentWrite;
use qo_store::client::ClientConfig;
use qo_store::runtime::RuntimeExt;

use crate::actor::Errands;
use crate::broker::{Hub, Wire};
use crate::check::Tally;
use crate::faults::{FaultKind, Struck, Trouble};
use crate::journal::Journal;
use crate::plan::Plan;
use crate::random::Random;
use crate::sched::panics;
use crate::sched::{HARNESS, ProcessId, Scheduler, SimRuntime, lock};
use crate::store::{Bucket, BucketSettings, Counts, Link};
use crate::subject::{Host, Running, Subject};
use crate::trace::Trace;

/// How long the limits and settings of a run are stored before anything is submitted.
const DOCUMENTS_SETTLE: Duration = Duration::from_secs(30);
/// The worker name of all brokers.
const BROKER: &str = "broker";
/// The first letter of the names of brokers.
const BROKER_SLOT: &str = "b";
/// How long the death of a broker affects every worker.
const VACANCY: Duration = Duration::from_mins(1);
/// How long a disturbance affects a worker after its end.
const AFTERMATH: Duration = Duration::from_secs(45);

/// The result of a run.
#[derive(Debug, Clone)]
pub struct RunOutcome {
    /// Its plan.
    pub plan: Plan,
    /// What is wrong.
    pub found: Breaches,
    /// Counts.
    pub tally: Tally,
    /// The injected faults.
    pub struck: Vec<Struck>,
    /// The number of deaths of processes.
    pub deaths: u64,
    /// The length of the run in virtual time, without the cleanup.
    pub lasted: Duration,
    /// The time from the end of the faults until every task was finished.
    pub recovery: Duration,
    /// The requests until then.
    pub requests: Counts,
    /// A hash of everything that is stored in the end.
    pub digest: u64,
    /// The trace, if it was kept.
    pub trace: Vec<String>,
}

/// One life of a process.
#[derive(Debug, Clone)]
struct Lived {
    process: ProcessId,
    worker: String,
    born: Duration,
    died: Option<Duration>,
}

/// The shared state of a run.
pub(crate) struct Stage {
    plan: Plan,
    scheduler: Scheduler,
    subject: Arc<dyn Subject>,
    bucket: Arc<Bucket>,
    trouble: Arc<Trouble>,
    journal: Arc<Journal>,
    errands: Arc<Mutex<Errands>>,
    hub: Arc<Hub>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    over: bool,
    /// When all processes were killed.
    over_at: Duration,
    lives: Vec<Lived>,
    life_numbers: u64,
    recovery: Duration,
    requests: Counts,
    unreadable: Vec<(TaskId, String)>,
    /// When engines that count the turns of groups were opened.
    new_rounds: Vec<u64>,
    found: Breaches,
}

/// Runs a plan.
pub fn run(plan: &Plan, subject: Arc<dyn Subject>, keeps_trace: bool) -> RunOutcome {
    panics::record();
    let stage = Stage::new(plan, subject, keeps_trace);
    let main = Arc::clone(&stage);
    let ended = stage
        .scheduler
        .run(Box::pin(async move { main.play().await }));
    let outcome = stage.judge(ended);
    stage.scheduler.finish();
    outcome
}

impl Stage {
    /// Prepares a run.
    pub(crate) fn new(plan: &Plan, subject: Arc<dyn Subject>, keeps_trace: bool) -> Arc<Self> {
        let mut plan = plan.without(|kind| !subject.endures(kind));
        if !subject.has_fleets() {
            plan = plan.without_fleet();
        }
        let scheduler = Scheduler::new(plan.seed, Trace::new(keeps_trace));
        let versions_max = plan.has(FaultKind::VersionLimit).then(|| {
            let versions = Random::of(&[plan.seed, 0x7e55]).between(40, 150);
            u32::try_from(versions).unwrap_or(u32::MAX)
        });
        let settings = BucketSettings {
            hashes_content: plan.has(FaultKind::HashTags),
            versions_max,
            unlimited_key: subject.unlimited_key(),
            keeps_versions: plan.keeps_versions,
        };
        let bucket = Arc::new(Bucket::new(&scheduler, settings));
        Arc::new(Self {
            hub: Arc::new(Hub::new(&bucket)),
            bucket,
            trouble: Arc::new(Trouble::new(&scheduler, &plan)),
            journal: Arc::new(Journal::new(&scheduler)),
            errands: Arc::new(Mutex::new(Errands {
                trouble: plan.trouble,
                left: plan.tasks,
                has_order: plan.has_order(),
                has_limits: !plan.task_limits().is_empty(),
                has_groups: plan.has_groups(),
                is_unique: plan.is_unique(),
                is_crowded: plan.is_crowded(),
                has_redrives: plan.has_redrives(),
                ..Errands::default()
            })),
            state: Mutex::default(),
            plan,
            subject,
            scheduler,
        })
    }

    pub(crate) fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Starts the engine in a process that runs alone, except for a broker where one is needed.
    pub(crate) async fn only_caller(self: &Arc<Self>, name: &str) -> Running {
        if self.subject.brokers() > 0 {
            self.start_broker("b0", "b0", 0);
            self.await_leader().await;
        }
        self.start_process(name, name, 0).2
    }

    async fn play(self: Arc<Self>) {
        self.trouble.begin_gateway();
        for number in 1..=self.subject.brokers() {
            self.spawn(Arc::clone(&self).lives_of_a_broker(number));
        }
        if self.subject.brokers() > 0 {
            self.spawn(Arc::clone(&self).watch_leader());
        }
        self.write_documents().await;
        for number in 1..=self.plan.workers {
            self.spawn(Arc::clone(&self).lives_of_a_worker(number));
        }
        for number in 1..=self.plan.clients {
            self.spawn(Arc::clone(&self).lives_of_a_client(number));
        }
        self.spawn(Arc::clone(&self).storms_of_the_store());
        self.scheduler.sleep(self.plan.trouble).await;
        self.calm_down();
        self.recover().await;
        self.tidy().await;
    }

    /// Writes the limits, the webhooks and the settings of the plan, before anything is submitted.
    async fn write_documents(&self) {
        let limits = self.plan.task_limits().into_iter();
        let limits = limits.filter_map(|(name, body)| {
            let (kind, name) = (DocumentKind::Limits, name.parse().ok()?);
            Some((DocumentId { kind, name }, body))
        });
        let webhooks = self.plan.webhooks().into_iter();
        let webhooks = webhooks.filter_map(|(name, body)| {
            let (kind, name) = (DocumentKind::Webhooks, name.parse().ok()?);
            Some((DocumentId { kind, name }, body))
        });
        let settings = (self.plan.queue_settings())
            .map(|body| (QueueSettings::document_id(&QueueName::default()), body));
        let documents: Vec<_> = limits.chain(webhooks).chain(settings).collect();
        if documents.is_empty() {
            return;
        }
        let (process, runtime, running) = self.start_process("limits", "operator", 0);
        self.scheduler.spare(process);
        for (id, body) in documents {
            let Ok(body) = Json::parse(body) else {
                continue;
            };
            let write = DocumentWrite::new(id, None, Some(body), runtime.new_op_id());
            while running.engine.write_document(write.clone()).await.is_err() {
                self.scheduler.sleep(Duration::from_secs(1)).await;
            }
        }
        self.scheduler.kill(process);
        // From now on no stale list hides them.
        self.scheduler.sleep(DOCUMENTS_SETTLE).await;
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.scheduler.spawn(HARNESS, Box::pin(future));
    }

    /// Starts the engine in a new process.
    fn start_process(
        &self,
        name: &str,
        worker: &str,
        clock_ahead_ms: i64,
    ) -> (ProcessId, Arc<SimRuntime>, Running) {
        let (process, runtime, seat) = self.begin_process(name, worker, clock_ahead_ms, false);
        // Without brokers, each worker counts turns by itself.
        if self.subject.brokers() == 0 && worker.starts_with('w') {
            self.begin_round();
        }
        (process, runtime, self.subject.start(&seat))
    }

    /// Starts a process, with connections to the store and to the brokers.
    fn begin_process(
        &self,
        name: &str,
        worker: &str,
        clock_ahead_ms: i64,
        has_client: bool,
    ) -> (ProcessId, Arc<SimRuntime>, Host) {
        let born = self.scheduler.elapsed();
        let number = {
            let mut state = lock(&self.state);
            state.life_numbers += 1;
            state.life_numbers
        };
        // The name decides the stream, not the number of earlier processes, so that a run can be shrunk.
        let stream = name
            .bytes()
            .fold(0, |sum: u64, byte| sum * 131 + u64::from(byte));
        let random = Random::of(&[self.plan.seed, 0x11fe, stream]);
        let process = self.scheduler.start_process(name, random, clock_ahead_ms);
        let runtime = SimRuntime::of(&self.scheduler, process);
        let clock = Arc::default();
        let link = Link::new(
            &self.scheduler,
            process,
            (name.to_owned(), stream),
            &self.bucket,
            &clock,
            &self.trouble,
            None,
        );
        let link = if has_client { link.with_client() } else { link };
        let life = (name.to_owned(), stream);
        let mut client = ClientConfig::default();
        client.trust_first_refusal = self.plan.trust_first_refusal;
        let seat = Host {
            retention: self.plan.retention,
            limits: self.plan.limits,
            wire: Wire::new(&self.scheduler, &self.trouble, &self.hub, process, life),
            objects: Arc::new(link),
            clock,
            runtime: Arc::clone(&runtime) as _,
            sweep_interval: Duration::from_secs(self.plan.sweep_seconds),
            client,
            keeps_versions: self.plan.keeps_versions,
        };
        lock(&self.state).lives.push(Lived {
            process,
            worker: worker.to_owned(),
            born,
            died: None,
        });
        self.scheduler
            .note(process, || format!("starts as process {number} of the run"));
        (process, runtime, seat)
    }

    /// Notes that an engine begins to count the turns of groups.
    fn begin_round(&self) {
        let tick = self.scheduler.tick();
        lock(&self.state).new_rounds.push(tick);
    }

    fn breach(&self, promise: Promise, what: String) {
        lock(&self.state).found.add(promise, what);
    }
}
