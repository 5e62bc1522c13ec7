//! Runs the state machine and the model side by side.

use std::collections::BTreeSet;

use qo_core::document::DocumentChange;
use qo_core::queue_state::{Changes, Claim, CommandOutcome, Request, StateCommand};
use qo_core::task::{IdempotencyScope, OnFailure, OrderingRule};
use qo_core::transition::{Failure, FailureKind, Idempotency, ProgressReport};
use qo_core::{
    Action, DocumentId, DocumentKind, Jitter, Json, Limit, PauseNote, PauseTarget, QueueSettings,
    QueueState, Rejection, StartLimit, Status, Submission, Task, TaskId,
};

use super::Step;
use super::reference::{LIMITS, Model, ModelLimit, ModelSettings, ModelTask, WINDOW};
use crate::support::{at, id, json, lease, op, submission};

const QUEUES: [&str; 2] = ["default", "bulk"];
const TYPES: [&str; 2] = ["send_email", "resize"];
const IDS: u64 = 12;
const LEASE_MS: u64 = 60_000;

pub(crate) struct ModelRun {
    state: QueueState,
    model: Model,
    now: i64,
    ops: u64,
    leases: u64,
    /// Every lease that was issued, and its task.
    given: Vec<(u64, u64)>,
    submitted: BTreeSet<u64>,
    purged: BTreeSet<u64>,
}

impl ModelRun {
    pub(crate) fn new() -> Self {
        Self {
            state: QueueState::new(),
            model: Model::default(),
            now: 0,
            ops: 0,
            leases: 0,
            given: Vec::new(),
            submitted: BTreeSet::new(),
            purged: BTreeSet::new(),
        }
    }

    pub(crate) fn step(&mut self, (kind, a, b, elapsed_ms): Step) -> Result<(), String> {
        self.now += i64::from(elapsed_ms) * if kind.is_multiple_of(16) { 4 } else { 1 } / 8;
        if kind >= 248 {
            self.set_limit(a, b)?;
            return self.compare();
        }
        match kind % 24 {
            0..=4 => self.submit(a, b),
            5..=9 => self.claim(a, b),
            10..=17 => self.worker(kind % 24, a, b),
            18 => {
                self.expire();
                Ok(())
            }
            19 if b.is_multiple_of(2) => {
                self.set(a, b);
                Ok(())
            }
            19 => {
                self.pause(a);
                Ok(())
            }
            20 | 21 => self.purge(a),
            _ => self.operate(kind, a),
        }?;
        self.compare()
    }

    fn apply(&mut self, request: Request) -> (CommandOutcome, Changes) {
        let before: Vec<_> = self
            .state
            .tasks()
            .filter(|task| task.status.is_terminal())
            .cloned()
            .collect();
        let allowed = match &request {
            Request::Purge(_)
            | Request::Task {
                action:
                    Action::Replay | Action::Redrive { .. } | Action::Archive | Action::Unarchive,
                ..
            } => true,
            Request::Task {
                id,
                action: Action::Cancel { .. },
            } => self.state.task(*id).is_some_and(Task::stops_line),
            _ => false,
        };
        self.ops += 1;
        let command = StateCommand {
            op: op(self.ops),
            request,
        };
        let (outcome, changes) = self.state.apply(command, at(self.now));
        if !allowed {
            // Promise 4.
            for task in before {
                assert_eq!(
                    self.state.task(task.id),
                    Some(&task),
                    "a finished task changed"
                );
            }
        }
        if matches!(outcome, CommandOutcome::Rejected(_)) {
            assert!(changes.is_empty(), "a rejected command must change nothing");
        }
        (outcome, changes)
    }

