//! Whether the promises were kept: what is stored, and all that ever was, against what the callers were told.
//!
//! The bucket remembers every version of every record, so that each change can be judged by itself: it must be one of the
//! steps that the rules know, made from the version before it. Then the steps are counted against the journal.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use qo_core::keys::Key;
use qo_core::task::decode;
use qo_core::{OpId, Payload, Status, Task, TaskId};
use qo_direct::DirectEngine;
use qo_engine::Engine;

use super::bucket::{Bucket, Written};
use super::journal::{Acknowledged, Asked, HandedOut, Journal, Told};

/// What a run may show beside the promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Excuse {
    /// Nothing, or nothing that was not repaired on the spot, went wrong: every attempt was handed out.
    None,
    /// Processes died or gave up: their attempts may have ended by themselves.
    Died,
}

/// The name of a process that a program kills by itself.
pub(super) const VICTIM: &str = "victim";

/// A replay that comes while a purge is under way is lost with the task, as one that comes later would find none.
const PURGE_TAKES: Duration = Duration::from_mins(1);

/// One change of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Asked(Asked),
    LeaseExpiry,
    Expiry,
}

/// The steps of one task, counted, and what it is in the end.
#[derive(Debug, Default)]
struct Life {
    steps: BTreeMap<Step, usize>,
    attempts: Vec<HandedOut>,
    /// The workers whose attempts ended by themselves.
    expired: Vec<String>,
    last: Option<Task>,
}

/// Checks everything, and says all that is wrong.
pub(super) async fn check(
    bucket: &Bucket,
    journal: &Journal,
    engine: &DirectEngine,
    excuse: Excuse,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut lives = BTreeMap::new();
    for (key, versions) in bucket.records() {
        let Ok(Key::Task(id)) = key.parse() else {
            wrong.push(format!("{key} is not the key of a task"));
            continue;
        };
        match live(id, &versions) {
            Ok(life) => {
                lives.insert(id, life);
            }
            Err(error) => wrong.push(format!("task {id}: {error}")),
        }
    }
    check_counts(journal, &lives, &mut wrong);
    check_acknowledged(journal, &lives, &mut wrong);
    check_attempts(journal, &lives, excuse, &mut wrong);
    // A purge that was begun may have taken everything but the record itself; it can be repeated.
    let half_purged: BTreeSet<TaskId> = journal.read(|pages| {
        let purges = pages.calls.iter().filter(|call| call.asked == Asked::Purge);
        purges.filter_map(|call| call.task).collect()
    });
    check_keys(journal, &lives, &half_purged, &mut wrong);
    check_ends(&lives, &half_purged, engine, &mut wrong).await;
    check_left_over(bucket, &lives, &mut wrong).await;
    wrong
}

/// How often each step was taken by all tasks together.
pub(super) fn steps(bucket: &Bucket) -> BTreeMap<Step, usize> {
    let mut total = BTreeMap::new();
    for (key, versions) in bucket.records() {
        if let Ok(Key::Task(id)) = key.parse()
            && let Ok(life) = live(id, &versions)
        {
            for (step, count) in life.steps {
                *total.entry(step).or_default() += count;
            }
        }
    }
    total
}

