//! The checks that need only the final tasks, their own event histories, and what clients and handlers noted.
//!
//! They fit runs of real processes, where no checker sees every stored version, and where no task is replayed, archived or cancelled.

use std::collections::{BTreeMap, BTreeSet};

use qo_core::task::Event;
use qo_core::{Payload, Status, Task, TaskId};

use crate::promise::{Breaches, Promise};

/// A task that a client submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The id, if the client chose it.
    pub id: Option<TaskId>,
    /// The idempotency key, if there is one.
    pub key: Option<String>,
    /// The input, as JSON.
    pub input: String,
    /// The tasks that the client received in reply, one per acknowledgement.
    pub acknowledged: Vec<TaskId>,
}

impl Submission {
    fn is_of(&self, task: &Task) -> bool {
        match &task.idempotency_key {
            Some(key) => self.key.as_deref() == Some(key.as_str()),
            None => self.id == Some(task.id),
        }
    }
}

/// An attempt that a worker started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedAttempt {
    /// The task.
    pub task: TaskId,
    /// The number of the attempt.
    pub number: u32,
    /// The worker.
    pub worker: String,
}

/// An attempt whose completion was acknowledged to its worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedAttempt {
    /// The task.
    pub task: TaskId,
    /// The number of the attempt.
    pub number: u32,
    /// The output, as JSON.
    pub output: String,
}

/// What clients and workers called, and the replies.
#[derive(Debug, Clone, Default)]
pub struct ClientLog {
    /// What clients submitted.
    pub submissions: Vec<Submission>,
    /// The attempts that workers started.
    pub started: Vec<StartedAttempt>,
    /// The completions that were acknowledged.
    pub completed: Vec<CompletedAttempt>,
    /// Task and attempt of completions that were refused because the lease was lost.
    pub refused: Vec<(TaskId, u32)>,
    /// Task and attempt of completions whose reply is unknown.
    pub unknown: Vec<(TaskId, u32)>,
}

impl ClientLog {
    /// Adds another log.
    pub fn merge(&mut self, other: Self) {
        self.submissions.extend(other.submissions);
        self.started.extend(other.started);
        self.completed.extend(other.completed);
        self.refused.extend(other.refused);
        self.unknown.extend(other.unknown);
    }

    /// The number of acknowledged submits.
    pub fn acknowledged(&self) -> usize {
        let submissions = self.submissions.iter();
        submissions.map(|one| one.acknowledged.len()).sum()
    }
}

/// The final state of a queue.
#[derive(Debug, Clone, Copy)]
pub struct FinalState<'a> {
    /// All tasks, as a list of the queue returned them.
    pub tasks: &'a [Task],
    /// What clients and workers called.
    pub log: &'a ClientLog,
    /// The statuses that a task may end in.
    pub ends: &'a [Status],
    /// Whether all events carry the time of one clock.
    pub has_one_clock: bool,
    /// Whether the log contains all completions.
    pub knows_completions: bool,
}

/// An attempt in a task's history.
#[derive(Debug, Clone, Copy)]
pub struct AttemptSpan<'a> {
    /// The event that began it.
    pub claim: &'a Event,
    /// The event that ended it, if it has ended.
    pub end: Option<&'a Event>,
}

/// The attempts in a task's history, oldest first.
pub fn attempt_spans(task: &Task) -> Vec<AttemptSpan<'_>> {
    let mut spans: Vec<AttemptSpan<'_>> = Vec::new();
    for event in task.events.iter() {
        if event.from == Some(Status::Pending) && event.to == Status::Running {
            let claim = event;
            spans.push(AttemptSpan { claim, end: None });
        } else if event.from == Some(Status::Running)
            && event.to != Status::Running
            && let Some(span) = spans.last_mut()
        {
            span.end.get_or_insert(event);
        }
    }
    spans
}

