//! Fires schedules.
//!
//! Every worker and every server runs a driver, without a leader. `qo_core::schedule` has the steps of firing, and what a crash after each
//! one leaves. This module decides who fires when, so that processes do not race for each tick:
//!
//! | the engine says ([`Duty`]) | this process fires a tick |
//! | --- | --- |
//! | `Sole`: no other process has the queue | at once |
//! | `Shared`, and it fired the schedule's last tick, or nobody did | at once |
//! | `Shared`, and another process fired the last tick | when it is 20 s overdue |
//! | `Reserve`: others do this | when it is 90 s overdue |
//! | `None`: a server does it | never |
//!
//! It keeps the schedules in memory, and reads them again at an interval or when they were changed through the same [`Queue`]. Firing from
//! an old copy is harmless: the change names the version that it is based on, and is refused.
//!
//! | idle, per process and month | requests |
//! | --- | --- |
//! | direct mode | one LIST per ten minutes, if nothing changes: other changes come with the signal that workers read anyway |
//! | `engine=json` | one conditional GET per ten seconds, or none while claims wait, which send more |
//! | served queues | one read a minute, from the memory of the server |

use std::collections::BTreeMap;
use std::time::Duration;

use qo_core::schedule::{Firing, Schedule, Ticks};
use qo_core::{DocumentKind, DocumentName, OpId, TaskId, Timestamp};
use qo_engine::EngineError;
use qo_engine::api::{Document, DocumentQuery, Duty};
use qo_store::runtime::RuntimeExt;

use super::{document_id, read, write_of};
use crate::error::Error;
use crate::queue::Queue;

/// How long a new driver waits before its first look, so that short-lived workers do not pay for it.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// How often the schedules are read, by the sole process and by one of several.
const LOOK_SOLE: Duration = Duration::from_mins(1);
const LOOK_SHARED: Duration = Duration::from_secs(10);
const LOOK_RESERVE: Duration = Duration::from_mins(1);
/// How long a process waits before it asks again whether it has a duty.
const NO_DUTY: Duration = Duration::from_secs(5);
/// How overdue a tick must be before this process fires it in place of another one.
const OTHERS_GRACE_MS: u64 = 20_000;
const RESERVE_GRACE_MS: u64 = 90_000;
/// How long after a failure a schedule is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// How often a buffered tick looks whether the earlier tasks are finished.
const BUFFERED_LOOK: Duration = Duration::from_secs(10);
/// The shortest sleep. Times have millisecond resolution.
const SLEEP_MIN: Duration = Duration::from_millis(5);

/// Fires the schedules of a queue. Workers and servers run one; other programs may.
#[derive(Debug)]
pub struct ScheduleDriver {
    queue: Queue,
    /// Identifies this process in the records.
    id: String,
    known: BTreeMap<DocumentName, Known>,
    /// When the schedules are to be read again, in the runtime's monotonic time.
    look_at: Duration,
}

/// A schedule as it was last read or written.
#[derive(Debug)]
struct Known {
    version: OpId,
    written_at: Timestamp,
    schedule: Schedule,
    /// `None` if the definition is invalid.
    ticks: Option<Ticks>,
    /// Not looked at before this time.
    rests_until: Duration,
}

impl Known {
    fn of(document: &Document) -> Option<Self> {
        let schedule = match read(document) {
            Ok(schedule) => schedule,
            Err(error) => {
                tracing::warn!(%error, "skipping an unreadable schedule");
                return None;
            }
        };
        let ticks = schedule.spec.ticks();
        if let Err(error) = &ticks {
            tracing::warn!(schedule = %document.id.name, %error, "this schedule cannot fire");
        }
        Some(Self {
            version: document.version,
            written_at: document.updated_at,
            schedule,
            ticks: ticks.ok(),
            rests_until: Duration::ZERO,
        })
    }
}

impl ScheduleDriver {
    /// A driver of the schedules of this queue.
    pub fn new(queue: Queue) -> Self {
        let id = format!("{:016x}", queue.runtime().random());
        Self {
            look_at: queue.runtime().monotonic(),
            queue,
            id,
            known: BTreeMap::new(),
        }
    }

