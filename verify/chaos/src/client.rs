//! Clients: they submit a few tasks at a time, retry unacknowledged ones under the same id or key, sometimes twice at once, are sometimes
//! killed, and sometimes give up.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use qo_core::TaskId;
use qo_sim::random::Random;
use qo_store::runtime::TokioRuntime;
use qo_testkit::wait_until;

use crate::lock;
use crate::site::{Route, Site};
use crate::tasks::{Ledger, TaskSpec};

/// A client that takes longer than this is killed.
const CLIENT_MAX: Duration = Duration::from_secs(90);
/// How long a submit is retried after the faults: brokers may have to start again first.
const CALM_LIMIT: Duration = Duration::from_mins(1);
const CALM_PAUSE: Duration = Duration::from_secs(1);
/// The most tasks that a client submits at once.
const BATCH_MAX: u64 = 6;

/// Submits until `stop` is set, and then until every task that it has not given up is acknowledged.
pub(crate) fn run(
    site: &Site,
    number: usize,
    seed: u64,
    ledger: &Mutex<Ledger>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut random = Random::of(&[seed, 4, number as u64]);
    let mut open: BTreeSet<usize> = BTreeSet::new();
    while !stop.load(Ordering::Acquire) {
        for _ in 0..random.between(1, BATCH_MAX) {
            let spec = TaskSpec::draw(&mut random);
            let mut ledger = lock(ledger);
            ledger.specs.push(spec);
            open.insert(ledger.specs.len() - 1);
        }
        submit(site, number, &mut random, ledger, &open)?;
        settle(ledger, &mut open);
        // A client without a reply may give up. Then the task may exist or not.
        open.retain(|_| !random.chance(0.1));
        thread::sleep(random.millis(100, 1_200));
    }
    let runtime = TokioRuntime::shared();
    let limit = runtime.monotonic() + CALM_LIMIT;
    while !open.is_empty() && runtime.monotonic() < limit {
        let specs: Vec<usize> = open.iter().copied().collect();
        let mut process = Submitter::start(site, Route::Faulty(number), ledger, &specs)?;
        wait_until(CLIENT_MAX, || process.has_ended());
        process.collect(ledger);
        settle(ledger, &mut open);
        if !open.is_empty() {
            thread::sleep(CALM_PAUSE);
        }
    }
    let mut ledger = lock(ledger);
    for spec in open {
        let text = "was not acknowledged after the faults had stopped".to_owned();
        ledger.unacknowledged.push((spec, text));
    }
    Ok(())
}

fn settle(ledger: &Mutex<Ledger>, open: &mut BTreeSet<usize>) {
    for (spec, _) in &lock(ledger).acknowledged {
        open.remove(spec);
    }
}

fn submit(
    site: &Site,
    number: usize,
    random: &mut Random,
    ledger: &Mutex<Ledger>,
    open: &BTreeSet<usize>,
) -> Result<()> {
    let specs: Vec<usize> = open.iter().copied().collect();
    let at_once = if random.chance(0.2) { 2 } else { 1 };
    let mut processes = Vec::new();
    for other in 0..at_once {
        let route = Route::Faulty(number + other);
        processes.push(Submitter::start(site, route, ledger, &specs)?);
    }
    if random.chance(0.1) {
        thread::sleep(random.millis(30, 900));
        if let Some(process) = processes.first_mut()
            && !process.has_ended()
        {
            process.kill();
            lock(ledger).clients_killed += 1;
        }
    }
    for process in &mut processes {
        if !wait_until(CLIENT_MAX, || process.has_ended()) {
            process.kill();
        }
        process.collect(ledger);
    }
    Ok(())
}

/// One process of `qo submit`. It prints into a file, so that nobody has to read its output while it runs.
struct Submitter {
    child: Child,
    output: std::path::PathBuf,
    specs: Vec<usize>,
}

impl Submitter {
    fn start(site: &Site, route: Route, ledger: &Mutex<Ledger>, specs: &[usize]) -> Result<Self> {
        let (number, lines) = {
            let mut ledger = lock(ledger);
            ledger.clients += 1;
            let lines: Vec<String> = specs
                .iter()
                .map(|spec| ledger.specs[*spec].line())
                .collect();
            (ledger.clients, lines.join("\n"))
        };
        let output = site.folder.join(format!("client-{number}.out"));
        let errors = site.folder.join("clients.log");
        let errors = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(errors);
        let mut child = site
            .submitter(route)
            .stdin(Stdio::piped())
            .stdout(std::fs::File::create(&output).context("cannot create a client's output file")?)
            .stderr(errors.context("cannot open the clients' log")?)
            .spawn()
            .context("cannot start a client")?;
        if let Some(mut input) = child.stdin.take() {
            // A client that has exited already reports that by its exit code.
            let _ = input.write_all(lines.as_bytes());
        }
        Ok(Self {
            child,
            output,
            specs: specs.to_vec(),
        })
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Records the acknowledgements that it printed, even if it was killed afterwards.
    fn collect(&self, ledger: &Mutex<Ledger>) {
        let output = std::fs::read_to_string(&self.output).unwrap_or_default();
        let mut errors = String::new();
        let mut ledger = lock(ledger);
        for line in output.lines() {
            let Ok(reply) = serde_json::from_str::<serde_json::Value>(line) else {
                continue;
            };
            let spec = reply["line"].as_u64().and_then(|line| {
                let index = usize::try_from(line).ok()?.checked_sub(1)?;
                self.specs.get(index).copied()
            });
            let id: Option<TaskId> = reply["id"].as_str().and_then(|id| id.parse().ok());
            match (spec, id) {
                (Some(spec), Some(id)) => ledger.acknowledged.push((spec, id)),
                _ => errors.extend([line, "\n"]),
            }
        }
        drop(ledger);
        self.log_errors(&errors);
        let _ = std::fs::remove_file(&self.output);
    }

    /// Appends the errors of single lines to the clients' log.
    fn log_errors(&self, errors: &str) {
        let log = self.output.with_file_name("clients.log");
        let file = std::fs::OpenOptions::new().append(true).open(log);
        // The log only helps to understand a breach, which is reported without it as well.
        let _ = file.and_then(|mut file| file.write_all(errors.as_bytes()));
    }
}

impl Drop for Submitter {
    fn drop(&mut self) {
        self.kill();
    }
}
