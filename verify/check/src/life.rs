//! Follows each task through every version that was ever stored: each change must be one that the rules allow, made from the version
//! before it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use qo_core::task::{Event, EventAction, decode};
use qo_core::{LeaseId, OpId, Status, Task, TaskId, Timestamp};

use crate::call::CallKind;
use crate::cause::{Cause, cause_of};
use crate::group;
use crate::webhooks::is_of_webhook;

/// How far the clock of an undisturbed process may be from the store's.
const CLOCK_TOLERANCE_MS: u64 = 2_500;

/// One write of a record.
#[derive(Debug, Clone)]
pub struct StoredVersion {
    /// When, by the store's clock.
    pub at: Timestamp,
    /// When, as a position in the order of all recorded events.
    pub tick: u64,
    /// The stored bytes; none after a deletion.
    pub body: Option<Bytes>,
    /// Whether the bytes were damaged, not written by a request.
    pub damaged: bool,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A call requested it.
    Call(CallKind),
    /// The lease expired.
    LeaseExpiry,
    /// The task waited past its expiry, or longer than it may.
    Expiry,
    /// A submit with the same key replaced the input of the waiting task, or postponed it.
    Amendment,
    /// The engine released a claim whose caller had gone before the reply.
    Returned,
    /// The engine made a claim fail that was under way.
    Fenced,
    /// The engine submitted it to notify a webhook of the end of another task.
    Delivered,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(kind) => write!(f, "{kind:?}"),
            automatic => write!(f, "{automatic:?}"),
        }
    }
}

/// One change of a task.
#[derive(Debug, Clone)]
pub struct Change {
    /// Its kind.
    pub step: Step,
    /// When, as a position in the order of all recorded events.
    pub tick: u64,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// The task before it; none for a submit.
    pub before: Option<Box<Task>>,
    /// The task after it; none for a purge.
    pub after: Option<Box<Task>>,
}

/// One attempt of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt {
    /// The task.
    pub task: TaskId,
    /// The number of the attempt.
    pub number: u32,
    /// Its lease.
    pub lease: LeaseId,
}

/// The life of one task.
#[derive(Debug, Default)]
pub struct Life {
    /// Its changes, oldest first.
    pub changes: Vec<Change>,
    /// Its stored attempts.
    pub attempts: Vec<Attempt>,
    /// Its last state; none if it was purged.
    pub last: Option<Task>,
}

impl Life {
    fn add(
        &mut self,
        step: Step,
        version: &StoredVersion,
        before: Option<Task>,
        after: Option<Task>,
    ) {
        self.changes.push(Change {
            step,
            tick: version.tick,
            at: version.at,
            before: before.map(Box::new),
            after: after.clone().map(Box::new),
        });
        self.last = after;
    }

    /// The number of changes of a kind.
    pub fn count(&self, step: Step) -> usize {
        let changes = self.changes.iter();
        changes.filter(|change| change.step == step).count()
    }
}

/// What a run and its engine allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a condition of its own"
)]
pub struct Conditions {
    /// The clocks of the processes are undisturbed, so due times hold to the second.
    pub punctual: bool,
    /// One write may contain several changes of one task.
    pub grouped: bool,
    /// Every renewal has an operation id of its own. A renewal leaves no event, so an engine that retries one after another write built on it
    /// applies it again.
    pub renewals_once: bool,
    /// Every stored attempt was handed out: no caller died or gave up while it claimed.
    pub claims_answered: bool,
    /// How long a purge may take. A replay during that time is lost with the task.
    pub purge_max: Duration,
    /// How far apart the clocks of two processes may be.
    pub clock_difference_ms: u64,
    /// The engine counts the waiting tasks of a queue exactly.
    pub counts_waiting: bool,
    /// The end of a task and the deliveries of webhooks are stored together.
    pub delivers_with_end: bool,
}

impl Conditions {
    /// An engine that writes each change by itself, and processes whose clocks are right.
    pub fn strict() -> Self {
        Self {
            punctual: true,
            grouped: false,
            renewals_once: false,
            claims_answered: false,
            purge_max: Duration::from_mins(3),
            clock_difference_ms: 3_000,
            counts_waiting: true,
            delivers_with_end: true,
        }
    }
}