/// Follows a task through its versions.
fn live(id: TaskId, versions: &[Written]) -> Result<Life, String> {
    let mut life = Life::default();
    let mut ops: BTreeSet<OpId> = BTreeSet::new();
    let mut replayed_at = None;
    for version in versions {
        let step = match &version.body {
            None => {
                let gone = life.last.take().ok_or("was deleted twice")?;
                let replayed = replayed_at.is_some_and(|at| version.at.since(at) < PURGE_TAKES);
                if !gone.status.is_terminal() && !replayed {
                    return Err(format!("was deleted while it was {}", gone.status));
                }
                Step::Asked(Asked::Purge)
            }
            Some(body) => {
                let next = decode(body).map_err(|error| format!("cannot be read: {error}"))?;
                let op = next.op_id.ok_or("a version names no operation")?;
                if next.id != id || !ops.insert(op) {
                    return Err(format!("operation {op} was applied twice, or elsewhere"));
                }
                let step = step(life.last.as_ref(), &next, version)?;
                if step == Step::Asked(Asked::Claim) {
                    life.attempts.push(HandedOut {
                        task: id,
                        attempt: next.attempt,
                        lease: next.lease_id.ok_or("a claim without a lease")?,
                    });
                }
                if step == Step::Asked(Asked::Replay) {
                    replayed_at = Some(version.at);
                }
                if step == Step::LeaseExpiry {
                    let worker = life.last.as_ref().and_then(|last| last.worker_id.as_ref());
                    life.expired
                        .push(worker.map(ToString::to_string).unwrap_or_default());
                }
                life.last = Some(next);
                step
            }
        };
        *life.steps.entry(step).or_default() += 1;
    }
    Ok(life)
}

/// Which step leads from one version to the next.
fn step(last: Option<&Task>, next: &Task, version: &Written) -> Result<Step, String> {
    let Some(last) = last else {
        return if next.status == Status::Pending && next.revision == 1 && next.attempt == 0 {
            Ok(Step::Asked(Asked::Submit))
        } else {
            Err("does not begin with a submit".to_owned())
        };
    };
    let known = last.events.len();
    let new_events = next.events.len().checked_sub(known);
    let same_history = next.events.get(..known) == Some(&last.events[..]);
    if next.revision != last.revision + 1 || !same_history || new_events.is_none_or(|new| new > 1) {
        return Err(format!(
            "revision {} was not made from revision {}",
            next.revision, last.revision
        ));
    }
    if next.input() != last.input() || next.created_at != last.created_at {
        return Err("has become another task".to_owned());
    }
    let event = next.events.get(known);
    let error = event.and_then(|event| event.error.as_deref()).unwrap_or("");
    let step = match (last.status, next.status) {
        (Status::Pending, Status::Running) => Step::Asked(Asked::Claim),
        (Status::Pending, Status::Cancelled) if error.starts_with("expired") => Step::Expiry,
        (Status::Pending, Status::Cancelled) => Step::Asked(Asked::Cancel),
        (Status::Running, Status::Running) if event.is_some() => Step::Asked(Asked::Cancel),
        (Status::Running, Status::Running) => Step::Asked(Asked::Keep),
        (Status::Running, Status::Completed) => Step::Asked(Asked::Complete),
        (Status::Running, Status::Pending | Status::Failed | Status::Cancelled) => {
            if error.starts_with("the lease ran out") {
                Step::LeaseExpiry
            } else if error.starts_with("released") {
                Step::Asked(Asked::Release)
            } else if error.starts_with("snoozed") {
                Step::Asked(Asked::Snooze)
            } else {
                Step::Asked(Asked::Fail)
            }
        }
        (Status::Completed | Status::Failed | Status::Cancelled, Status::Pending) => {
            Step::Asked(Asked::Replay)
        }
        (Status::Completed | Status::Failed | Status::Cancelled, Status::Archived) => {
            Step::Asked(Asked::Archive)
        }
        (Status::Archived, Status::Completed | Status::Failed | Status::Cancelled) => {
            Step::Asked(Asked::Unarchive)
        }
        (from, to) => return Err(format!("went from {from} to {to}")),
    };
    if next.attempt != last.attempt + u32::from(step == Step::Asked(Asked::Claim)) {
        return Err(format!(
            "attempt {} follows attempt {}",
            next.attempt, last.attempt
        ));
    }
    if let (Step::LeaseExpiry, Some(end)) = (step, last.lease_expires_at)
        && version.at < end
    {
        return Err(format!(
            "the lease until {end} was ended at {}, too early",
            version.at
        ));
    }
    Ok(step)
}

