//! Checks a finished run: the promises by [`qo_check`], and beside them what only the simulator knows: damage, left-over objects and the
//! request budget.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use qo_check::{Breaches, Call, Conditions, Excuse, History, Life, Promise, Step, TurnBound};
use qo_core::{DocumentName, Json, Limit, QueueSettings, Task, TaskId};
use qo_store::wrap::Operation;

use crate::faults::FaultKind;
use crate::plan::Plan;
use crate::store::{Bucket, Counts};
use crate::subject::{Subject, Work};

/// A finished run.
pub struct Evidence<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The engine.
    pub subject: &'a dyn Subject,
    /// The store, with everything that was ever written.
    pub bucket: &'a Bucket,
    /// The calls.
    pub calls: &'a [Call],
    /// The disturbances that explain expired leases.
    pub excuses: &'a [Excuse],
    /// The tasks whose payloads could not be read in the end, with the error.
    pub unreadable: &'a [(TaskId, String)],
    /// The requests until every task had finished.
    pub requests: &'a Counts,
    /// The running time of all processes until then.
    pub process_time: Duration,
    /// The number of faults.
    pub faults: u64,
    /// When processes that count the turns of groups began, as positions in the order of all recorded events.
    pub new_rounds: &'a [u64],
}

/// Counts of a run.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Changes of tasks, by kind.
    pub steps: BTreeMap<Step, u64>,
    /// Tasks.
    pub tasks: u64,
    /// Searches for an order that gave up.
    pub undecided: u64,
}

/// Runs every check.
pub fn check(evidence: &Evidence<'_>) -> (Breaches, Tally) {
    let damaged = damaged(evidence);
    let clocks_agree = evidence.plan.clocks_agree();
    let punctual = clocks_agree && !evidence.plan.has(FaultKind::Pause);
    let limits: Vec<(DocumentName, Limit)> = (evidence.plan.task_limits().into_iter())
        .filter_map(|(name, body)| {
            let limit = Limit::parse(&Json::parse(body).ok()?).ok()?;
            Some((name.parse().ok()?, limit))
        })
        .collect();
    let settings = (evidence.plan.queue_settings())
        .and_then(|body| QueueSettings::parse(&Json::parse(body).ok()?).ok());
    let checked = History {
        versions: &evidence.subject.records(evidence.bucket),
        calls: evidence.calls,
        excuses: evidence.excuses,
        damaged: &damaged,
        unreadable: evidence.unreadable,
        limits: &limits,
        settings: settings.as_ref(),
        webhooks: &evidence.plan.webhook_rules(),
        turns: (evidence.subject.turns_max())
            .filter(|_| evidence.plan.has_groups())
            .map(|turns_max| TurnBound {
                turns_max,
                new_rounds: evidence.new_rounds,
            }),
        conditions: Conditions {
            punctual,
            grouped: evidence.subject.groups_changes(),
            // The life of a damaged task ends with the damage, and the queue still counts it.
            counts_waiting: evidence.subject.admits_submits()
                && !evidence.plan.has(FaultKind::CorruptObject),
            delivers_with_end: evidence.subject.groups_changes(),
            clock_difference_ms: if clocks_agree { 3_000 } else { 65_000 },
            ..Conditions::strict()
        },
    }
    .check();
    let (mut breaches, lives) = (checked.breaches, checked.lives);
    check_left_over(evidence, &lives, &damaged, &mut breaches);
    check_budget(evidence, &lives, &mut breaches);
    let mut tally = Tally {
        tasks: lives.len() as u64,
        undecided: checked.undecided as u64,
        ..Tally::default()
    };
    for change in lives.values().flat_map(|life| &life.changes) {
        *tally.steps.entry(change.step).or_default() += 1;
    }
    (breaches, tally)
}

/// The tasks that were damaged, or whose objects the store takes no more writes of.
fn damaged(evidence: &Evidence<'_>) -> BTreeSet<TaskId> {
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

fn check_left_over(
    evidence: &Evidence<'_>,
    lives: &BTreeMap<TaskId, Life>,
    damaged: &BTreeSet<TaskId>,
    breaches: &mut Breaches,
) {
    let is_excused = |key: &str| {
        let tasks = evidence.subject.tasks_of(key);
        tasks.iter().any(|id| damaged.contains(id))
    };
    let tasks: BTreeMap<TaskId, Task> = lives
        .iter()
        .filter_map(|(id, life)| Some((*id, life.last.clone()?)))
        .collect();
    for key in evidence.subject.left_over(evidence.bucket, &tasks) {
        let is_full = evidence.plan.has(FaultKind::VersionLimit) && key.starts_with("meta/");
        if !is_excused(&key) && !is_full {
            breaches.add(Promise::LeftOver, format!("{key} is left over"));
        }
    }
    for key in evidence.bucket.keys("quarantine/") {
        let original = key
            .trim_start_matches("quarantine/")
            .trim_end_matches(".reason.json");
        if !is_excused(original) {
            let text = format!("{original} was quarantined and was never damaged");
            breaches.add(Promise::NothingLost, text);
        }
    }
}

fn check_budget(evidence: &Evidence<'_>, lives: &BTreeMap<TaskId, Life>, breaches: &mut Breaches) {
    let changes = lives.values().map(|life| life.changes.len() as u64).sum();
    let claims = lives.values().map(|life| life.attempts.len() as u64).sum();
    let work = Work {
        changes,
        claims,
        calls: evidence.calls.len() as u64,
        process_seconds: evidence.process_time.as_secs(),
    };
    let count = |verbs: &[Operation]| -> u64 {
        let counts = verbs.iter().filter_map(|verb| evidence.requests.get(verb));
        counts.sum()
    };
    let sent = [
        (
            "writes",
            count(&[Operation::Put, Operation::Create, Operation::Swap]),
        ),
        ("reads", count(&[Operation::Get])),
        ("lists", count(&[Operation::List])),
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
            breaches.add(
                Promise::Budget,
                format!(
                    "{sent} {what}, the budget for {work:?} is {}",
                    allowed + slack
                ),
            );
        }
    }
    if evidence.plan.is_calm()
        && let Some(repeated) = evidence.subject.repeated_work(evidence.bucket)
    {
        breaches.add(Promise::Budget, repeated);
    }
}
