//! One run: preparation, trouble, recovery and checks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use qo_check::{Breaches, Promise};
use qo_core::{Status, Task, Timestamp};
use qo_store::runtime::{Runtime, TokioRuntime};
use qo_testkit::wait_until;

use crate::args::{Mode, Plan};
use crate::check::{Evidence, HandlerLog, check};
use crate::faults::Faults;
use crate::monkey::{Monkey, MonkeyReport};
use crate::proxy::Observed;
use crate::report::Report;
use crate::site::Site;
use crate::tasks::Ledger;
use crate::{client, lock};

/// The number of clients.
const CLIENTS: usize = 2;
/// How long the first broker may take to respond.
const START_LIMIT: Duration = Duration::from_mins(1);
/// How long all tasks may take to finish after the trouble. Leases last six seconds, delayed requests arrive within twelve, the sweeper runs
/// every ten, and the machine may be busy.
const REST_LIMIT: Duration = Duration::from_secs(150);
/// How often the tasks are polled.
const POLL_EVERY: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(50);
/// How often a line reports progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// The state after the trouble.
struct Aftermath {
    /// The final tasks.
    tasks: Vec<Task>,
    begun: Timestamp,
    over: Timestamp,
    recovery: Duration,
}

/// Runs a plan, and reports progress.
pub fn run(plan: &Plan, say: &mut dyn FnMut(String)) -> Result<Report> {
    let faults = Faults::of(plan.seed);
    say(format!(
        "{}, seed {}: {}",
        plan.mode.name(),
        plan.seed,
        faults.describe()
    ));
    let site = Site::new(plan, &faults)?;
    let logs_are_in = || format!("the logs are in {}", site.folder.display());
    site.prepare().with_context(logs_are_in)?;
    let ledger = Mutex::new(Ledger::default());
    let mut monkey = Monkey::new(&site, plan.seed, faults.clone());
    let aftermath = Run {
        plan,
        site: &site,
        ledger: &ledger,
        runtime: &*TokioRuntime::shared(),
    }
    .play(&mut monkey, say);
    monkey.stop();
    let monkey_report = monkey.report();
    drop(monkey);
    let aftermath = aftermath.with_context(logs_are_in)?;
    Ok(conclude(
        plan,
        &faults,
        site,
        &monkey_report,
        &lock(&ledger),
        &aftermath,
    ))
}

struct Run<'a> {
    plan: &'a Plan,
    site: &'a Site,
    ledger: &'a Mutex<Ledger>,
    runtime: &'a dyn Runtime,
}

impl Run<'_> {
    fn play(&self, monkey: &mut Monkey<'_>, say: &mut dyn FnMut(String)) -> Result<Aftermath> {
        let site = self.site;
        monkey.start_brokers()?;
        if site.brokers() > 0 {
            // Of two that start at once, one may give up and be restarted.
            let responds = || monkey.tick(false).is_ok() && site.tasks().is_ok();
            if !wait_until(START_LIMIT, responds) {
                bail!("no broker responds");
            }
        }
        monkey.start_workers()?;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (seed, stop) = (self.plan.seed, &stop);
                    scope.spawn(move || client::run(site, number, seed, self.ledger, stop))
                })
                .collect();
            let begun = self.runtime.now();
            let troubled = self.trouble(monkey, say);
            let over = self.runtime.now();
            // Whatever happened, the clients have to stop.
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

    /// Injects faults for the time of the plan.
    fn trouble(&self, monkey: &mut Monkey<'_>, say: &mut dyn FnMut(String)) -> Result<()> {
        self.site.proxies().for_each(|proxy| proxy.trouble(true));
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
        self.site.proxies().for_each(|proxy| proxy.trouble(false));
        outcome?;
        monkey.calm()
    }

    /// Waits until every task is finished, or until the limit.
    fn rest(&self, monkey: &mut Monkey<'_>, over: Timestamp) -> Result<(Vec<Task>, Duration)> {
        let limit = self.runtime.monotonic() + REST_LIMIT;
        let mut next_poll = Duration::ZERO;
        let mut last: Result<Vec<Task>> = Err(anyhow!("the queue was never listed"));
        while self.runtime.monotonic() < limit {
            monkey.tick(false)?;
            thread::sleep(TICK);
            if self.runtime.monotonic() < next_poll {
                continue;
            }
            last = self.site.tasks();
            if let Ok(tasks) = &last
                && tasks.iter().all(|task| task.status.is_terminal())
            {
                break;
            }
            next_poll = self.runtime.monotonic() + POLL_EVERY;
        }
        let tasks = last.context("the queue cannot be listed after the trouble")?;
        let ended = tasks.iter().filter_map(|task| task.completed_at).max();
        let recovery = ended.unwrap_or(over).since(over);
        Ok((tasks, recovery))
    }

    fn show(&self, monkey: &Monkey<'_>, what: &str, say: &mut dyn FnMut(String)) {
        let log = std::fs::read_to_string(self.site.handler_log()).unwrap_or_default();
        let ledger = lock(self.ledger);
        say(format!(
            "{}, seed {}: {what}: {} submissions, {} acknowledgements, {} attempts, {} network faults, {} process faults",
            self.plan.mode.name(),
            self.plan.seed,
            ledger.specs.len(),
            ledger.acknowledged.len(),
            HandlerLog::parse(&log).attempts(),
            injected(self.site),
            monkey.injected(),
        ));
    }
}

