//! Every order in which the store can serve the requests of two workers and a monitor, up to a depth.
//!
//! The workers claim and complete two tasks. At each point the search chooses the next step: it serves one of the waiting requests
//! or, once per run, causes a [mishap](Mishap). A process decides only by the responses that it received, its clock and its randomness.
//! If two runs reach the same stored objects and the same responses, their continuations are equal, so the search follows only one of them.
//!
//! Some requests are served as soon as they arrive, because their place among the others changes nothing: hints, which change no task, and
//! reads of objects that nobody writes in these runs ([`Mishap::constant`]). Everything that can differ is still tried, with fewer choices.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_check::{Excuse, Promise};
use qo_core::keys::{CLAIMS_KEY, LATER_PREFIX, QUEUES_KEY, ROSTER_KEY, SIGNAL_KEY, WORKERS_PREFIX};
use qo_core::{Json, TaskId};
use qo_engine::api::{ClaimRequest, SubmitRequest};
use qo_store::client::ClientConfig;

use crate::actor::{Caller, TYPES};
use crate::broker::{Hub, Wire};
use crate::check::{self, Evidence};
use crate::faults::Trouble;
use crate::journal::Journal;
use crate::plan::Plan;
use crate::random::Random;
use crate::run::excuse;
use crate::sched::{ProcessId, Scheduler, SimRuntime, Stuck};
use crate::store::{Bucket, BucketSettings, Gate, Link};
use crate::subject::{Host, Running, Subject};
use crate::trace::Trace;

/// Longer than every lease, its margin, and the minute in its index key.
const JUMP: Duration = Duration::from_mins(2);
/// The maximum number of rounds of ten seconds after the last choice until every task is finished.
const ROUNDS_MAX: u32 = 60;
/// A run with more choices than this is considered endless.
const CHOICES_MAX: usize = 2_000;

/// The documents of all kinds.
const DOCUMENTS: &str = "meta/settings";

/// The one fault of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// A worker dies. The leases expire when the other worker has nothing left to do.
    Death,
    /// The leases expire while both workers are alive, and a monitor starts. A worker that is late becomes a zombie.
    Zombie,
}

/// The extent of a search.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// The fault.
    pub mishap: Mishap,
    /// The number of requests that are served in arrival order before the first choice.
    pub skip: usize,
    /// The number of choices whose alternatives are all tried. Later requests are served in arrival order.
    pub depth: usize,
    /// The maximum number of runs.
    pub runs_max: u64,
}

/// The result of a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Explored {
    /// The number of distinct states with a choice.
    pub states: u64,
    /// The number of runs that were completed and checked.
    pub runs: u64,
    /// The number of runs that reached a known state.
    pub joined: u64,
    /// Whether every order within the depth was tried.
    pub complete: bool,
}

/// A possible next step.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    Serve(u64),
    Die,
    Jump,
}

impl Mishap {
    /// Objects that nobody writes while there are choices: no worker registers, no queue is paused, there are no limits, webhooks or settings,
    /// and only a monitor schedules a retry.
    /// A read of them commutes with every other request. [`Play::finish`] checks that they were not written.
    fn constant(self) -> &'static [&'static str] {
        match self {
            Self::Death => &[
                WORKERS_PREFIX,
                ROSTER_KEY,
                QUEUES_KEY,
                DOCUMENTS,
                LATER_PREFIX,
            ],
            Self::Zombie => &[WORKERS_PREFIX, ROSTER_KEY, QUEUES_KEY, DOCUMENTS],
        }
    }
}