    fn submit(&mut self, a: u8, b: u8) -> Result<(), String> {
        let number = u64::from(a) % IDS;
        let (queue, task_type) = (usize::from(a >> 4) % 2, usize::from(b >> 1) % 2);
        let priority = [5, 0, 9][usize::from(b >> 2) % 3];
        let available_at = self.now
            + if b.is_multiple_of(4) {
                i64::from(a) * 20
            } else {
                0
            };
        let expires_at = b.is_multiple_of(7).then_some(available_at + 3_000);
        let key = a.is_multiple_of(5).then_some(usize::from(b) % 3);
        let key_until = b.is_multiple_of(2).then_some(self.now + 10_000);
        let named_retries = (!b.is_multiple_of(11)).then_some(u32::from(b % 3));
        let settings = self.model.settings[queue];
        let max_retries = named_retries.or(settings.retries).unwrap_or(3);
        let ordering_key = a.is_multiple_of(2).then_some(usize::from(b) % 2);
        let stops_on_failure = b.is_multiple_of(5);
        let limit_key = (a % 3 < 2).then_some(usize::from(a % 3));
        let group = usize::from(a >> 1) % 4;
        let group = (group > 0).then(|| group - 1);
        let mut new = Submission {
            queue: QUEUES[queue].parse().unwrap(),
            task_type: TYPES[task_type].parse().unwrap(),
            priority,
            available_at: Some(at(available_at)),
            expires_at: expires_at.map(at),
            max_retries: named_retries,
            idempotency: key.map(|key| Idempotency {
                key: format!("key-{key}").parse().unwrap(),
                scope: IdempotencyScope::default(),
                until: key_until.map(at),
            }),
            ordering: ordering_key.map(|key| OrderingRule {
                key: format!("line-{key}").parse().unwrap(),
                on_failure: if stops_on_failure {
                    OnFailure::Stop
                } else {
                    OnFailure::Continue
                },
            }),
            limit_key: limit_key.map(|key| format!("account-{key}").parse().unwrap()),
            fairness_group: group.map(|group| format!("tenant-{group}").parse().unwrap()),
            ..submission(number)
        };
        new.retry_policy.jitter_percent = 0.0;
        let expected = self.model.submit(
            ModelTask {
                id: number,
                queue,
                task_type,
                priority,
                key,
                key_until: key_until.filter(|_| key.is_some()),
                home: queue,
                status: Status::Pending,
                before_archive: Status::Failed,
                available_at,
                expires_at,
                max_wait: settings.wait,
                order: 0,
                lease: None,
                lease_until: 0,
                attempt: 0,
                retries: 0,
                max_retries,
                cancel_requested: false,
                explained: 0,
                ordering_key,
                stops_on_failure,
                place: 0,
                limit_key,
                group,
            },
            self.now,
        );
        let (outcome, _) = self.apply(Request::Submit(Box::new(new)));
        let Some((expected, duplicate)) = expected else {
            let full = Rejection::QueueFull {
                queue: QUEUES[queue].parse().unwrap(),
                limit: settings.waiting_limit.unwrap_or_default() as u64,
            };
            return same(&outcome, &CommandOutcome::Rejected(full));
        };
        self.submitted.insert(expected);
        self.purged.remove(&expected);
        same(
            &outcome,
            &CommandOutcome::Submitted {
                id: id(expected),
                duplicate,
            },
        )
    }

    /// Sets or removes the settings of a queue.
    fn set(&mut self, a: u8, b: u8) {
        let queue = usize::from(a) % 2;
        let choice = usize::from(b) / 2;
        let settings = ModelSettings {
            retries: [None, Some(1), Some(0)][choice % 3],
            wait: [None, Some(2_500), None, Some(700)][choice % 4],
            waiting_limit: [None, Some(2), Some(4), None, Some(1)][choice % 5],
            weight: [None, Some(3), None, Some(2), None][choice % 5],
        };
        let stored = QueueSettings {
            max_retries: settings.retries,
            max_wait_ms: settings.wait.map(i64::unsigned_abs),
            max_waiting: settings.waiting_limit.map(|limit| limit as u64),
            group_weights: (settings.weight.into_iter())
                .map(|weight| ("tenant-0".parse().unwrap(), weight))
                .collect(),
            ..QueueSettings::NONE
        };
        if settings.weight != self.model.settings[queue].weight {
            self.model.rounds.retain(|(of, _), _| *of != queue);
        }
        let id = QueueSettings::document_id(&QUEUES[queue].parse().unwrap());
        let expected = self.state.document(&id).map(|document| document.op_id);
        let body = (!stored.is_empty()).then(|| Json::from_value(&stored).unwrap());
        self.ops += 1;
        let op = op(self.ops);
        let change = DocumentChange { expected, body, op };
        self.apply(Request::Document(id, change));
        self.model.settings[queue] = settings;
        assert_eq!(
            *self.state.settings(&QUEUES[queue].parse().unwrap()),
            stored
        );
    }