    /// Fires schedules forever. Dropping the future is like a crash, which loses no tick.
    pub async fn run(mut self) {
        self.queue.runtime().sleep(FIRST_LOOK).await;
        loop {
            let sleep = self.step().await;
            tokio::select! {
                biased;
                () = self.queue.schedules_changed() => {
                    self.look_at = self.queue.runtime().monotonic();
                }
                () = self.queue.runtime().sleep(sleep) => {}
            }
        }
    }

    /// Fires what is due, and returns how long to sleep before the next step.
    pub async fn step(&mut self) -> Duration {
        let duty = self.queue.engine().duty();
        let (interval, grace_ms) = match duty {
            Duty::None => {
                self.known.clear();
                self.look_at = self.monotonic();
                return NO_DUTY;
            }
            Duty::Sole => (LOOK_SOLE, 0),
            Duty::Shared => (LOOK_SHARED, OTHERS_GRACE_MS),
            Duty::Reserve => (LOOK_RESERVE, RESERVE_GRACE_MS),
        };
        if self.monotonic() >= self.look_at {
            match self.look().await {
                Ok(()) => self.look_at = self.monotonic() + interval,
                Err(error) => {
                    tracing::debug!(%error, "cannot read the schedules; trying again");
                    self.look_at = self.monotonic() + RETRY;
                }
            }
        }
        let names: Vec<_> = self.known.keys().cloned().collect();
        for name in names {
            self.fire_due(&name, duty, grace_ms).await;
        }
        self.sleep_time(duty, grace_ms)
    }

    fn monotonic(&self) -> Duration {
        self.queue.runtime().monotonic()
    }

    /// Reads the schedules, and keeps those that have not changed.
    async fn look(&mut self) -> Result<(), Error> {
        let query = DocumentQuery {
            cached: true,
            ..DocumentQuery::all(DocumentKind::Schedules)
        };
        let documents = self.queue.engine().documents(&query).await?;
        let mut known = BTreeMap::new();
        for document in documents {
            let name = document.id.name.clone();
            let before = self.known.remove(&name);
            let same = before.filter(|before| before.version == document.version);
            if let Some(now) = same.or_else(|| Known::of(&document)) {
                known.insert(name, now);
            }
        }
        self.known = known;
        Ok(())
    }

    /// How much a tick must be overdue before this process fires it.
    fn grace_ms(&self, known: &Known, duty: Duty, grace_ms: u64) -> u64 {
        let is_own = known
            .schedule
            .driver
            .as_ref()
            .is_none_or(|driver| *driver == self.id);
        if duty == Duty::Shared && is_own {
            0
        } else {
            grace_ms
        }
    }

