//! Many runs, their totals, and the report of a failed run.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use qo_check::Step;
use qo_store::wrap::{FaultKind, Operation};

use crate::overload::overload;
use crate::plan::Plan;
use crate::reuse::reuse;
use crate::run::{RunOutcome, run, schedules, turns};
use crate::shrink::shrink;
use crate::subject::Subject;

/// One seed in this many also uses ids and keys again.
const REUSE_EVERY: u64 = 4;
/// One seed in this many also fires a schedule.
const SCHEDULES_EVERY: u64 = 4;
/// One seed in this many also overloads a broker.
const OVERLOAD_EVERY: u64 = 4;
/// One seed in this many also lets two groups compete, where no process counts turns.
const TURNS_EVERY: u64 = 8;
/// The most lines of a trace in a report.
const LINES_MAX: usize = 400;

/// The totals of many runs.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Runs.
    pub seeds: u64,
    /// Runs without faults.
    pub calm: u64,
    /// Their length in virtual time.
    pub lasted: Duration,
    /// Tasks.
    pub tasks: u64,
    /// Changes of tasks, by kind.
    pub steps: BTreeMap<Step, u64>,
    /// Faults.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Deaths of processes.
    pub deaths: u64,
    /// Requests.
    pub requests: BTreeMap<Operation, u64>,
    /// The longest recovery.
    pub recovery_max: Duration,
    /// Searches for an order that gave up.
    pub undecided: u64,
    /// The seeds that broke a promise.
    pub failed: Vec<u64>,
}

impl Totals {
    /// Adds a run.
    pub fn add(&mut self, outcome: &RunOutcome) {
        self.seeds += 1;
        if !outcome.found.0.is_empty() {
            self.failed.push(outcome.plan.seed);
        }
        self.calm += u64::from(outcome.plan.is_calm());
        self.lasted += outcome.lasted;
        self.tasks += outcome.tally.tasks;
        self.deaths += outcome.deaths;
        self.undecided += outcome.tally.undecided;
        self.recovery_max = self.recovery_max.max(outcome.recovery);
        for (step, count) in &outcome.tally.steps {
            *self.steps.entry(*step).or_default() += count;
        }
        for struck in &outcome.struck {
            *self.faults.entry(struck.kind).or_default() += 1;
        }
        for kind in [
            FaultKind::ClockSkew,
            FaultKind::HashTags,
            FaultKind::VersionLimit,
        ] {
            *self.faults.entry(kind).or_default() += u64::from(outcome.plan.has(kind));
        }
        for (verb, count) in &outcome.requests {
            *self.requests.entry(*verb).or_default() += count;
        }
    }

    /// Adds the totals of another campaign.
    pub fn merge(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.failed.extend(other.failed);
        self.calm += other.calm;
        self.lasted += other.lasted;
        self.tasks += other.tasks;
        self.deaths += other.deaths;
        self.undecided += other.undecided;
        self.recovery_max = self.recovery_max.max(other.recovery_max);
        for (step, count) in other.steps {
            *self.steps.entry(step).or_default() += count;
        }
        for (kind, count) in other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (verb, count) in other.requests {
            *self.requests.entry(verb).or_default() += count;
        }
    }
}

impl Totals {
    /// The totals as JSON.
    pub fn figures(&self) -> serde_json::Value {
        let faults: serde_json::Map<_, _> = self
            .faults
            .iter()
            .map(|(kind, count)| (kind.name().to_owned(), (*count).into()))
            .collect();
        let steps: serde_json::Map<_, _> = self
            .steps
            .iter()
            .map(|(step, count)| (step.to_string(), (*count).into()))
            .collect();
        serde_json::json!({
            "seeds": self.seeds,
            "seeds_without_faults": self.calm,
            "simulated_hours": self.lasted.as_secs_f64() / 3_600.0,
            "tasks": self.tasks,
            "changes": self.steps.values().sum::<u64>(),
            "changes_by_kind": steps,
            "requests": self.requests.values().sum::<u64>(),
            "deaths": self.deaths,
            "faults": self.faults.values().sum::<u64>(),
            "faults_by_kind": faults,
            "longest_recovery_seconds": self.recovery_max.as_secs_f64(),
            "searches_given_up": self.undecided,
            "failed": self.failed,
        })
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests: u64 = self.requests.values().sum();
        let changes: u64 = self.steps.values().sum();
        let faults: u64 = self.faults.values().sum();
        writeln!(
            f,
            "{} seeds ({} without faults), {:.1} simulated hours, {} tasks, {changes} changes, {requests} requests, {} deaths, {faults} faults",
            self.seeds,
            self.calm,
            self.lasted.as_secs_f64() / 3_600.0,
            self.tasks,
            self.deaths,
        )?;
        writeln!(
            f,
            "longest recovery {:?}, {} searches for an order given up",
            self.recovery_max, self.undecided
        )?;
        for (kind, count) in &self.faults {
            write!(f, "{kind} {count}, ")?;
        }
        writeln!(f)?;
        for (step, count) in &self.steps {
            write!(f, "{step} {count}, ")?;
        }
        writeln!(f)
    }
}

