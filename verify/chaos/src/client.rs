//! Clients: they submit a few tasks at a time, repeat what was not acknowledged under the same id or key, sometimes twice at once, are sometimes
//! killed on the way, and sometimes give up.

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
use crate::place::{Place, Way};
use crate::tasks::{Ledger, Wish};

/// A client that takes longer than this is killed.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a wish is repeated when nothing fails any more: brokers may have to start again first.
const CALM_LIMIT: Duration = Duration::from_mins(1);
const CALM_PAUSE: Duration = Duration::from_secs(1);
/// How many tasks a client submits at once.
const BATCH_MAX: u64 = 6;

/// Submits until it is told to stop, and then until everything that it has not given up is acknowledged.
pub(crate) fn run(
    place: &Place,
    number: usize,
    seed: u64,
    ledger: &Mutex<Ledger>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut random = Random::of(&[seed, 4, number as u64]);
    let mut open: BTreeSet<usize> = BTreeSet::new();
    while !stop.load(Ordering::Acquire) {
        for _ in 0..random.between(1, BATCH_MAX) {
            let wish = Wish::draw(&mut random);
            let mut ledger = lock(ledger);
            ledger.wishes.push(wish);
            open.insert(ledger.wishes.len() - 1);
        }
        submit(place, number, &mut random, ledger, &open)?;
        settle(ledger, &mut open);
        // Somebody who was not told may never ask again; then the task is there, or it is not.
        open.retain(|_| !random.chance(0.1));
        thread::sleep(random.millis(100, 1_200));
    }
    let runtime = TokioRuntime::shared();
    let limit = runtime.monotonic() + CALM_LIMIT;
    while !open.is_empty() && runtime.monotonic() < limit {
        let wishes: Vec<usize> = open.iter().copied().collect();
        let mut process = Submitter::start(place, Way::Faulty(number), ledger, &wishes)?;
        wait_until(PATIENCE, || process.has_ended());
        process.take_in(ledger);
        settle(ledger, &mut open);
        if !open.is_empty() {
            thread::sleep(CALM_PAUSE);
        }
    }
    let mut ledger = lock(ledger);
    for wish in open {
        let what = "was not acknowledged although nothing failed any more".to_owned();
        ledger.unheard.push((wish, what));
    }
    Ok(())
}

fn settle(ledger: &Mutex<Ledger>, open: &mut BTreeSet<usize>) {
    for (wish, _) in &lock(ledger).told {
        open.remove(wish);
    }
}

fn submit(
    place: &Place,
    number: usize,
    random: &mut Random,
    ledger: &Mutex<Ledger>,
    open: &BTreeSet<usize>,
) -> Result<()> {
    let wishes: Vec<usize> = open.iter().copied().collect();
    let at_once = if random.chance(0.2) { 2 } else { 1 };
    let mut processes = Vec::new();
    for other in 0..at_once {
        let way = Way::Faulty(number + other);
        processes.push(Submitter::start(place, way, ledger, &wishes)?);
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
        if !wait_until(PATIENCE, || process.has_ended()) {
            process.kill();
        }
        process.take_in(ledger);
    }
    Ok(())
}

/// One process of `qo submit`. It says into a file, so that nobody has to read while it runs.
struct Submitter {
    child: Child,
    said: std::path::PathBuf,
    wishes: Vec<usize>,
}

impl Submitter {
    fn start(place: &Place, way: Way, ledger: &Mutex<Ledger>, wishes: &[usize]) -> Result<Self> {
        let (number, lines) = {
            let mut ledger = lock(ledger);
            ledger.clients += 1;
            let lines: Vec<String> = wishes
                .iter()
                .map(|wish| ledger.wishes[*wish].line())
                .collect();
            (ledger.clients, lines.join("\n"))
        };
        let said = place.folder.join(format!("client-{number}.out"));
        let errors = place.folder.join("clients.log");
        let errors = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(errors);
        let mut child = place
            .submitter(way)
            .stdin(Stdio::piped())
            .stdout(std::fs::File::create(&said).context("cannot keep what a client says")?)
            .stderr(errors.context("cannot keep what clients complain of")?)
            .spawn()
            .context("cannot start a client")?;
        if let Some(mut input) = child.stdin.take() {
            // A client that has ended already is told of by its exit.
            let _ = input.write_all(lines.as_bytes());
        }
        Ok(Self {
            child,
            said,
            wishes: wishes.to_vec(),
        })
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Notes what it was told. What it said before it was killed counts too.
    fn take_in(&self, ledger: &Mutex<Ledger>) {
        let said = std::fs::read_to_string(&self.said).unwrap_or_default();
        let mut complaints = String::new();
        let mut ledger = lock(ledger);
        for line in said.lines() {
            let Ok(answer) = serde_json::from_str::<serde_json::Value>(line) else {
                continue;
            };
            let wish = answer["line"].as_u64().and_then(|line| {
                let place = usize::try_from(line).ok()?.checked_sub(1)?;
                self.wishes.get(place).copied()
            });
            let id: Option<TaskId> = answer["id"].as_str().and_then(|id| id.parse().ok());
            match (wish, id) {
                (Some(wish), Some(id)) => ledger.told.push((wish, id)),
                _ => complaints.extend([line, "\n"]),
            }
        }
        drop(ledger);
        self.complain(&complaints);
        let _ = std::fs::remove_file(&self.said);
    }

    /// Keeps why lines were refused beside what is said of all of them.
    fn complain(&self, complaints: &str) {
        let log = self.said.with_file_name("clients.log");
        let file = std::fs::OpenOptions::new().append(true).open(log);
        // It is there to understand a finding, which counts without it.
        let _ = file.and_then(|mut file| file.write_all(complaints.as_bytes()));
    }
}

impl Drop for Submitter {
    fn drop(&mut self) {
        self.kill();
    }
}
