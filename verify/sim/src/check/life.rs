//! Follows each task through every version that was ever stored: each change must be one that the rules know, made from the version
//! before it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use qo_core::task::{Event, decode};
use qo_core::{LeaseId, OpId, Status, Task, TaskId, Timestamp};

use super::group;
use crate::journal::Asked;
use crate::store::Written;

/// A replay that comes while a purge is under way is lost with the task, as one that comes later would find none.
const PURGE_TAKES: Duration = Duration::from_mins(3);
/// How far a process that is not disturbed may be wrong about the store's time.
const CLOCK_TOLERANCE_MS: u64 = 2_500;

/// One change of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Somebody asked for it.
    Asked(Asked),
    /// The lease ran out.
    LeaseExpiry,
    /// It waited for too long.
    Expiry,
    /// Whoever wanted it had gone before it was handed out, and the engine has given it back.
    TakenBack,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(asked) => write!(f, "{asked:?}"),
            by_itself => write!(f, "{by_itself:?}"),
        }
    }
}

/// One change, with when it was made.
#[derive(Debug, Clone)]
pub struct Change {
    /// What.
    pub step: Step,
    /// When, among everything that happened.
    pub tick: u64,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// What the task was before; nothing, before a submit.
    pub before: Option<Box<Task>>,
    /// What it is after it; nothing, after a purge.
    pub after: Option<Box<Task>>,
}

/// An attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt {
    /// Of this task.
    pub task: TaskId,
    /// Its number.
    pub number: u32,
    /// Its claim.
    pub lease: LeaseId,
}

/// The life of one task.
#[derive(Debug, Default)]
pub struct Life {
    /// Its changes.
    pub changes: Vec<Change>,
    /// Its attempts, as stored.
    pub attempts: Vec<Attempt>,
    /// What it is in the end; nothing, if it was purged.
    pub last: Option<Task>,
}

impl Life {
    fn add(&mut self, step: Step, version: &Written, before: Option<Task>, after: Option<Task>) {
        self.changes.push(Change {
            step,
            tick: version.tick,
            at: version.at,
            before: before.map(Box::new),
            after: after.clone().map(Box::new),
        });
        self.last = after;
    }

    /// How often a step was taken.
    pub fn count(&self, step: Step) -> usize {
        let changes = self.changes.iter();
        changes.filter(|change| change.step == step).count()
    }
}

/// How a run and its engine went about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// Whether nothing disturbs the clocks of the processes, so that due times are kept to the second.
    pub undisturbed: bool,
    /// Whether one write may hold several changes of one task.
    pub grouped: bool,
}

/// Follows a task through its versions.
pub(super) fn live(id: TaskId, versions: &[Written], manner: Manner) -> Result<Life, String> {
    let mut life = Life::default();
    let mut ops: BTreeSet<OpId> = BTreeSet::new();
    let mut replayed_at = None;
    for version in versions {
        let Some(body) = &version.body else {
            let gone = life.last.take().ok_or("was deleted twice")?;
            let replayed = replayed_at.is_some_and(|at| version.at.since(at) < PURGE_TAKES);
            if !gone.status.is_terminal() && !replayed {
                return Err(format!("was deleted while it was {}", gone.status));
            }
            life.add(Step::Asked(Asked::Purge), version, Some(gone), None);
            continue;
        };
        let stored = decode(body).map_err(|error| format!("cannot be read: {error}"))?;
        if stored.id != id {
            return Err(format!("is stored as task {}", stored.id));
        }
        let changes = group::unfold(life.last.as_ref(), &stored)?;
        if changes.len() > 1 && !manner.grouped {
            return Err(format!(
                "revision {} was not made from the one before",
                stored.revision
            ));
        }
        for (event, next) in changes {
            let before = life.last.take();
            let step = step(before.as_ref(), &next, event, version)?;
            // A renewal leaves no event, so that one that somebody built upon is not recognised and is made again.
            if step != Step::Asked(Asked::Keep) {
                let op = next.op_id.ok_or("a version names no operation")?;
                if !ops.insert(op) {
                    return Err(format!("operation {op} was applied twice"));
                }
            }
            honour(step, before.as_ref(), &next, version, manner)?;
            if step == Step::Asked(Asked::Claim) {
                life.attempts.push(Attempt {
                    task: id,
                    number: next.attempt,
                    lease: next.lease_id.ok_or("was claimed without a lease")?,
                });
            }
            if step == Step::Asked(Asked::Replay) {
                replayed_at = Some(version.at);
            }
            life.add(step, version, before, Some(next));
        }
    }
    Ok(life)
}

