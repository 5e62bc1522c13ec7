//! What the callers asked for, and what they were told.

use std::sync::Mutex;
use std::time::Duration;

use qo_core::{IdempotencyKey, LeaseId, Rejection, Status, Task, TaskId};
use qo_engine::EngineError;
use qo_engine::api::Submitted;
use qo_store::StoreError;

use crate::sched::{ProcessId, Scheduler, lock};

/// What a caller asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// A new task.
    Submit,
    /// Some task to work on.
    Claim,
    /// A renewal or a progress report.
    Keep,
    /// The end of an attempt, with success.
    Complete,
    /// The end of an attempt, without success.
    Fail,
    /// The end of an attempt, uncounted.
    Release,
    /// The end of an attempt, uncounted, to go on later.
    Snooze,
    /// To call a task off.
    Cancel,
    /// To start a task over.
    Replay,
    /// To put a task away.
    Archive,
    /// To undo that.
    Unarchive,
    /// To remove a task.
    Purge,
    /// A look.
    Get,
}

/// A task as an answer showed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Where it is in its life.
    pub status: Status,
    /// Its attempts.
    pub attempt: u32,
    /// Its changes.
    pub revision: u64,
    /// The claim.
    pub lease: Option<LeaseId>,
}

impl Seen {
    /// What there is to see of a task.
    pub fn of(task: &Task) -> Self {
        Self {
            status: task.status,
            attempt: task.attempt,
            revision: task.revision,
            lease: task.lease_id,
        }
    }
}

/// What a caller was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Nothing: its process died before, it gave up, or it was told that nobody knows.
    Unsure,
    /// That it was done, and what the task is now.
    Done(Option<Seen>),
    /// That the task was there before, and what it is now.
    Duplicate(Seen),
    /// That the rules refuse it, and nothing has changed.
    Rejected(Rejection),
    /// That nothing has changed, for some other reason.
    Failed(String),
}

/// One call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who called.
    pub process: ProcessId,
    /// For what.
    pub asked: Asked,
    /// The task that was named, or that was handed out or created instead.
    pub task: Option<TaskId>,
    /// The claim that was presented.
    pub lease: Option<LeaseId>,
    /// The idempotency key that was presented.
    pub key: Option<IdempotencyKey>,
    /// When it was called, among everything that happened.
    pub called: u64,
    /// When it was answered; nothing, if it never was.
    pub answered: Option<u64>,
    /// With what.
    pub told: Told,
}

/// The journal of a run, shared by all of its processes.
#[derive(Debug)]
pub struct Journal {
    scheduler: Scheduler,
    calls: Mutex<Vec<Call>>,
    excuses: Mutex<Vec<(ProcessId, Duration, Duration)>>,
}

/// A call that is being made.
pub struct Open(usize);

impl Journal {
    /// An empty journal.
    pub fn new(scheduler: &Scheduler) -> Self {
        Self {
            scheduler: scheduler.clone(),
            calls: Mutex::default(),
            excuses: Mutex::default(),
        }
    }

    /// All calls, in the order in which they were made.
    pub fn calls(&self) -> Vec<Call> {
        lock(&self.calls).clone()
    }

    /// Notes that a process is about to do something on purpose that makes it lose an attempt.
    pub fn excuse(&self, process: ProcessId, lasts: Duration) {
        let now = self.scheduler.elapsed();
        lock(&self.excuses).push((process, now, now + lasts));
    }

    /// What processes did on purpose: who, from when, until when.
    pub fn excuses(&self) -> Vec<(ProcessId, Duration, Duration)> {
        lock(&self.excuses).clone()
    }

    /// Notes that a call is made.
    pub fn open(&self, process: ProcessId, asked: Asked, task: Option<TaskId>) -> Open {
        let called = self.scheduler.tick();
        self.scheduler.note(process, || match task {
            Some(task) => format!("asks for {asked:?} of {task}"),
            None => format!("asks for {asked:?}"),
        });
        let mut calls = lock(&self.calls);
        calls.push(Call {
            process,
            asked,
            task,
            lease: None,
            key: None,
            called,
            answered: None,
            told: Told::Unsure,
        });
        Open(calls.len() - 1)
    }

    /// Adds to what is known of a call.
    pub fn with(&self, open: &Open, change: impl FnOnce(&mut Call)) {
        if let Some(call) = lock(&self.calls).get_mut(open.0) {
            change(call);
        }
    }

    /// Notes what a call was answered.
    pub fn close(&self, open: &Open, told: Told) {
        let answered = self.scheduler.tick();
        let mut calls = lock(&self.calls);
        let Some(call) = calls.get_mut(open.0) else {
            return;
        };
        call.answered = Some(answered);
        call.told = told;
        let call = call.clone();
        drop(calls);
        self.scheduler.note(call.process, || {
            format!("is told of {:?}: {:?}", call.asked, call.told)
        });
    }

    /// Notes a claim that was answered with a task, as a call of its own for that task.
    pub fn handed_out(&self, process: ProcessId, called: u64, task: &Task) {
        let answered = self.scheduler.tick();
        let call = Call {
            process,
            asked: Asked::Claim,
            task: Some(task.id),
            lease: task.lease_id,
            key: None,
            called,
            answered: Some(answered),
            told: Told::Done(Some(Seen::of(task))),
        };
        self.scheduler.note(process, || {
            format!("is handed {} attempt {}", task.id, task.attempt)
        });
        lock(&self.calls).push(call);
    }

    /// When a call was made.
    pub fn called(&self, open: &Open) -> u64 {
        lock(&self.calls).get(open.0).map_or(0, |call| call.called)
    }
}

/// What an answer tells.
pub fn told<T>(answer: &Result<T, EngineError>, seen: impl FnOnce(&T) -> Told) -> Told {
    match answer {
        Ok(answer) => seen(answer),
        Err(EngineError::Rejected(rejection)) => Told::Rejected(rejection.clone()),
        // A broker that is replaced, or ends, does not know what became of the writes that were on their way.
        Err(
            EngineError::NotLeader
            | EngineError::Closed
            | EngineError::Store(StoreError::Unavailable { in_doubt: true, .. }),
        ) => Told::Unsure,
        Err(error) => Told::Failed(error.to_string()),
    }
}

/// What a submit tells.
pub fn told_of_submit(submitted: &Submitted) -> Told {
    let seen = Seen::of(&submitted.task);
    if submitted.duplicate {
        Told::Duplicate(seen)
    } else {
        Told::Done(Some(seen))
    }
}