    /// Fires what is due of one schedule.
    async fn fire_due(&mut self, name: &DocumentName, duty: Duty, grace_ms: u64) {
        // A decision takes a bounded number of ticks, and a conflict is followed by a read.
        for _ in 0..20 {
            let now = self.queue.now();
            let Some(known) = self.known.get(name) else {
                return;
            };
            if known.rests_until > self.monotonic() {
                return;
            }
            let grace_ms = self.grace_ms(known, duty, grace_ms);
            if !is_due(known, grace_ms, now) {
                return;
            }
            let must_refresh = grace_ms > 0 || !known.schedule.open.is_empty();
            let fired = async {
                if must_refresh {
                    self.refresh(name).await?;
                }
                self.fire(name, grace_ms, now).await
            };
            match fired.await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(schedule = %name, %error, "could not fire a schedule; trying again");
                    let until = self.monotonic() + RETRY;
                    if let Some(known) = self.known.get_mut(name) {
                        known.rests_until = until;
                    }
                    return;
                }
            }
        }
    }

    /// Makes one decision. Returns whether there may be another one to make now.
    async fn fire(
        &mut self,
        name: &DocumentName,
        grace_ms: u64,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let Some(known) = self.known.get(name) else {
            return Ok(false);
        };
        let Some(ticks) = known
            .ticks
            .as_ref()
            .filter(|_| is_due(known, grace_ms, now))
        else {
            return Ok(false);
        };
        let (version, schedule) = (known.version, &known.schedule);
        let firing = if schedule.must_repeat(known.written_at, now) {
            Some(schedule.repeat())
        } else {
            let due = schedule.due(ticks, now);
            let alive = self.unfinished(schedule.asks_for(&due)).await?;
            schedule.decide(name, &due, &alive, &self.id, now)
        };
        let Some(firing) = firing else {
            // A buffered tick waits, but not longer than until the next tick.
            let next = schedule.next_tick(ticks);
            let rest = next.map_or(BUFFERED_LOOK, |next| next.since(now).min(BUFFERED_LOOK));
            let until = self.monotonic() + rest;
            if let Some(known) = self.known.get_mut(name) {
                known.rests_until = until;
            }
            return Ok(false);
        };
        for task in &firing.cancel {
            self.cancel(name, *task).await?;
        }
        self.write(name, version, &firing).await?;
        Ok(true)
    }

    async fn write(
        &mut self,
        name: &DocumentName,
        version: OpId,
        firing: &Firing,
    ) -> Result<(), Error> {
        let op = self.queue.runtime().new_op_id();
        let write = write_of(name, version, firing, op)?;
        match self.queue.engine().write_document(write).await {
            Ok(Some(document)) => {
                for run in &firing.runs {
                    tracing::debug!(schedule = %name, tick = %run.tick, task = %run.task, "fired");
                }
                match Known::of(&document) {
                    Some(known) => self.known.insert(name.clone(), known),
                    None => self.known.remove(name),
                };
                Ok(())
            }
            Ok(None) => {
                self.known.remove(name);
                Ok(())
            }
            // Another process was faster, or the schedule was changed.
            Err(EngineError::DocumentConflict { .. }) => self.refresh(name).await,
            Err(error) => {
                // It may have been written.
                if let Err(error) = self.refresh(name).await {
                    tracing::debug!(%error, "cannot read a schedule");
                }
                Err(error.into())
            }
        }
    }

    /// Reads one schedule again.
    async fn refresh(&mut self, name: &DocumentName) -> Result<(), Error> {
        let query = DocumentQuery::one(&document_id(name));
        let documents = self.queue.engine().documents(&query).await?;
        match documents.first() {
            Some(document) => {
                let is_same = self
                    .known
                    .get(name)
                    .is_some_and(|known| known.version == document.version);
                if !is_same {
                    match Known::of(document) {
                        Some(known) => self.known.insert(name.clone(), known),
                        None => self.known.remove(name),
                    };
                }
            }
            None => {
                self.known.remove(name);
            }
        }
        Ok(())
    }

    /// The tasks that are not finished. One that does not exist any more is.
    async fn unfinished(&self, tasks: &[TaskId]) -> Result<Vec<TaskId>, Error> {
        let mut unfinished = Vec::new();
        for task in tasks {
            match self.queue.engine().get(*task).await {
                Ok(task) if task.status.is_terminal() => {}
                Ok(task) => unfinished.push(task.id),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(unfinished)
    }

    async fn cancel(&self, name: &DocumentName, task: TaskId) -> Result<(), Error> {
        let reason = format!("the schedule {name} submits the next task");
        match self.queue.engine().cancel(task, Some(reason)).await {
            // It is finished or being cancelled already.
            Ok(_) | Err(EngineError::Rejected(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn sleep_time(&self, duty: Duty, grace_ms: u64) -> Duration {
        let (now, at) = (self.queue.now(), self.monotonic());
        let mut sleep = self.look_at.saturating_sub(at);
        for known in self.known.values() {
            let Some(ticks) = &known.ticks else { continue };
            let grace_ms = self.grace_ms(known, duty, grace_ms);
            let due = known.schedule.next_tick(ticks);
            let wait = due.map(|due| due.plus_millis(grace_ms).since(now));
            let wait = wait.map(|wait| wait.max(known.rests_until.saturating_sub(at)));
            sleep = wait.map_or(sleep, |wait| sleep.min(wait));
            if known.schedule.buffered.is_some() || !known.schedule.firing.is_empty() {
                sleep = sleep.min(BUFFERED_LOOK);
            }
        }
        sleep.max(SLEEP_MIN)
    }
}

/// Whether there is something to decide, for a process that waits `grace_ms` for another one.
fn is_due(known: &Known, grace_ms: u64, now: Timestamp) -> bool {
    let Some(ticks) = &known.ticks else {
        return false;
    };
    let schedule = &known.schedule;
    let overdue = now.minus_millis(grace_ms);
    let is_late = |tick: Timestamp| tick <= overdue;
    schedule.next_tick(ticks).is_some_and(is_late)
        || schedule.must_repeat(known.written_at, overdue)
        || (schedule.paused_at.is_none() && schedule.buffered.is_some_and(is_late))
}
