//! One run: prepare, trouble, rest, judge.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use qo_core::{Status, Task, Timestamp};
use qo_sim::check::{Found, Promise};
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_testkit::wait_until;

use crate::args::{Mode, Plan};
use crate::check::{Evidence, HandlerLog, check};
use crate::faults::Faults;
use crate::monkey::{Deeds, Monkey};
use crate::place::Place;
use crate::proxy::Seen;
use crate::report::Report;
use crate::tasks::Ledger;
use crate::{client, lock};

/// How many clients there are.
const CLIENTS: usize = 2;
/// How long the first process may take until it answers.
const START_LIMIT: Duration = Duration::from_mins(1);
/// How long it may take until all tasks have ended, once the trouble is over. Leases hold for six seconds, what was held back comes within
/// twelve, the sweeper goes round every ten, and the machine may be busy.
const REST_LIMIT: Duration = Duration::from_secs(150);
/// How often it is looked whether all tasks have ended.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(50);
/// How often a line says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// How the trouble ended.
struct Aftermath {
    /// The tasks in the end.
    tasks: Vec<Task>,
    begun: Timestamp,
    over: Timestamp,
    recovery: Duration,
}

/// Runs a plan, and says now and then how far it is.
pub fn run(plan: &Plan, say: &mut dyn FnMut(String)) -> Result<Report> {
    let faults = Faults::of(plan.seed);
    say(format!(
        "{}, seed {}: {}",
        plan.mode.name(),
        plan.seed,
        faults.describe()
    ));
    let place = Place::new(plan, &faults)?;
    let where_logs_are = || format!("the logs are in {}", place.folder.display());
    place.prepare().with_context(where_logs_are)?;
    let ledger = Mutex::new(Ledger::default());
    let mut monkey = Monkey::new(&place, plan.seed, faults.clone());
    let outcome = Stage {
        plan,
        place: &place,
        ledger: &ledger,
        runtime: &*TokioRuntime::shared(),
    }
    .play(&mut monkey, say);
    monkey.stop();
    let deeds = monkey.deeds();
    drop(monkey);
    let aftermath = outcome.with_context(where_logs_are)?;
    Ok(judge(
        plan,
        &faults,
        place,
        &deeds,
        &lock(&ledger),
        &aftermath,
    ))
}

struct Stage<'a> {
    plan: &'a Plan,
    place: &'a Place,
    ledger: &'a Mutex<Ledger>,
    runtime: &'a dyn Runtime,
}

impl Stage<'_> {
    fn play(&self, monkey: &mut Monkey<'_>, say: &mut dyn FnMut(String)) -> Result<Aftermath> {
        let place = self.place;
        monkey.start_brokers()?;
        if place.brokers() > 0 {
            // Of two that start at once one may give up, and is started again.
            let answers = || monkey.tick(false).is_ok() && place.tasks().is_ok();
            if !wait_until(START_LIMIT, answers) {
                bail!("no broker answers");
            }
        }
        monkey.start_workers()?;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (seed, stop) = (self.plan.seed, &stop);
                    scope.spawn(move || client::run(place, number, seed, self.ledger, stop))
                })
                .collect();
            let begun = self.runtime.now();
            let troubled = self.trouble(monkey, say);
            let over = self.runtime.now();
            // However it went, the clients must be told, or they never end.
            stop.store(true, Ordering::Release);
            troubled?;
            for client in clients {
                while !client.is_finished() {
                    monkey.tick(false)?;
                    thread::sleep(TICK);
                }
                client.join().map_err(|_| anyhow!("a client panicked"))??;
            }
            let (tasks, recovery) = self.rest(monkey, over)?;
            self.show(monkey, "at rest", say);
            Ok(Aftermath {
                tasks,
                begun,
                over,
                recovery,
            })
        })
    }

    /// Lets everything fail for the time of the plan.
    fn trouble(&self, monkey: &mut Monkey<'_>, say: &mut dyn FnMut(String)) -> Result<()> {
        self.place.ways().for_each(|way| way.trouble(true));
        let end = self.runtime.monotonic() + self.plan.trouble;
        let mut next_line = self.runtime.monotonic() + PROGRESS_EVERY;
        let mut outcome = Ok(());
        while self.runtime.monotonic() < end && outcome.is_ok() {
            outcome = monkey.tick(true);
            thread::sleep(TICK);
            if self.runtime.monotonic() >= next_line {
                next_line += PROGRESS_EVERY;
                let left = end.saturating_sub(self.runtime.monotonic()).as_secs();
                self.show(monkey, &format!("{left} s to go"), say);
            }
        }
        self.place.ways().for_each(|way| way.trouble(false));
        outcome?;
        monkey.calm()
    }

    /// Waits until every task has ended, or for as long as that may take.
    fn rest(&self, monkey: &mut Monkey<'_>, over: Timestamp) -> Result<(Vec<Task>, Duration)> {
        let limit = self.runtime.monotonic() + REST_LIMIT;
        let mut next_look = Duration::ZERO;
        let mut last: Result<Vec<Task>> = Err(anyhow!("nobody has looked"));
        while self.runtime.monotonic() < limit {
            monkey.tick(false)?;
            thread::sleep(TICK);
            if self.runtime.monotonic() < next_look {
                continue;
            }
            last = self.place.tasks();
            if let Ok(tasks) = &last
                && tasks.iter().all(|task| task.status.is_terminal())
            {
                break;
            }
            next_look = self.runtime.monotonic() + LOOK_EVERY;
        }
        let tasks = last.context("the queue cannot be listed although nothing fails any more")?;
        let ended = tasks.iter().filter_map(|task| task.completed_at).max();
        let recovery = ended.unwrap_or(over).since(over);
        Ok((tasks, recovery))
    }

    fn show(&self, monkey: &Monkey<'_>, what: &str, say: &mut dyn FnMut(String)) {
        let log = std::fs::read_to_string(self.place.handler_log()).unwrap_or_default();
        let ledger = lock(self.ledger);
        say(format!(
            "{}, seed {}: {what}: {} wishes, {} told, {} attempts, {} faults, {} blows",
            self.plan.mode.name(),
            self.plan.seed,
            ledger.wishes.len(),
            ledger.told.len(),
            HandlerLog::parse(&log).attempts(),
            struck(self.place),
            monkey.blows(),
        ));
    }
}