    fn claim(&mut self, a: u8, b: u8) -> Result<(), String> {
        let queue = (!a.is_multiple_of(3)).then_some(usize::from(a) % 2);
        let task_type = (!b.is_multiple_of(3)).then_some(usize::from(b) % 2);
        self.claim_of(queue, task_type, u64::from(a >> 5) % 4)
            .map(|_| ())
    }

    fn claim_of(
        &mut self,
        queue: Option<usize>,
        task_type: Option<usize>,
        count: u64,
    ) -> Result<Vec<u64>, String> {
        let leases: Vec<_> = (self.leases..self.leases + count).collect();
        self.leases += count;
        let expected = self.model.claim(queue, task_type, &leases, self.now);
        let (outcome, _) = self.apply(Request::Claim(Claim {
            worker: "w-1".parse().unwrap(),
            queues: queue
                .iter()
                .map(|queue| QUEUES[*queue].parse().unwrap())
                .collect(),
            types: task_type
                .iter()
                .map(|task_type| TYPES[*task_type].parse().unwrap())
                .collect(),
            leases: leases.iter().copied().map(lease).collect(),
            lease_ms: LEASE_MS,
        }));
        let CommandOutcome::Claimed(claimed) = outcome else {
            return Err(format!("{outcome:?}"));
        };
        let actual: Vec<TaskId> = claimed.iter().map(|claimed| claimed.id).collect();
        let wanted: Vec<TaskId> = expected.iter().copied().map(id).collect();
        if actual != wanted {
            return Err(format!("claimed {actual:?} instead of {wanted:?}"));
        }
        self.given
            .extend(leases.iter().copied().zip(expected.iter().copied()));
        Ok(expected)
    }

    /// A worker action with a lease that was issued at some point, current or not.
    fn worker(&mut self, kind: u8, a: u8, b: u8) -> Result<(), String> {
        // The newest leases are the most interesting ones.
        let Some(&(number, task)) = self
            .given
            .iter()
            .rev()
            .nth(usize::from(a) % self.given.len().clamp(1, 8))
        else {
            return Ok(());
        };
        let now = self.now;
        let holds = self.model.task(task).is_some_and(|task| task.holds(number));
        let change: fn(&mut ModelTask, i64, u8) = match kind {
            10 | 11 => |task, _, _| task.end(Status::Completed),
            12 => |task, now, _| task.failed_attempt(now),
            13 => |task, now, b| match b % 3 {
                0 => task.failed_attempt(now),
                1 => task.end(Status::Failed),
                _ => task.end(Status::Cancelled),
            },
            14 => |task, now, _| task.back(now),
            15 => |task, now, b| task.back(now + i64::from(b) * 10),
            16 => |task, now, _| task.lease_until = task.lease_until.max(now + 60_000),
            _ => |_, _, _| (),
        };
        if holds && let Some(task) = self.model.task(task) {
            change(task, now, b);
        }
        let held = lease(number);
        let fail = |kind| Action::Fail {
            lease: held,
            failure: Failure {
                kind,
                error: "broken".into(),
            },
            jitter: Jitter::NONE,
        };
        let action = match kind {
            10 | 11 => Action::Complete {
                lease: held,
                output: Some(json("1")),
            },
            12 => fail(FailureKind::Retryable),
            13 => fail(
                [
                    FailureKind::Timeout,
                    FailureKind::Permanent,
                    FailureKind::Cancelled,
                ][usize::from(b) % 3],
            ),
            14 => Action::Release { lease: held },
            15 => Action::Snooze {
                lease: held,
                delay_ms: u64::from(b) * 10,
            },
            16 => Action::Renew {
                lease: held,
                lease_ms: LEASE_MS,
            },
            _ => Action::Progress {
                lease: held,
                report: ProgressReport {
                    percent: f64::from(b) / 2.56,
                    message: None,
                },
            },
        };
        self.act(task, action, holds)
    }