/// Runs one seed with its special scenarios.
pub fn run_seed(seed: u64, subject: &Arc<dyn Subject>) -> RunOutcome {
    let mut outcome = run(&Plan::of(seed), Arc::clone(subject), false);
    add_special(&mut outcome, subject);
    outcome
}

/// Runs the special scenarios of a seed, and adds what is wrong to the outcome: ids and keys that are used again, schedules, an overload, and
/// groups that take turns.
pub fn add_special(outcome: &mut RunOutcome, subject: &Arc<dyn Subject>) {
    let seed = outcome.plan.seed;
    if seed.is_multiple_of(REUSE_EVERY) {
        outcome.found.0.extend(reuse(subject, seed).0);
    }
    // Where there are brokers, they fire schedules in their own commits.
    if seed % SCHEDULES_EVERY == 1 && subject.brokers() == 0 {
        outcome.found.0.extend(schedules(subject, seed).0);
    }
    if seed % OVERLOAD_EVERY == OVERLOAD_EVERY / 2 && subject.admits_submits() {
        outcome.found.0.extend(overload(subject, seed).found.0);
    }
    if seed % TURNS_EVERY == 3 && subject.turns_max().is_none() {
        outcome.found.0.extend(turns(subject, seed).0);
    }
}

/// The report of a failed run: the seed and its faults, the breaches, a shrunk run that still fails with its trace, and the commands that
/// repeat both.
pub fn explain(failed: &RunOutcome, subject: &Arc<dyn Subject>, mutant: Option<&str>) -> String {
    let shrunk = shrink(failed.clone(), subject);
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = writeln!(
        text,
        "{} on {} broke a promise:",
        failed.plan,
        subject.name()
    );
    let _ = write!(text, "{}", failed.found);
    let _ = writeln!(
        text,
        "run it again: {}",
        command(&failed.plan, subject.name(), mutant)
    );
    let _ = writeln!(text, "shrunk to {}:", shrunk.plan);
    for struck in &shrunk.struck {
        let _ = writeln!(
            text,
            "  {} at {:.3} s: {}",
            struck.id,
            struck.at.as_secs_f64(),
            struck.kind
        );
    }
    let _ = write!(text, "{}", shrunk.found);
    let _ = writeln!(
        text,
        "run it again: {}",
        command(&shrunk.plan, subject.name(), mutant)
    );
    let skipped = shrunk.trace.len().saturating_sub(LINES_MAX);
    let named = relevant(&shrunk);
    let _ = writeln!(
        text,
        "its trace ({} lines, {} of them about the tasks that are named above):",
        shrunk.trace.len(),
        named.len()
    );
    let lines = if named.is_empty() {
        shrunk.trace.iter().skip(skipped).collect()
    } else {
        named
    };
    for line in lines.into_iter().take(LINES_MAX) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// The lines of a trace about the tasks of a failure, or about faults.
fn relevant(outcome: &RunOutcome) -> Vec<&String> {
    let text = outcome.found.to_string();
    let ids: Vec<&str> = text
        .split(|letter: char| !letter.is_ascii_hexdigit() && letter != '-')
        .filter(|word| word.len() == 36)
        .collect();
    if ids.is_empty() {
        return Vec::new();
    }
    let about = |line: &&String| {
        ids.iter().any(|id| line.contains(id))
            || ["FAULT", "DIES", "starts as process", "faults end", "jumps"]
                .iter()
                .any(|word| line.contains(word))
    };
    outcome.trace.iter().filter(about).collect()
}

/// The command that repeats a plan.
pub fn command(plan: &Plan, engine: &str, mutant: Option<&str>) -> String {
    let mut text = format!("cargo xtask sim --engine {engine} --seed {}", plan.seed);
    let full = Plan::of(plan.seed);
    let dropped: Vec<&str> = full
        .faults
        .keys()
        .filter(|kind| !plan.has(**kind))
        .map(|kind| kind.name())
        .collect();
    // Writing into a string cannot fail.
    if let Some(mutant) = mutant {
        let _ = write!(text, " --mutant {mutant}");
    }
    if !dropped.is_empty() {
        let _ = write!(text, " --without {}", dropped.join(","));
    }
    if let Some(only) = &plan.only {
        let ids: Vec<&str> = only.iter().map(String::as_str).collect();
        let _ = write!(text, " --only '{}'", ids.join(","));
    }
    if plan.trust_first_refusal != full.trust_first_refusal {
        let _ = write!(text, " --trust-first-refusal {}", plan.trust_first_refusal);
    }
    for (name, now, before) in [
        ("tasks", plan.tasks, full.tasks),
        ("workers", plan.workers, full.workers),
        ("clients", plan.clients, full.clients),
    ] {
        if now != before {
            let _ = write!(text, " --{name} {now}");
        }
    }
    text
}
