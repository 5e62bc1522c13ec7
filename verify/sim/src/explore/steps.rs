//! Every order in which the store can serve the requests of two workers and a monitor, up to a depth.
//!
//! The workers claim and complete two tasks. At each point the search chooses what happens next: one of the requests that wait is served,
//! or, once, a [mishap](Mishap). Where the same has been stored and every process has seen the same, what
//! follows is the same, so that such a state is followed once. A process decides by what it has seen alone: its randomness and its clock are
//! parts of that.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qo_check::{Excuse, Promise};
use qo_core::{Json, TaskId};
use qo_engine::api::{ClaimRequest, SubmitRequest};
use qo_store::client::ClientConfig;

use crate::actor::{Caller, TYPES};
use crate::broker::Wire;
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

/// Past every lease, its margin, and the minute in which it is looked for.
const JUMP: Duration = Duration::from_mins(2);
/// After the last choice, everything must come to its end within so many rounds of ten seconds.
const ROUNDS_MAX: u32 = 60;
/// A process that goes on for longer than this many choices never ends.
const CHOICES_MAX: usize = 2_000;

/// What goes wrong, once, anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// A worker dies; the leases run out when the other has nothing left to do.
    Death,
    /// The leases run out while both workers are alive, and a monitor begins to look: whoever is late then is a zombie.
    Zombie,
}

/// How much to try.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// What goes wrong.
    pub mishap: Mishap,
    /// How many requests are served in the order in which they come, before anything is chosen.
    pub skip: usize,
    /// How many choices are tried in every way after that; then requests are served in the order in which they come.
    pub depth: usize,
    /// How many runs there may be.
    pub runs_max: u64,
}

/// What was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Explored {
    /// Different states at which something was chosen.
    pub states: u64,
    /// Runs that went to their end and were judged.
    pub runs: u64,
    /// Runs that came to a state that another had been at.
    pub joined: u64,
    /// Whether every order within the depth was tried.
    pub complete: bool,
}

/// What can happen next.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    Serve(u64),
    Die,
    Jump,
}

/// Tries every order. The first thing that is wrong comes back with the choices that lead to it and the trace.
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
    /// Another run has been here.
    Joined,
    /// It went to its end, and this is wrong.
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
            ..Plan::of(0)
        };
        let settings = BucketSettings {
            // Equal bytes have equal tags, so that equal states can be told.
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
        let running = self.subject.start(&Host {
            // Brokers are not explored.
            wire: Wire::new(
                &self.scheduler,
                &self.trouble,
                &Arc::default(),
                process,
                life,
            ),
            objects: Arc::new(link),
            clock,
            runtime: Arc::clone(&runtime) as _,
            sweep_interval: Duration::from_mins(5),
            client: ClientConfig::default(),
            keeps_versions: false,
        });
        let caller = Caller::new(
            process,
            name.parse().map_err(|_| "a bad name".to_owned())?,
            &running.engine,
            runtime,
            &self.journal,
            Random::of(&[stream, 1]),
        );
        Ok((process, Arc::new(caller), running))
    }

    /// Plays the given choices, and the first one wherever there are none left.
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
            let mut options: Vec<Next> = waiting
                .iter()
                .map(|(number, ..)| Next::Serve(*number))
                .collect();
            if options.is_empty() {
                // Everybody waits for time to pass, or is through.
                if self.are_through() {
                    break;
                }
                self.scheduler.advance().map_err(told)?;
                continue;
            }
            // The workers differ by their names alone, so that one of them is enough to die.
            match self.mishap {
                Mishap::Zombie if !jumped => options.push(Next::Jump),
                Mishap::Death if !died && self.scheduler.is_alive(self.workers[0]) => {
                    options.push(Next::Die);
                }
                _ => {}
            }
            let choice = self.taken.len();
            if choice >= CHOICES_MAX {
                return Err(format!("a run never ends: {:?}", self.taken));
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
                // Whatever it is told is in the journal.
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

    /// The leases run out, and a monitor begins to look at them.
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
                // What it cannot do now is done by the next one.
                let _ = (running.expire)().await;
                running.engine.close().await;
                scheduler.kill(process);
            }),
        );
        Ok(())
    }

    /// Brings everything to its end without any more choices, and judges.
    fn finish(&mut self) -> Result<End, String> {
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
            faults: 1,
        });
        // A run of some seconds says nothing about the budget of hours, or about what is tidied after a day.
        found
            .0
            .retain(|(promise, _)| !matches!(promise, Promise::Budget | Promise::LeftOver));
        if !*crate::sched::lock(&done) {
            let text = "the tasks did not come to their end".to_owned();
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

/// Claims and completes until there is nothing left, and ends its process.
async fn work(caller: Arc<Caller>, running: Running, scheduler: Scheduler) {
    let Ok(task_type) = TYPES[0].parse() else {
        return;
    };
    let request = ClaimRequest::new(caller.worker.clone(), vec![task_type]);
    for _ in 0..2 {
        let claimed = caller.engine.claim(&request).await.unwrap_or_default();
        for task in claimed {
            // Whatever it is told is in the journal.
            let _ = caller.complete(&task, Json::null()).await;
        }
    }
    running.engine.close().await;
    scheduler.kill(caller.process);
}

fn told(stuck: Stuck) -> String {
    format!("the run cannot go on: {stuck:?}")
}