    fn operate(&mut self, kind: u8, a: u8) -> Result<(), String> {
        let number = u64::from(a) % IDS;
        let now = self.now;
        let task = self.model.task(number);
        let ended = |status| {
            matches!(
                status,
                Status::Completed | Status::Failed | Status::Cancelled
            )
        };
        let (action, accepted) = match (kind / 24) % 4 {
            0 => {
                let accepted = task.is_some_and(|task| match task.status {
                    Status::Pending => {
                        task.end(Status::Cancelled);
                        true
                    }
                    Status::Running => !std::mem::replace(&mut task.cancel_requested, true),
                    _ if task.stops_line() => {
                        task.end(Status::Cancelled);
                        true
                    }
                    _ => false,
                });
                (Action::Cancel { reason: None }, accepted)
            }
            1 | 2 if kind.is_multiple_of(2) => {
                let joins_again = task.as_ref().is_some_and(|task| !task.stops_line());
                let accepted = task.is_some_and(|task| {
                    let accepted = ended(task.status);
                    if accepted {
                        task.set_due(now);
                        task.start_over();
                    }
                    accepted
                });
                if accepted && joins_again {
                    self.model.rejoin(number);
                }
                (Action::Replay, accepted)
            }
            1 => {
                let accepted = task.is_some_and(|task| {
                    let accepted = task.status == Status::Pending
                        && task.available_at > now
                        && task.expires_at.is_none_or(|at| at > now);
                    if accepted {
                        task.available_at = now;
                    }
                    accepted
                });
                (Action::RunNow, accepted)
            }
            2 => {
                let to = usize::from(a >> 4) % 2;
                let accepted = task.is_some_and(|task| {
                    let is_pending = task.status == Status::Pending;
                    let accepted = (task.status == Status::Failed
                        || is_pending && task.overdue(now).is_none())
                        && task.ordering_key.is_none()
                        && task.queue != to;
                    if accepted {
                        task.queue = to;
                        task.set_due(if is_pending { i64::MIN } else { now });
                    }
                    if accepted && !is_pending {
                        task.start_over();
                    }
                    accepted
                });
                let to = QUEUES[to].parse().unwrap();
                (Action::Redrive { to }, accepted)
            }
            3 if kind.is_multiple_of(2) => {
                let accepted = task.is_some_and(|task| {
                    let accepted = task.status == Status::Archived;
                    if accepted {
                        task.status = task.before_archive;
                    }
                    accepted
                });
                (Action::Unarchive, accepted)
            }
            _ => {
                let accepted = task.is_some_and(|task| {
                    let accepted = ended(task.status) && !task.stops_line();
                    if accepted {
                        task.before_archive = std::mem::replace(&mut task.status, Status::Archived);
                    }
                    accepted
                });
                (Action::Archive, accepted)
            }
        };
        self.act(number, action, accepted)
    }

    fn act(&mut self, number: u64, action: Action, accepted: bool) -> Result<(), String> {
        let name = action.name();
        let before = self.state.task(id(number)).cloned();
        let (outcome, _) = self.apply(Request::Task {
            id: id(number),
            action,
        });
        match (&outcome, accepted) {
            (CommandOutcome::Applied { .. }, true) => Ok(()),
            (CommandOutcome::Rejected(_), false)
                if self.state.task(id(number)) == before.as_ref() =>
            {
                Ok(())
            }
            _ => Err(format!(
                "{name} of task {number}: {outcome:?}, accepted by the model: {accepted}"
            )),
        }
    }

    fn expire(&mut self) {
        self.model.expire(self.now);
        self.apply(Request::ExpireLeases {
            lease_margin_ms: 0,
            limit: 1_000,
            jitter: Jitter::NONE,
        });
    }