impl FinalState<'_> {
    /// Runs every check.
    pub fn check(&self) -> Breaches {
        let mut breaches = Breaches::default();
        let by_id: BTreeMap<TaskId, &Task> =
            self.tasks.iter().map(|task| (task.id, task)).collect();
        if by_id.len() != self.tasks.len() {
            breaches.add(Promise::OneTask, "a task is listed twice".to_owned());
        }
        self.check_submissions(&by_id, &mut breaches);
        self.check_origins(&mut breaches);
        for task in self.tasks {
            if !self.ends.contains(&task.status) {
                let text = format!("task {} is {} in the end", task.id, task.status);
                breaches.add(Promise::Ends, text);
            }
            self.check_events(task, &mut breaches);
        }
        self.check_started(&by_id, &mut breaches);
        self.check_completed(&by_id, &mut breaches);
        breaches
    }

    /// Acknowledged tasks exist, each submission is one task, and its input is the submitted one.
    fn check_submissions(&self, tasks: &BTreeMap<TaskId, &Task>, breaches: &mut Breaches) {
        for submission in &self.log.submissions {
            let ids: BTreeSet<TaskId> = submission.acknowledged.iter().copied().collect();
            if ids.len() > 1 {
                let text = format!("one submission was acknowledged as tasks {ids:?}");
                breaches.add(Promise::OneTask, text);
            }
            for id in ids {
                if submission.id.is_some_and(|submitted| submitted != id) {
                    let text = format!("{:?} was acknowledged as task {id}", submission.id);
                    breaches.add(Promise::OneTask, text);
                }
                let Some(task) = tasks.get(&id) else {
                    let text = format!("task {id} was acknowledged and is lost");
                    breaches.add(Promise::NothingLost, text);
                    continue;
                };
                let is_same = matches!(task.input(), Payload::Inline(json) if json.as_str() == submission.input);
                if !is_same {
                    let text = format!("task {id} has another input than its submission");
                    breaches.add(Promise::NothingLost, text);
                }
            }
        }
    }

    /// Every task was submitted, and every key has one task.
    fn check_origins(&self, breaches: &mut Breaches) {
        let mut keys: BTreeMap<&str, TaskId> = BTreeMap::new();
        for task in self.tasks {
            if !self.log.submissions.iter().any(|one| one.is_of(task)) {
                let text = format!("nobody submitted task {}", task.id);
                breaches.add(Promise::OneTask, text);
            }
            if let Some(key) = &task.idempotency_key
                && let Some(other) = keys.insert(key.as_str(), task.id)
            {
                let text = format!("tasks {other} and {} have one key", task.id);
                breaches.add(Promise::OneTask, text);
            }
        }
    }

    /// Each event follows from the one before, attempts count up, no operation is applied twice, and nothing follows an end.
    fn check_events(&self, task: &Task, breaches: &mut Breaches) {
        if task.events_dropped > 0 {
            return;
        }
        let id = task.id;
        let mut status: Option<Status> = None;
        let mut attempt = 0;
        let mut at = None;
        let mut operations = BTreeSet::new();
        for event in task.events.iter() {
            if event.op_id.is_some_and(|op| !operations.insert(op)) {
                let text = format!("task {id}: operation {:?} was applied twice", event.op_id);
                breaches.add(Promise::Rules, text);
            }
            let is_claim = event.from == Some(Status::Pending) && event.to == Status::Running;
            let is_allowed = match event.from {
                None => event.to == Status::Pending,
                Some(Status::Pending) => event.to == Status::Running,
                Some(Status::Running) => {
                    event.to == Status::Pending || self.ends.contains(&event.to)
                }
                Some(_) => false,
            };
            if event.from != status || !is_allowed {
                let text = format!(
                    "task {id} went from {:?} to {} while it was {status:?}",
                    event.from, event.to
                );
                breaches.add(Promise::Rules, text);
            }
            attempt += u32::from(is_claim);
            if event.attempt != attempt {
                let text = format!("task {id}: attempt {} instead of {attempt}", event.attempt);
                breaches.add(Promise::OneAttempt, text);
            }
            if self.has_one_clock && at.is_some_and(|at| event.at < at) {
                let text = format!("task {id}: an event is older than the one before it");
                breaches.add(Promise::Rules, text);
            }
            (status, at) = (Some(event.to), Some(event.at));
        }
        if status != Some(task.status) || attempt != task.attempt {
            let text = format!("task {id} differs from its history: {:?}", task.events);
            breaches.add(Promise::Rules, text);
        }
    }

    /// Each attempt was started once, by the worker that holds it.
    fn check_started(&self, tasks: &BTreeMap<TaskId, &Task>, breaches: &mut Breaches) {
        let mut seen = BTreeSet::new();
        for StartedAttempt {
            task: id,
            number,
            worker,
        } in &self.log.started
        {
            if !seen.insert((*id, *number)) {
                let text = format!("attempt {number} of task {id} was started twice");
                breaches.add(Promise::OneAttempt, text);
            }
            let Some(task) = tasks.get(id) else {
                let text = format!("task {id} was started and is lost");
                breaches.add(Promise::NothingLost, text);
                continue;
            };
            if task.events_dropped > 0 {
                continue;
            }
            let spans = attempt_spans(task);
            let span = spans.iter().find(|span| span.claim.attempt == *number);
            let holder = span.and_then(|span| span.claim.worker.as_ref());
            if holder.is_none_or(|holder| holder.as_str() != worker) {
                let text = format!(
                    "attempt {number} of task {id} was started by {worker}, and its stored holder is {holder:?}"
                );
                breaches.add(Promise::OneAttempt, text);
            }
        }
    }

    /// A task was completed once, by a worker that knows or may know of it, with the acknowledged output.
    fn check_completed(&self, tasks: &BTreeMap<TaskId, &Task>, breaches: &mut Breaches) {
        for (id, number) in &self.log.refused {
            let counts = tasks
                .get(id)
                .is_some_and(|task| task.status == Status::Completed && task.attempt == *number);
            if counts {
                let text = format!(
                    "task {id} was completed in attempt {number}, whose worker was told that it lost the lease"
                );
                breaches.add(Promise::OneAttempt, text);
            }
        }
        let known: BTreeSet<(TaskId, u32)> = self
            .log
            .completed
            .iter()
            .map(|completed| (completed.task, completed.number))
            .chain(self.log.unknown.iter().copied())
            .collect();
        for task in tasks.values() {
            let is_completed = task.status == Status::Completed;
            if self.knows_completions && is_completed && !known.contains(&(task.id, task.attempt)) {
                let text = format!(
                    "task {} is completed, and no worker completed attempt {}",
                    task.id, task.attempt
                );
                breaches.add(Promise::OneAttempt, text);
            }
        }
        let mut seen = BTreeSet::new();
        for CompletedAttempt {
            task: id,
            number,
            output,
        } in &self.log.completed
        {
            if !seen.insert(*id) {
                let text = format!("task {id} was completed twice");
                breaches.add(Promise::OneAttempt, text);
            }
            let Some(task) = tasks.get(id) else {
                let text = format!("task {id} was completed and is lost");
                breaches.add(Promise::NothingLost, text);
                continue;
            };
            let stored = match task.output() {
                Some(Payload::Inline(json)) => json.as_str().to_owned(),
                other => format!("{other:?}"),
            };
            if task.attempt != *number || stored != *output {
                let text = format!(
                    "task {id} was completed in attempt {number} with {output}, and holds {stored} of attempt {}",
                    task.attempt
                );
                breaches.add(Promise::OneAttempt, text);
            }
        }
    }
}
