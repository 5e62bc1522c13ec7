//! Whether the promises were kept, after a run.

mod attempts;
mod group;
mod life;
mod order;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use qo_core::{Task, TaskId};

pub use self::attempts::Excuse;
pub use self::life::{Attempt, Change, Life, Manner, Step, lives};

use crate::faults::FaultKind;
use crate::journal::{Asked, Call};
use crate::plan::Plan;
use crate::store::{Bucket, Counts, Verb};
use crate::subject::{Subject, Work};

/// The promise that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// A submit that was acknowledged is never lost.
    NothingLost,
    /// One task per id and per key.
    OneTask,
    /// One attempt is current, and only that changes the outcome.
    OneAttempt,
    /// A task changes as the rules say, and a terminal one only when somebody asks.
    Rules,
    /// When faults stop, every task comes to its end.
    Ends,
    /// Attempts are explained.
    Explained,
    /// Requests stay within the budget.
    Budget,
    /// Nothing is left over.
    LeftOver,
    /// The run itself went on as it should.
    Run,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingLost => "promise 1, nothing acknowledged is lost",
            Self::OneTask => "promise 2, one task per id and key",
            Self::OneAttempt => "promise 3, one current attempt",
            Self::Rules => "promise 4, only the rules change a task",
            Self::Ends => "promise 5, every task comes to its end",
            Self::Explained => "promise 6, attempts are explained",
            Self::Budget => "promise 7, the budget of requests",
            Self::LeftOver => "nothing is left over",
            Self::Run => "the run goes on",
        })
    }
}

/// What is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found(pub Vec<(Promise, String)>);

impl Found {
    /// Adds a breach.
    pub fn add(&mut self, promise: Promise, what: String) {
        self.0.push((promise, what));
    }

    /// The promises that were broken.
    pub fn promises(&self) -> BTreeSet<Promise> {
        self.0.iter().map(|(promise, _)| *promise).collect()
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (promise, what) in &self.0 {
            writeln!(f, "  {promise}: {what}")?;
        }
        Ok(())
    }
}

/// What a run has left to be judged.
pub struct Evidence<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The engine.
    pub subject: &'a dyn Subject,
    /// What is stored, and was.
    pub bucket: &'a Bucket,
    /// What was asked and told.
    pub calls: &'a [Call],
    /// What disturbed whom.
    pub excuses: &'a [Excuse],
    /// The tasks whose payloads could not be read in the end.
    pub unreadable: &'a [(TaskId, String)],
    /// The requests until everything had come to its end.
    pub requests: &'a Counts,
    /// How long all processes have run until then.
    pub process_time: Duration,
    /// How many faults there were.
    pub faults: u64,
}

/// What the checks have counted.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Steps of tasks.
    pub steps: BTreeMap<Step, u64>,
    /// Tasks.
    pub tasks: u64,
    /// Searches for an order that were given up.
    pub undecided: u64,
}

/// Checks everything, and says all that is wrong.
pub fn check(evidence: &Evidence<'_>) -> (Found, Tally) {
    let mut found = Found::default();
    let spoiled = spoiled(evidence);
    let disturbing = [FaultKind::ClockSkew, FaultKind::ClockJump, FaultKind::Pause];
    let undisturbed = !disturbing.iter().any(|kind| evidence.plan.has(*kind));
    let records = evidence.subject.records(evidence.bucket);
    let manner = Manner {
        undisturbed,
        grouped: evidence.subject.groups_changes(),
    };
    let (mut lives, wrong) = life::lives(&records, &spoiled, manner);
    if manner.grouped {
        let claims = evidence
            .calls
            .iter()
            .filter(|call| call.asked == Asked::Claim);
        let handed_out = claims.filter_map(|call| call.lease).collect();
        life::tell_taken_back(&mut lives, &handed_out);
    }
    let mut broken = spoiled.clone();
    for (id, error) in wrong {
        found.add(Promise::Rules, format!("task {id}: {error}"));
        // What follows from it need not be told, too.
        broken.insert(id);
    }
    told::check(evidence.calls, &lives, &broken, &mut found);
    let clocks_ms = if undisturbed { 3_000 } else { 65_000 };
    told::check_keys(evidence.calls, &lives, clocks_ms, &mut found);
    attempts::check(
        evidence.calls,
        &lives,
        &broken,
        evidence.excuses,
        &mut found,
    );
    let undecided = order::check(evidence.calls, &lives, &broken, &mut found);
    check_ends(evidence, &lives, &spoiled, &mut found);
    check_budget(evidence, &lives, &mut found);
    let mut tally = Tally {
        tasks: lives.len() as u64,
        undecided: undecided as u64,
        ..Tally::default()
    };
    for change in lives.values().flat_map(|life| &life.changes) {
        *tally.steps.entry(change.step).or_default() += 1;
    }
    (found, tally)
}