/// Follows a task through its versions.
fn live(id: TaskId, versions: &[StoredVersion], conditions: Conditions) -> Result<Life, String> {
    let mut life = Life::default();
    let mut ops: BTreeSet<OpId> = BTreeSet::new();
    let mut replayed_at = None;
    let mut is_skipped = false;
    for (place, version) in versions.iter().enumerate() {
        if is_skipped {
            is_skipped = false;
            continue;
        }
        if !life.changes.is_empty() && life.last.is_none() && is_revival(&versions[place..]) {
            is_skipped = true;
            continue;
        }
        let Some(body) = &version.body else {
            let gone = life.last.take().ok_or("was deleted twice")?;
            let replayed =
                replayed_at.is_some_and(|at| version.at.since(at) < conditions.purge_max);
            if !gone.status.is_terminal() && !replayed {
                return Err(format!("was deleted while it was {}", gone.status));
            }
            life.add(Step::Call(CallKind::Purge), version, Some(gone), None);
            continue;
        };
        let stored = decode(body).map_err(|error| format!("cannot be read: {error}"))?;
        if stored.id != id {
            return Err(format!("is stored as task {}", stored.id));
        }
        let changes = group::unfold(life.last.as_ref(), &stored)?;
        if changes.len() > 1 && !conditions.grouped {
            return Err(format!(
                "revision {} was not made from the one before",
                stored.revision
            ));
        }
        // What was between several changes of one write is known only in part.
        let is_alone = changes.len() == 1;
        for (event, next) in changes {
            let before = life.last.take();
            let step = step(before.as_ref(), &next, event, version)?;
            if step != Step::Call(CallKind::Renew) || conditions.renewals_once {
                let op = next.op_id.ok_or("a version names no operation")?;
                if !ops.insert(op) {
                    return Err(format!("operation {op} was applied twice"));
                }
            }
            check_step(step, before.as_ref(), &next, version, conditions)?;
            if let (Step::Call(CallKind::Redrive), Some(before), true) = (step, &before, is_alone) {
                check_move(before, &next, version, conditions)?;
            }
            if step == Step::Call(CallKind::Claim) {
                life.attempts.push(Attempt {
                    task: id,
                    number: next.attempt,
                    lease: next.lease_id.ok_or("was claimed without a lease")?,
                });
            }
            if matches!(step, Step::Call(CallKind::Replay | CallKind::Redrive)) {
                replayed_at = Some(version.at);
            }
            life.add(step, version, before, Some(next));
        }
    }
    Ok(life)
}

/// Whether the next two versions of a purged task are its creation by a submit that read the idempotency key before the purge, and the
/// deletion of that task before anybody claimed it. No caller was told about it.
fn is_revival(versions: &[StoredVersion]) -> bool {
    let [created, deleted, ..] = versions else {
        return false;
    };
    let task = created.body.as_ref().and_then(|body| decode(body).ok());
    deleted.body.is_none()
        && task.is_some_and(|task| {
            task.revision == 1 && task.status == Status::Pending && task.idempotency_key.is_some()
        })
}