/// Which step leads from one state to the next.
fn step(
    last: Option<&Task>,
    next: &Task,
    event: Option<&Event>,
    version: &Written,
) -> Result<Step, String> {
    let Some(last) = last else {
        return if next.status == Status::Pending && next.revision == 1 && next.attempt == 0 {
            Ok(Step::Asked(Asked::Submit))
        } else {
            Err("does not begin with a submit".to_owned())
        };
    };
    if next.revision != last.revision + 1 {
        return Err(format!(
            "revision {} was not made from revision {}",
            next.revision, last.revision
        ));
    }
    if next.input() != last.input() || next.created_at != last.created_at {
        return Err("has become another task".to_owned());
    }
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
    if step == Step::Asked(Asked::Keep) && next.lease_id != last.lease_id {
        return Err("a renewal has changed the claim".to_owned());
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

/// What each step has to respect beside its place in the order of statuses.
fn honour(
    step: Step,
    last: Option<&Task>,
    next: &Task,
    version: &Written,
    manner: Manner,
) -> Result<(), String> {
    let Some(last) = last else { return Ok(()) };
    let counted = match step {
        Step::LeaseExpiry | Step::Asked(Asked::Fail) => match next.status {
            Status::Pending => 1,
            // A task that was called off while it ran ends here, whether or not a retry was left.
            Status::Cancelled => next.retry_count.saturating_sub(last.retry_count).min(1),
            _ => 0,
        },
        Step::Asked(Asked::Replay) => {
            return if next.retry_count == 0 {
                Ok(())
            } else {
                Err("a replay kept the retries of before".to_owned())
            };
        }
        _ => 0,
    };
    if next.retry_count != last.retry_count + counted {
        return Err(format!(
            "{step:?} took the retries from {} to {}",
            last.retry_count, next.retry_count
        ));
    }
    if next.retry_count > next.max_retries {
        return Err(format!(
            "was retried {} times, {} are allowed",
            next.retry_count, next.max_retries
        ));
    }
    if step == Step::LeaseExpiry
        && next.status == Status::Failed
        && last.retry_count < last.max_retries
    {
        return Err("was given up with retries left".to_owned());
    }
    if last.status == Status::Running && last.cancel_requested && next.status == Status::Pending {
        return Err("was called off, and is pending again".to_owned());
    }
    if step == Step::Asked(Asked::Claim) && manner.undisturbed {
        if last.available_at > version.at.plus_millis(CLOCK_TOLERANCE_MS) {
            return Err(format!(
                "was claimed at {}, and is due at {}",
                version.at, last.available_at
            ));
        }
        if next
            .started_at
            .zip(last.expires_at)
            .is_some_and(|(started, expires)| started > expires.plus_millis(CLOCK_TOLERANCE_MS))
        {
            return Err("was claimed after it had expired".to_owned());
        }
    }
    Ok(())
}

/// Finds the releases that nobody can have asked for, because nobody was ever handed that attempt.
pub(super) fn tell_taken_back(lives: &mut BTreeMap<TaskId, Life>, handed_out: &BTreeSet<LeaseId>) {
    let changes = lives.values_mut().flat_map(|life| &mut life.changes);
    for change in changes.filter(|change| change.step == Step::Asked(Asked::Release)) {
        let lease = change.before.as_ref().and_then(|before| before.lease_id);
        if lease.is_some_and(|lease| !handed_out.contains(&lease)) {
            change.step = Step::TakenBack;
        }
    }
}

/// The lives of all tasks, and what is wrong with them.
pub fn lives(
    records: &BTreeMap<TaskId, Vec<Written>>,
    spoiled: &BTreeSet<TaskId>,
    manner: Manner,
) -> (BTreeMap<TaskId, Life>, Vec<(TaskId, String)>) {
    let mut lives = BTreeMap::new();
    let mut wrong = Vec::new();
    for (id, versions) in records.iter().filter(|(id, _)| !spoiled.contains(id)) {
        match live(*id, versions, manner) {
            Ok(life) => {
                lives.insert(*id, life);
            }
            Err(error) => wrong.push((*id, error)),
        }
    }
    (lives, wrong)
}