fn struck(place: &Place) -> u64 {
    let all = place.ways().flat_map(|way| way.struck().into_values());
    all.sum()
}

fn judge(
    plan: &Plan,
    faults: &Faults,
    place: Place,
    deeds: &Deeds,
    ledger: &Ledger,
    aftermath: &Aftermath,
) -> Report {
    let text = std::fs::read_to_string(place.handler_log()).unwrap_or_default();
    let log = HandlerLog::parse(&text);
    let (versions, disorder) = place.store.seen(Seen::versions);
    let visible = plan.mode != Mode::Slate;
    let mut found = check(&Evidence {
        ledger,
        tasks: &aftermath.tasks,
        log: &log,
        disturbances: &deeds.disturbances,
        trouble: faults
            .disturb_the_network()
            .then_some((aftermath.begun, aftermath.over)),
        versions: visible.then_some(&versions),
    });
    for what in disorder {
        found.add(Promise::Rules, what);
    }
    for name in &deeds.stubborn {
        found.add(
            Promise::Run,
            format!("{name} did not stop when it was told to"),
        );
    }
    let processes = deeds.processes + ledger.clients;
    check_budget(plan, &place, processes, aftermath, &mut found);
    let count = |status| {
        let tasks = aftermath.tasks.iter();
        tasks.filter(|task| task.status == status).count() as u64
    };
    let keep = plan.keep || !found.0.is_empty();
    let report = Report {
        plan: plan.clone(),
        faults: faults.describe(),
        tasks: aftermath.tasks.len() as u64,
        told: ledger.told.len() as u64,
        attempts: log.attempts(),
        ends: (count(Status::Completed), count(Status::Failed)),
        versions: if visible {
            versions
                .values()
                .map(|versions| versions.len() as u64)
                .sum()
        } else {
            0
        },
        requests: place.store.seen(|seen| seen.requests.values().sum()),
        struck: struck(&place),
        blows: deeds.blows.values().sum(),
        quitters: deeds.quitters,
        recovery: aftermath.recovery,
        folder: keep.then(|| place.folder.clone()),
        found,
    };
    place.remove(keep);
    report
}

/// Requests stay within what the work and the trouble explain. It is wide: what a task costs without faults is tested elsewhere, and here
/// only a process that asks without a pause is to be noticed.
fn check_budget(
    plan: &Plan,
    place: &Place,
    processes: u64,
    aftermath: &Aftermath,
    found: &mut Found,
) {
    let requests: u64 = place.store.seen(|seen| seen.requests.values().sum());
    let changes: u64 = aftermath.tasks.iter().map(|task| task.revision).sum();
    let seconds = plan.trouble.as_secs() + aftermath.recovery.as_secs() + START_LIMIT.as_secs();
    let allowed = match plan.mode {
        // A change, its index entries, its look and its repetition; each process polls, and finds its feet.
        Mode::Direct => changes * 10 + seconds * 40 + processes * 60 + struck(place) * 20,
        // A group is one write and a look; whoever lost the race looks again.
        Mode::Json => changes * 12 + seconds * 60 + processes * 20 + struck(place) * 20,
        // Groups are large; SlateDB polls and compacts by itself, and opening it costs some.
        Mode::Slate => changes * 4 + seconds * 40 + processes * 60 + struck(place) * 20,
    };
    if requests > allowed {
        let what = format!("{requests} requests, {allowed} are in the budget");
        found.add(Promise::Budget, what);
    }
}