/// What was answered with success happened once; what was refused did not happen; what nobody knows may have.
fn check_counts(journal: &Journal, lives: &BTreeMap<TaskId, Life>, wrong: &mut Vec<String>) {
    let mut told: BTreeMap<(TaskId, Asked), (usize, usize)> = BTreeMap::new();
    journal.read(|pages| {
        let keyed: BTreeSet<TaskId> = pages.keyed.iter().map(|keyed| keyed.told).collect();
        for call in &pages.calls {
            let Some(task) = call.task else { continue };
            if call.asked == Asked::Purge {
                // A purge archives first, and stays there if it cannot go on.
                told.entry((task, Asked::Archive)).or_default().1 += 1;
            }
            // A submit with a key may create the task that the key names instead of its own, or find it.
            let (done, unsure) = told.entry((task, call.asked)).or_default();
            match call.told {
                Told::Done if call.asked == Asked::Submit => *unsure += 1,
                Told::Done => *done += 1,
                Told::Unsure => *unsure += 1,
                Told::Refused(_) => {}
            }
        }
        for id in keyed {
            told.entry((id, Asked::Submit)).or_default().1 += 1;
        }
    });
    let none = Life::default();
    let tasks: BTreeSet<TaskId> = told
        .keys()
        .map(|(id, _)| *id)
        .chain(lives.keys().copied())
        .collect();
    for id in tasks {
        let life = lives.get(&id).unwrap_or(&none);
        let counted = [
            Asked::Submit,
            Asked::Complete,
            Asked::Fail,
            Asked::Release,
            Asked::Snooze,
            Asked::Cancel,
            Asked::Replay,
            Asked::Archive,
            Asked::Unarchive,
        ];
        for asked in counted {
            let (done, unsure) = told.get(&(id, asked)).copied().unwrap_or_default();
            let stored = count(life, Step::Asked(asked));
            if !(done..=done + unsure).contains(&stored) {
                wrong.push(format!(
                    "task {id}: {asked:?} happened {stored} times; {done} were told so, {unsure} may have been"
                ));
            }
        }
        // A purge may be repeated, and a renewal that somebody built upon too: they leave no trace to recognise.
        for asked in [Asked::Keep, Asked::Purge] {
            let (done, unsure) = told.get(&(id, asked)).copied().unwrap_or_default();
            let stored = count(life, Step::Asked(asked));
            if stored < done.min(1) || (stored > 0 && done + unsure == 0) {
                wrong.push(format!(
                    "task {id}: {asked:?} happened {stored} times; {done} were told so, {unsure} may have been"
                ));
            }
        }
    }
}

/// An acknowledged submit is never lost, and of all submits of a task one has made it.
fn check_acknowledged(journal: &Journal, lives: &BTreeMap<TaskId, Life>, wrong: &mut Vec<String>) {
    let none = Life::default();
    let mut made = BTreeSet::new();
    for Acknowledged { task, duplicate } in journal.read(|pages| pages.acknowledged.clone()) {
        let life = lives.get(&task).unwrap_or(&none);
        if life.last.is_none() && count(life, Step::Asked(Asked::Purge)) == 0 {
            wrong.push(format!("task {task} was acknowledged and is lost"));
        }
        if !duplicate && !made.insert(task) {
            wrong.push(format!("task {task} was said to be new twice"));
        }
    }
}

fn count(life: &Life, step: Step) -> usize {
    life.steps.get(&step).copied().unwrap_or_default()
}

