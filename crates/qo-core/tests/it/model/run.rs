//! Runs the state machine and the model side by side.

mod operator;
mod promises;

use std::collections::BTreeSet;

use qo_core::queue_state::{Changes, Claim, CommandOutcome, Request, StateCommand};
use qo_core::task::{IdempotencyScope, KeyHold, OnConflict, OnFailure, OrderingRule, Uniqueness};
use qo_core::transition::{Failure, FailureKind, Idempotency, ProgressReport};
use qo_core::{Action, Jitter, Payload, QueueState, Rejection, Status, Submission, Task, TaskId};

use super::Step;
use super::reference::{Model, ModelTask};
use crate::support::{at, id, json, lease, op, submission};

const QUEUES: [&str; 2] = ["default", "bulk"];
const TYPES: [&str; 2] = ["send_email", "resize"];
const IDS: u64 = 12;
const LEASE_MS: u64 = 60_000;

/// The input that a submit has.
fn input_of(number: u8) -> Payload {
    json(&format!("[{number}]"))
}

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
        let hold = KeyHold::ALL[usize::from(a / 5) % 3];
        // Only a submit with a due time in the future can postpone a task.
        let choices = if available_at > self.now { 4 } else { 2 };
        let on_conflict = OnConflict::ALL[usize::from(b / 3) % choices];
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
            uniqueness: key.map_or_else(Uniqueness::default, |_| Uniqueness { hold, on_conflict }),
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
            input: input_of(a),
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
                hold,
                input: a,
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
            on_conflict,
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
}

fn same(actual: &CommandOutcome, expected: &CommandOutcome) -> Result<(), String> {
    if actual == expected {
        return Ok(());
    }
    Err(format!("{actual:?} instead of {expected:?}"))
}