/// The tasks that something else than a request has damaged, or that the store takes no more writes of.
fn spoiled(evidence: &Evidence<'_>) -> BTreeSet<TaskId> {
    let history = evidence.bucket.history("");
    let damaged = history
        .iter()
        .filter(|(_, written)| written.iter().any(|written| written.damaged))
        .map(|(key, _)| key.clone());
    let full = evidence.bucket.full_keys();
    damaged
        .chain(full)
        .flat_map(|key| evidence.subject.tasks_of(&key))
        .collect()
}

fn check_ends(
    evidence: &Evidence<'_>,
    lives: &BTreeMap<TaskId, Life>,
    spoiled: &BTreeSet<TaskId>,
    found: &mut Found,
) {
    let mut tasks: BTreeMap<TaskId, Task> = BTreeMap::new();
    for (id, life) in lives {
        if let Some(task) = &life.last {
            if !task.status.is_terminal() {
                found.add(
                    Promise::Ends,
                    format!("task {id} is {} in the end", task.status),
                );
            }
            tasks.insert(*id, task.clone());
        }
    }
    // A purge that was begun may have taken everything but the record itself; it can be repeated.
    let half_purged: BTreeSet<TaskId> = evidence
        .calls
        .iter()
        .filter(|call| call.asked == Asked::Purge)
        .filter_map(|call| call.task)
        .collect();
    for (id, error) in evidence.unreadable {
        if !spoiled.contains(id) && !half_purged.contains(id) {
            found.add(Promise::NothingLost, format!("task {id}: {error}"));
        }
    }
    for key in evidence.subject.left_over(evidence.bucket, &tasks) {
        let excused = evidence
            .subject
            .tasks_of(&key)
            .iter()
            .any(|id| spoiled.contains(id));
        if !excused && evidence.plan.has(FaultKind::VersionLimit) && key.starts_with("meta/") {
            continue;
        }
        if !excused {
            found.add(Promise::LeftOver, format!("{key} is left over"));
        }
    }
    for key in evidence.bucket.keys("quarantine/") {
        let original = key
            .trim_start_matches("quarantine/")
            .trim_end_matches(".reason.json");
        let excused = evidence
            .subject
            .tasks_of(original)
            .iter()
            .any(|id| spoiled.contains(id));
        if !excused {
            found.add(
                Promise::NothingLost,
                format!("{original} was put under quarantine, and was never damaged"),
            );
        }
    }
}

fn check_budget(evidence: &Evidence<'_>, lives: &BTreeMap<TaskId, Life>, found: &mut Found) {
    let changes = lives.values().map(|life| life.changes.len() as u64).sum();
    let claims = lives.values().map(|life| life.attempts.len() as u64).sum();
    let work = Work {
        changes,
        claims,
        calls: evidence.calls.len() as u64,
        process_seconds: evidence.process_time.as_secs(),
    };
    let count = |verbs: &[Verb]| -> u64 {
        let counts = verbs.iter().filter_map(|verb| evidence.requests.get(verb));
        counts.sum()
    };
    let sent = [
        ("writes", count(&[Verb::Put, Verb::Create, Verb::Swap])),
        ("reads", count(&[Verb::Get])),
        ("lists", count(&[Verb::List])),
    ];
    let (writes, reads, lists) = evidence.subject.budget(&work);
    // Each fault may cost some retries; an outage or a crash many.
    let slack = if evidence.plan.is_calm() {
        0
    } else {
        evidence.faults * 10 + writes + reads + lists
    };
    for ((what, sent), allowed) in sent.into_iter().zip([writes, reads, lists]) {
        if sent > allowed + slack {
            found.add(
                Promise::Budget,
                format!(
                    "{sent} {what}, {} are in the budget for {work:?}",
                    allowed + slack
                ),
            );
        }
    }
}