    fn pause(&mut self, a: u8) {
        let queue = usize::from(a) % 2;
        let name = PauseTarget::Queue(QUEUES[queue].parse().unwrap());
        self.model.paused.retain(|paused| *paused != queue);
        if a % 4 == 3 {
            self.model.paused.push(queue);
            self.apply(Request::Pause(name, PauseNote::default()));
        } else {
            self.apply(Request::Resume(name));
        }
    }

    /// Creates, changes or removes a limit.
    fn set_limit(&mut self, a: u8, b: u8) -> Result<(), String> {
        let number = usize::from(a) % LIMITS;
        let limit_id = DocumentId {
            kind: DocumentKind::Limits,
            name: format!("limit-{number}").parse().unwrap(),
        };
        let body = (!b.is_multiple_of(4)).then(|| {
            let concurrent = (b & 3 != 2).then_some(u32::from(b >> 2) % 3 + 1);
            let starts = (b & 3 != 1).then_some(u32::from(b >> 4) % 3 + 1);
            let known = self.model.limits[number].take().unwrap_or_default();
            self.model.limits[number] = Some(ModelLimit {
                concurrent: concurrent.map(|max| max as usize),
                starts: starts.map(|max| max as usize),
                ..known
            });
            let limit = Limit {
                queue: (number == 0).then(|| QUEUES[1].parse().unwrap()),
                task_type: (number == 1).then(|| TYPES[1].parse().unwrap()),
                limit_key: (number == 2).then(|| "account-0".parse().unwrap()),
                concurrent,
                starts: starts.map(|max| StartLimit {
                    max,
                    window_ms: WINDOW.unsigned_abs(),
                }),
                ..Limit::default()
            };
            limit.to_json().unwrap()
        });
        if body.is_none() {
            self.model.limits[number] = None;
        }
        let change = DocumentChange {
            expected: self.state.document(&limit_id).map(|known| known.op_id),
            body,
            op: op(1_000_000 + self.ops),
        };
        match self.apply(Request::Document(limit_id, change)) {
            (CommandOutcome::DocumentSet { .. }, _) => self.state.check_consistency(),
            (outcome, _) => Err(format!("{outcome:?}")),
        }
    }

    fn purge(&mut self, a: u8) -> Result<(), String> {
        let number = u64::from(a) % IDS;
        let accepted = self
            .model
            .task(number)
            .is_some_and(|task| task.status.is_terminal() && !task.stops_line());
        let (outcome, _) = self.apply(Request::Purge(id(number)));
        if accepted {
            self.model.tasks.retain(|task| task.id != number);
            self.purged.insert(number);
            // The id may be used again, and leases of the old task then belong to another task.
            self.given.retain(|(_, task)| *task != number);
            same(&outcome, &CommandOutcome::Purged { id: id(number) })
        } else {
            matches!(outcome, CommandOutcome::Rejected(_))
                .then_some(())
                .ok_or(format!("{outcome:?}"))
        }
    }