fn injected(site: &Site) -> u64 {
    let all = site
        .proxies()
        .flat_map(|proxy| proxy.injected().into_values());
    all.sum()
}

fn conclude(
    plan: &Plan,
    faults: &Faults,
    site: Site,
    monkey: &MonkeyReport,
    ledger: &Ledger,
    aftermath: &Aftermath,
) -> Report {
    let text = std::fs::read_to_string(site.handler_log()).unwrap_or_default();
    let log = HandlerLog::parse(&text);
    let (versions, disorder) = site.store.observed(Observed::versions);
    let is_visible = plan.mode != Mode::Slate;
    let mut breaches = check(&Evidence {
        ledger,
        tasks: &aftermath.tasks,
        log: &log,
        disturbances: &monkey.disturbances,
        trouble: faults
            .disturb_the_network()
            .then_some((aftermath.begun, aftermath.over)),
        versions: is_visible.then_some(&versions),
    });
    for error in disorder {
        breaches.add(Promise::Rules, error);
    }
    for name in &monkey.unresponsive {
        let text = format!("{name} did not stop on SIGTERM");
        breaches.add(Promise::Run, text);
    }
    let processes = monkey.processes + ledger.clients;
    check_budget(plan, &site, processes, aftermath, &mut breaches);
    let count = |status| {
        let tasks = aftermath.tasks.iter();
        tasks.filter(|task| task.status == status).count() as u64
    };
    let keep = plan.keep || !breaches.is_empty();
    let report = Report {
        plan: plan.clone(),
        faults: faults.describe(),
        tasks: aftermath.tasks.len() as u64,
        acknowledged: ledger.acknowledged.len() as u64,
        attempts: log.attempts(),
        ends: (count(Status::Completed), count(Status::Failed)),
        versions: if is_visible {
            versions
                .values()
                .map(|versions| versions.len() as u64)
                .sum()
        } else {
            0
        },
        requests: site
            .store
            .observed(|observed| observed.requests.values().sum()),
        network_faults: injected(&site),
        process_faults: monkey.injected.values().sum(),
        exits: monkey.exits,
        recovery: aftermath.recovery,
        folder: keep.then(|| site.folder.clone()),
        breaches,
    };
    site.remove(keep);
    report
}

/// Checks that the work and the faults explain the requests. The budget is wide: it finds processes that send requests without a pause. Other
/// tests check what a task costs without faults.
fn check_budget(
    plan: &Plan,
    site: &Site,
    processes: u64,
    aftermath: &Aftermath,
    breaches: &mut Breaches,
) {
    let requests: u64 = site
        .store
        .observed(|observed| observed.requests.values().sum());
    let changes: u64 = aftermath.tasks.iter().map(|task| task.revision).sum();
    let seconds = plan.trouble.as_secs() + aftermath.recovery.as_secs() + START_LIMIT.as_secs();
    let allowed = match plan.mode {
        // A change, its index entries, its read and its retry. Each process polls, and costs some requests to start.
        Mode::Direct => changes * 10 + seconds * 40 + processes * 60 + injected(site) * 20,
        // A group is one write and a read. Losers of a race read again.
        Mode::Json => changes * 12 + seconds * 60 + processes * 20 + injected(site) * 20,
        // Groups are large. SlateDB polls, compacts, and costs some requests to open.
        Mode::Slate => changes * 4 + seconds * 40 + processes * 60 + injected(site) * 20,
    };
    if requests > allowed {
        let text = format!("{requests} requests, the budget is {allowed}");
        breaches.add(Promise::Budget, text);
    }
}