/// The step that leads from one state to the next.
fn step(
    last: Option<&Task>,
    next: &Task,
    event: Option<&Event>,
    version: &StoredVersion,
) -> Result<Step, String> {
    let Some(last) = last else {
        return if next.status == Status::Pending && next.revision == 1 && next.attempt == 0 {
            Ok(if is_of_webhook(next) {
                Step::Delivered
            } else {
                Step::Call(CallKind::Submit)
            })
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
    let is_moved = event.is_some_and(|event| event.action == Some(EventAction::Redriven));
    if !is_moved && next.queue != last.queue {
        return Err("its queue changed".to_owned());
    }
    let is_amended = event.is_some_and(|event| event.action == Some(EventAction::Amended));
    let keeps_input = next.input() == last.input() || is_amended;
    if !keeps_input || next.created_at != last.created_at {
        return Err("its input or its creation time changed".to_owned());
    }
    let cause = event.map_or(Cause::Requested, cause_of);
    let step = match (last.status, next.status) {
        (Status::Pending, Status::Running) => Step::Call(CallKind::Claim),
        (Status::Pending, Status::Pending) if is_amended && last.attempt == 0 => Step::Amendment,
        (Status::Pending | Status::Failed, Status::Pending) if is_moved => {
            Step::Call(CallKind::Redrive)
        }
        (Status::Pending, Status::Pending) if event.is_none() => Step::Fenced,
        (Status::Pending, Status::Failed | Status::Cancelled) if cause == Cause::TaskExpired => {
            Step::Expiry
        }
        (Status::Pending, Status::Cancelled) => Step::Call(CallKind::Cancel),
        (Status::Failed, Status::Cancelled) if last.stops_line() => Step::Call(CallKind::Cancel),
        (Status::Running, Status::Running) if event.is_some() => Step::Call(CallKind::Cancel),
        (Status::Running, Status::Running) => Step::Call(CallKind::Renew),
        (Status::Running, Status::Completed) => Step::Call(CallKind::Complete),
        (Status::Running, Status::Pending | Status::Failed | Status::Cancelled) => match cause {
            Cause::LeaseExpired => Step::LeaseExpiry,
            Cause::Released => Step::Call(CallKind::Release),
            Cause::Snoozed => Step::Call(CallKind::Snooze),
            Cause::TaskExpired | Cause::Requested => Step::Call(CallKind::Fail),
        },
        (Status::Completed | Status::Failed | Status::Cancelled, Status::Pending) => {
            Step::Call(CallKind::Replay)
        }
        (Status::Completed | Status::Failed | Status::Cancelled, Status::Archived) => {
            Step::Call(CallKind::Archive)
        }
        (Status::Archived, Status::Completed | Status::Failed | Status::Cancelled) => {
            Step::Call(CallKind::Unarchive)
        }
        (from, to) => return Err(format!("went from {from} to {to}")),
    };
    if next.attempt != last.attempt + u32::from(step == Step::Call(CallKind::Claim)) {
        return Err(format!(
            "attempt {} follows attempt {}",
            next.attempt, last.attempt
        ));
    }
    if step == Step::Call(CallKind::Renew) && next.lease_id != last.lease_id {
        return Err("a renewal changed the lease".to_owned());
    }
    if let (Step::LeaseExpiry, Some(end)) = (step, last.lease_expires_at)
        && version.at < end
    {
        return Err(format!(
            "the lease until {end} was ended too early, at {}",
            version.at
        ));
    }
    Ok(step)
}

/// Checks what a step has to respect beside the order of statuses: retries, cancellation and due times.
fn check_step(
    step: Step,
    last: Option<&Task>,
    next: &Task,
    version: &StoredVersion,
    conditions: Conditions,
) -> Result<(), String> {
    let Some(last) = last else { return Ok(()) };
    let counted = match step {
        Step::LeaseExpiry | Step::Call(CallKind::Fail) => match next.status {
            Status::Pending => 1,
            // A task whose cancellation was requested while it ran ends here, with or without retries left.
            Status::Cancelled => next.retry_count.saturating_sub(last.retry_count).min(1),
            _ => 0,
        },
        Step::Call(CallKind::Redrive) if last.status == Status::Pending => 0,
        Step::Call(CallKind::Replay | CallKind::Redrive) => {
            return if next.retry_count == 0 {
                Ok(())
            } else {
                Err("a task that started over kept the retry count".to_owned())
            };
        }
        _ => 0,
    };
    if next.retry_count != last.retry_count + counted {
        return Err(format!(
            "{step:?} changed the retry count from {} to {}",
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
        return Err("failed with retries left".to_owned());
    }
    if last.status == Status::Running && last.cancel_requested && next.status == Status::Pending {
        return Err("is pending again although its cancellation was requested".to_owned());
    }
    if step == Step::Call(CallKind::Claim) && conditions.punctual {
        if last.available_at > version.at.plus_millis(CLOCK_TOLERANCE_MS) {
            return Err(format!(
                "was claimed at {} although it is due at {}",
                version.at, last.available_at
            ));
        }
        if next
            .started_at
            .zip(last.pending_until())
            .is_some_and(|(started, expires)| started > expires.plus_millis(CLOCK_TOLERANCE_MS))
        {
            return Err("was claimed after its expiry".to_owned());
        }
    }
    Ok(())
}

/// Checks a task that has moved: nothing but its queue and its due time has changed, and the due time only as far as documented. A waiting task
/// keeps it but for the millisecond by which index entries differ, and a failed one is due now.
fn check_move(
    last: &Task,
    next: &Task,
    version: &StoredVersion,
    conditions: Conditions,
) -> Result<(), String> {
    if next.queue == last.queue {
        return Err("was moved to the queue where it was".to_owned());
    }
    if next.scoped_key() != last.scoped_key() {
        return Err("took its idempotency key along to another queue".to_owned());
    }
    let kept = |task: &Task| {
        let (limit_key, group) = (task.limit_key.clone(), task.fairness_group.clone());
        (task.priority, limit_key, group, task.max_retries)
    };
    if kept(next) != kept(last) {
        return Err("changed more than its queue when it was moved".to_owned());
    }
    let (due, moved) = (last.available_at, next.available_at);
    let is_kept = moved == due.plus_millis(1);
    let is_now = moved <= version.at.plus_millis(CLOCK_TOLERANCE_MS) || !conditions.punctual;
    let is_right = match last.status {
        Status::Pending => is_kept,
        _ => moved > due && (is_now || is_kept),
    };
    if is_right {
        Ok(())
    } else {
        Err(format!(
            "was {} and due at {due}, and is due at {moved} after it was moved",
            last.status
        ))
    }
}

/// Marks the releases of attempts that were never handed out: the engine made them itself.
pub(crate) fn mark_returned(lives: &mut BTreeMap<TaskId, Life>, handed_out: &BTreeSet<LeaseId>) {
    let changes = lives.values_mut().flat_map(|life| &mut life.changes);
    for change in changes.filter(|change| change.step == Step::Call(CallKind::Release)) {
        let lease = change.before.as_ref().and_then(|before| before.lease_id);
        if lease.is_some_and(|lease| !handed_out.contains(&lease)) {
            change.step = Step::Returned;
        }
    }
}

/// The lives of all tasks that follow the rules, and why the others do not. Leaves out the `damaged` tasks.
pub fn lives(
    records: &BTreeMap<TaskId, Vec<StoredVersion>>,
    damaged: &BTreeSet<TaskId>,
    conditions: Conditions,
) -> (BTreeMap<TaskId, Life>, Vec<(TaskId, String)>) {
    let mut lives = BTreeMap::new();
    let mut wrong = Vec::new();
    for (id, versions) in records.iter().filter(|(id, _)| !damaged.contains(id)) {
        match live(*id, versions, conditions) {
            Ok(life) => {
                lives.insert(*id, life);
            }
            Err(error) => wrong.push((*id, error)),
        }
    }
    (lives, wrong)
}