/// Every attempt has one holder, and ends by itself only where its holder died.
fn check_attempts(
    journal: &Journal,
    lives: &BTreeMap<TaskId, Life>,
    excuse: Excuse,
    wrong: &mut Vec<String>,
) {
    let stored: BTreeSet<HandedOut> = lives
        .values()
        .flat_map(|life| life.attempts.iter().copied())
        .collect();
    let handed_out = journal.read(|pages| pages.handed_out.clone());
    let mut seen = BTreeSet::new();
    for attempt in &handed_out {
        if !seen.insert((attempt.task, attempt.attempt)) {
            wrong.push(format!("{attempt:?} was handed out twice"));
        }
        if !stored.contains(attempt) {
            wrong.push(format!("{attempt:?} was handed out and is not stored"));
        }
    }
    if excuse == Excuse::None {
        let expired = lives.iter().flat_map(|(id, life)| {
            let workers = life.expired.iter();
            workers.map(move |worker| (id, worker))
        });
        for (id, worker) in expired.filter(|(_, worker)| *worker != VICTIM) {
            wrong.push(format!(
                "task {id}: the lease of {worker}, which lives, was ended"
            ));
        }
        for attempt in &stored {
            if !handed_out.contains(attempt) {
                wrong.push(format!("{attempt:?} is stored and was never handed out"));
            }
        }
    }
}

/// One task per key.
fn check_keys(
    journal: &Journal,
    lives: &BTreeMap<TaskId, Life>,
    half_purged: &BTreeSet<TaskId>,
    wrong: &mut Vec<String>,
) {
    let mut by_key: BTreeMap<String, BTreeSet<TaskId>> = BTreeMap::new();
    for (id, life) in lives.iter().filter(|(id, _)| !half_purged.contains(id)) {
        let Some(task) = &life.last else { continue };
        if let (Some(key), None) = (&task.idempotency_key, task.idempotency_until) {
            by_key.entry(key.to_string()).or_default().insert(*id);
        }
    }
    for (key, ids) in &by_key {
        if ids.len() > 1 {
            wrong.push(format!("key {key} has the tasks {ids:?}"));
        }
    }
    journal.read(|pages| {
        for keyed in &pages.keyed {
            let held = by_key.get(&keyed.key.to_string());
            let purged = half_purged.contains(&keyed.told);
            if !purged && held.is_some_and(|ids| !ids.contains(&keyed.told)) {
                wrong.push(format!("key {} was told to be {}", keyed.key, keyed.told));
            }
        }
    });
}

/// Every task has come to its end, with payloads that can be read.
async fn check_ends(
    lives: &BTreeMap<TaskId, Life>,
    half_purged: &BTreeSet<TaskId>,
    engine: &DirectEngine,
    wrong: &mut Vec<String>,
) {
    for (id, life) in lives {
        let Some(task) = &life.last else { continue };
        if !task.status.is_terminal() {
            wrong.push(format!("task {id} is {} in the end", task.status));
        }
        if half_purged.contains(id) {
            continue;
        }
        if let Err(error) = engine.input(task).await {
            wrong.push(format!("the input of task {id} is lost: {error}"));
        }
        if let Err(error) = engine.output(task).await {
            wrong.push(format!("the output of task {id} is lost: {error}"));
        }
    }
}

/// Nothing is left that points to nothing.
async fn check_left_over(bucket: &Bucket, lives: &BTreeMap<TaskId, Life>, wrong: &mut Vec<String>) {
    for key in bucket.keys().await {
        let kept = match key.parse::<Key>() {
            Ok(Key::Task(_) | Key::Worker(_) | Key::Idempotency(_)) => true,
            Ok(Key::Ready(_) | Key::Later(_) | Key::Lease { .. }) => false,
            Ok(Key::Input { id, sha256 }) => task_of(lives, id).is_some_and(
                |task| matches!(task.input(), Payload::Stored(stored) if stored.sha256 == sha256),
            ),
            Ok(Key::Output { id, attempt }) => task_of(lives, id).is_some_and(|task| {
                task.attempt == attempt && matches!(task.output(), Some(Payload::Stored(_)))
            }),
            Err(_) => key.starts_with("meta/"),
        };
        if !kept {
            wrong.push(format!("{key} is left over"));
        }
    }
}

fn task_of(lives: &BTreeMap<TaskId, Life>, id: TaskId) -> Option<&Task> {
    lives.get(&id)?.last.as_ref()
}