    /// Compares every task with the model, and checks the promises that are visible in a single state.
    fn compare(&mut self) -> Result<(), String> {
        self.model.forget_rounds();
        if self.state.len() != self.model.tasks.len() {
            return Err(format!(
                "{} tasks instead of {}",
                self.state.len(),
                self.model.tasks.len()
            ));
        }
        let mut leases = BTreeSet::new();
        for expected in &self.model.tasks {
            let Some(task) = self.state.task(id(expected.id)) else {
                return Err(format!("task {} is lost", expected.id));
            };
            let actual = (
                task.queue.as_str(),
                task.status,
                task.attempt,
                task.retry_count,
                task.cancel_requested,
                task.lease_id,
                task.lease_expires_at,
            );
            let running = expected.status == Status::Running;
            let wanted = (
                QUEUES[expected.queue],
                expected.status,
                expected.attempt,
                expected.retries,
                expected.cancel_requested,
                expected.lease.map(lease),
                running.then_some(at(expected.lease_until)),
            );
            if actual != wanted {
                return Err(format!(
                    "task {}: {actual:?} instead of {wanted:?}",
                    expected.id
                ));
            }
            if expected.status == Status::Pending && task.available_at != at(expected.available_at)
            {
                return Err(format!(
                    "task {} is due at {}",
                    expected.id, task.available_at
                ));
            }
            // Promise 3: no two attempts share a lease, and an attempt has one exactly while it runs.
            if running != task.lease_id.is_some()
                || task.lease_id.is_some_and(|lease| !leases.insert(lease))
            {
                return Err(format!("task {} has the wrong lease", expected.id));
            }
            // Promise 6.
            if task.attempt > 1 + expected.explained {
                return Err(format!(
                    "task {} has {} attempts without a reason",
                    expected.id, task.attempt
                ));
            }
        }
        // At most one task of a line is running, and nothing of the line before it is unfinished.
        for running in self
            .state
            .tasks()
            .filter(|task| task.status == Status::Running)
        {
            let Some(line) = running.ordering_line() else {
                continue;
            };
            let place = |task: &Task| task.sequence.max(task.ordering_turn);
            let before = self.state.tasks().find(|other| {
                other.ordering_line().as_ref() == Some(&line)
                    && other.id != running.id
                    && !other.is_settled()
                    && (other.status == Status::Running || place(other) < place(running))
            });
            if let Some(other) = before {
                return Err(format!("task {} runs before {}", running.id, other.id));
            }
        }
        // Promise 1.
        for number in self.submitted.difference(&self.purged) {
            if self.state.task(id(*number)).is_none() {
                return Err(format!("the submitted task {number} is lost"));
            }
        }
        Ok(())
    }

    /// Stops the faults and lets the workers work: everything must finish, and the indexes must still be
    /// consistent.
    pub(crate) fn drain(&mut self) -> Result<(), String> {
        self.state.check_consistency()?;
        // Promise 2: among the holders of one key, at most one is within its validity.
        for queue in QUEUES {
            for key in 0..3 {
                let name = format!("key-{key}");
                let holding = self.state.tasks().filter(|task| {
                    (task.idempotency_queue.as_ref().unwrap_or(&task.queue)).as_str() == queue
                        && task
                            .idempotency_key
                            .as_ref()
                            .is_some_and(|key| key.as_str() == name)
                        && task.key_holds(at(self.now))
                });
                if holding.count() > 1 {
                    return Err(format!("two tasks hold {name} in {queue}"));
                }
            }
        }
        for queue in 0..2 {
            self.pause(queue);
        }
        // Promise 5: each round moves time past every lease and every delay.
        for _ in 0..64 {
            if (self.state.tasks()).all(|task| task.status.is_terminal()) {
                break;
            }
            self.now += 120_000;
            self.expire();
            self.now += 20_000;
            // An operator looks after the lines that stand still.
            let stopping: Vec<u64> = (self.model.tasks.iter())
                .filter(|task| task.stops_line())
                .map(|task| task.id)
                .collect();
            for number in stopping {
                if let Some(task) = self.model.task(number) {
                    task.end(Status::Cancelled);
                }
                self.act(number, Action::Cancel { reason: None }, true)?;
            }
            self.complete_all()?;
            self.compare()?;
        }
        match self.state.tasks().find(|task| !task.status.is_terminal()) {
            Some(task) => Err(format!("task {} never ends: {task:?}", task.id)),
            None => self.state.check_consistency(),
        }
    }

    /// Claims and completes until nothing is due.
    fn complete_all(&mut self) -> Result<(), String> {
        loop {
            let claimed = self.claim_of(None, None, IDS)?;
            if claimed.is_empty() {
                return Ok(());
            }
            for number in claimed {
                let held = self
                    .model
                    .task(number)
                    .and_then(|task| task.lease)
                    .unwrap_or_default();
                if let Some(task) = self.model.task(number) {
                    task.end(Status::Completed);
                }
                self.act(
                    number,
                    Action::Complete {
                        lease: lease(held),
                        output: None,
                    },
                    true,
                )?;
            }
        }
    }
}

fn same(actual: &CommandOutcome, expected: &CommandOutcome) -> Result<(), String> {
    if actual == expected {
        return Ok(());
    }
    Err(format!("{actual:?} instead of {expected:?}"))
}