/// Whether the place of a request among the others changes nothing.
fn is_no_choice(request: &str, constant: &[&str]) -> bool {
    let is_hint = [SIGNAL_KEY, CLAIMS_KEY]
        .iter()
        .any(|key| request.contains(key));
    let mut words = request.split(' ');
    let is_read = matches!(words.next(), Some("GET" | "LIST"));
    let target = words.next().unwrap_or_default();
    let is_constant = constant.iter().any(|key| {
        let rest = target.strip_prefix(key);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    is_hint || (is_read && is_constant)
}

/// Tries every order. Returns the first violation with the choices that lead to it and the trace.
pub fn explore(subject: &Arc<dyn Subject>, scope: Scope) -> Result<Explored, String> {
    let mut explored = Explored {
        complete: true,
        ..Explored::default()
    };
    let mut seen = BTreeSet::new();
    let mut open: Vec<Vec<usize>> = vec![Vec::new()];
    while let Some(path) = open.pop() {
        if explored.runs + explored.joined >= scope.runs_max {
            explored.complete = false;
            break;
        }
        let mut play = Play::new(subject, scope.mishap, false);
        match play.go(&path, scope, &mut seen, &mut open, &mut explored)? {
            End::Joined => explored.joined += 1,
            End::Judged(wrong) if wrong.is_empty() => explored.runs += 1,
            End::Judged(wrong) => {
                let mut again = Play::new(subject, scope.mishap, true);
                let mut nothing_seen = BTreeSet::new();
                let mut ignored = Explored::default();
                let taken = play.taken.clone();
                let nothing = Scope { depth: 0, ..scope };
                again.go(
                    &taken,
                    nothing,
                    &mut nothing_seen,
                    &mut Vec::new(),
                    &mut ignored,
                )?;
                let trace = again.scheduler.take_trace().join("\n");
                return Err(format!(
                    "{}after the choices {taken:?}:\n{trace}",
                    wrong.join("\n")
                ));
            }
        }
    }
    Ok(explored)
}

enum End {
    /// Another run has already reached this state.
    Joined,
    /// The run is complete, with these violations.
    Judged(Vec<String>),
}

/// One run.
struct Play {
    scheduler: Scheduler,
    subject: Arc<dyn Subject>,
    bucket: Arc<Bucket>,
    trouble: Arc<Trouble>,
    journal: Arc<Journal>,
    gate: Arc<Gate>,
    plan: Plan,
    mishap: Mishap,
    workers: Vec<ProcessId>,
    excuses: Vec<Excuse>,
    taken: Vec<usize>,
}

impl Play {
    fn new(subject: &Arc<dyn Subject>, mishap: Mishap, keeps_trace: bool) -> Self {
        let scheduler = Scheduler::new(0, Trace::new(keeps_trace));
        let plan = Plan {
            faults: [].into(),
            latency_us: (0, 0),
            gateways_ahead_ms: Vec::new(),
            ..Plan::of(0)
        };
        let settings = BucketSettings {
            // Equal bytes have equal tags, so that equal states are recognised.
            hashes_content: true,
            ..BucketSettings::default()
        };
        Self {
            bucket: Arc::new(Bucket::new(&scheduler, settings)),
            trouble: Arc::new(Trouble::new(&scheduler, &plan)),
            journal: Arc::new(Journal::new(&scheduler)),
            gate: Arc::default(),
            subject: Arc::clone(subject),
            workers: Vec::new(),
            excuses: Vec::new(),
            taken: Vec::new(),
            plan,
            mishap,
            scheduler,
        }
    }

    fn start(&self, name: &str, gated: bool) -> Result<(ProcessId, Arc<Caller>, Running), String> {
        let stream = name
            .bytes()
            .fold(0, |sum: u64, byte| sum * 131 + u64::from(byte));
        let random = Random::of(&[stream]);
        let process = self.scheduler.start_process(name, random, 0);
        let runtime = SimRuntime::of(&self.scheduler, process);
        let clock = Arc::default();
        let link = Link::new(
            &self.scheduler,
            process,
            (name.to_owned(), stream),
            &self.bucket,
            &clock,
            &self.trouble,
            gated.then(|| Arc::clone(&self.gate)),
        );
        let life = (name.to_owned(), 0);
        let hub = Arc::new(Hub::new(&self.bucket));
        let running = self.subject.start(&Host {
            retention: None,
            limits: None,
            // Brokers are not explored.
            wire: Wire::new(&self.scheduler, &self.trouble, &hub, process, life),
            objects: Arc::new(link),
            clock,
            runtime: Arc::clone(&runtime) as _,
            sweep_interval: Duration::from_mins(5),
            client: ClientConfig::default(),
            keeps_versions: false,
        });
        let caller = Caller::new(
            process,
            name.parse().map_err(|_| "invalid name".to_owned())?,
            &running.engine,
            runtime,
            &self.journal,
            Random::of(&[stream, 1]),
        );
        Ok((process, Arc::new(caller), running))
    }

    /// Follows the given choices, and takes the first option after them.
    fn go(
        &mut self,
        path: &[usize],
        scope: Scope,
        seen: &mut BTreeSet<u64>,
        open: &mut Vec<Vec<usize>>,
        explored: &mut Explored,
    ) -> Result<End, String> {
        self.submit_two()?;
        for name in ["one", "two"] {
            let (process, caller, running) = self.start(name, true)?;
            self.workers.push(process);
            let work = work(caller, running, self.scheduler.clone());
            self.scheduler.spawn(process, Box::pin(work));
        }
        let (mut died, mut jumped) = (false, false);
        loop {
            self.scheduler.settle().map_err(told)?;
            let waiting = self.gate.waiting();
            let constant = self.mishap.constant();
            let mut waits = waiting.iter();
            if let Some((number, ..)) = waits.find(|(.., request)| is_no_choice(request, constant))
            {
                self.gate.open(*number);
                continue;
            }
            let mut options: Vec<Next> = waiting
                .iter()
                .map(|(number, ..)| Next::Serve(*number))
                .collect();
            if options.is_empty() {
                // Every process waits for time to pass or has ended.
                if self.are_through() {
                    break;
                }
                self.scheduler.advance().map_err(told)?;
                continue;
            }
            // The workers differ only in their names, so it is enough that one of them dies.
            match self.mishap {
                Mishap::Zombie if !jumped => options.push(Next::Jump),
                Mishap::Death if !died && self.scheduler.is_alive(self.workers[0]) => {
                    options.push(Next::Die);
                }
                _ => {}
            }
            let choice = self.taken.len();
            if choice >= CHOICES_MAX {
                return Err(format!("the run does not end: {:?}", self.taken));
            }
            let chosen = path.get(choice).copied().unwrap_or_default();
            let is_open = choice >= scope.skip && choice < scope.skip + scope.depth;
            if choice >= path.len() && is_open {
                let mut hasher = DefaultHasher::new();
                (self.bucket.digest(), self.gate.digest(), died, jumped).hash(&mut hasher);
                self.scheduler.elapsed().hash(&mut hasher);
                if !seen.insert(hasher.finish()) {
                    return Ok(End::Joined);
                }
                explored.states += 1;
                for other in 1..options.len() {
                    let mut branch = self.taken.clone();
                    branch.push(other);
                    open.push(branch);
                }
            }
            self.taken.push(chosen);
            match options.get(chosen) {
                Some(Next::Serve(number)) => self.gate.open(*number),
                Some(Next::Die) => {
                    died = true;
                    self.die();
                }
                Some(Next::Jump) => {
                    jumped = true;
                    self.jump()?;
                }
                None => {
                    return Err(format!(
                        "there is no choice {chosen} after {:?}",
                        self.taken
                    ));
                }
            }
        }
        self.finish()
    }

    fn submit_two(&self) -> Result<(), String> {
        let (process, caller, _running) = self.start("client", false)?;
        let submits = async move {
            for number in 1..=2 {
                let Ok(task_type) = TYPES[0].parse() else {
                    return;
                };
                let mut request = SubmitRequest::new(task_type, Json::null());
                request.id = Some(TaskId::from_random(number));
                // The journal has the result.
                let _ = caller.submit(request).await;
            }
        };
        self.scheduler.run(Box::pin(submits)).map_err(told)?;
        self.scheduler.kill(process);
        Ok(())
    }

    fn are_through(&self) -> bool {
        !self
            .workers
            .iter()
            .any(|process| self.scheduler.is_alive(*process))
    }

    fn die(&mut self) {
        let now = self.scheduler.elapsed();
        self.scheduler.kill(self.workers[0]);
        self.excuses.push(excuse(Some("one".to_owned()), now, now));
    }

    /// The leases expire, and a monitor starts.
    fn jump(&mut self) -> Result<(), String> {
        let now = self.scheduler.elapsed();
        self.excuses.push(excuse(None, now, now + JUMP));
        self.scheduler.leap(JUMP);
        let (process, _, running) = self.start("monitor", true)?;
        self.workers.push(process);
        let scheduler = self.scheduler.clone();
        self.scheduler.spawn(
            process,
            Box::pin(async move {
                // The next monitor retries a failure.
                let _ = (running.expire)().await;
                running.engine.close().await;
                scheduler.kill(process);
            }),
        );
        Ok(())
    }

    /// Finishes every task without further choices, and checks the run.
    fn finish(&mut self) -> Result<End, String> {
        for constant in self.mishap.constant() {
            if !self.bucket.history(constant).is_empty() {
                return Err(format!("{constant} was written, so its reads are choices"));
            }
        }
        let (_, caller, running) = self.start("last", false)?;
        let (subject, bucket) = (Arc::clone(&self.subject), Arc::clone(&self.bucket));
        let requests = self.bucket.counts();
        let done: Arc<Mutex<bool>> = Arc::default();
        let is_done = Arc::clone(&done);
        let drain = async move {
            for _ in 0..ROUNDS_MAX {
                let tidied = (running.tidy)().await;
                for task in caller.claim(10, 0).await.unwrap_or_default() {
                    let _ = caller.complete(&task, Json::null()).await;
                }
                let unfinished = subject.records(&bucket).into_values().any(|written| {
                    let body = written.last().and_then(|written| written.body.clone());
                    let task = body.and_then(|body| qo_core::task::decode(&body).ok());
                    task.is_some_and(|task| !task.status.is_terminal())
                });
                if !unfinished && tidied.is_ok() {
                    *crate::sched::lock(&is_done) = true;
                    break;
                }
                caller.sleep(Duration::from_secs(10)).await;
            }
            running.engine.close().await;
        };
        self.scheduler.run(Box::pin(drain)).map_err(told)?;
        let (mut found, _) = check::check(&Evidence {
            plan: &self.plan,
            subject: self.subject.as_ref(),
            bucket: &self.bucket,
            calls: &self.journal.calls(),
            excuses: &self.excuses,
            unreadable: &[],
            requests: &requests,
            process_time: self.scheduler.elapsed(),
            new_rounds: &[],
            faults: 1,
        });
        // A run of seconds is too short to check the request budget of hours, or objects that are deleted after a day.
        found
            .0
            .retain(|(promise, _)| !matches!(promise, Promise::Budget | Promise::LeftOver));
        if !*crate::sched::lock(&done) {
            let text = "some tasks did not finish".to_owned();
            found.add(Promise::Ends, text);
        }
        let wrong = found.0.into_iter();
        Ok(End::Judged(
            wrong
                .map(|(promise, what)| format!("{promise}: {what}\n"))
                .collect(),
        ))
    }
}

impl Drop for Play {
    fn drop(&mut self) {
        self.scheduler.finish();
    }
}

/// Claims and completes tasks until none are left, and ends its process.
async fn work(caller: Arc<Caller>, running: Running, scheduler: Scheduler) {
    let Ok(task_type) = TYPES[0].parse() else {
        return;
    };
    let request = ClaimRequest::new(caller.worker.clone(), vec![task_type]);
    for _ in 0..2 {
        let claimed = caller.engine.claim(&request).await.unwrap_or_default();
        for task in claimed {
            // The journal has the result.
            let _ = caller.complete(&task, Json::null()).await;
        }
    }
    running.engine.close().await;
    scheduler.kill(caller.process);
}

fn told(stuck: Stuck) -> String {
    format!("the run is stuck: {stuck:?}")
}
