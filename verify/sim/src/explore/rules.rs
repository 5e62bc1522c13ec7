//! Every sequence of commands to the core, up to a depth: two workers, two tasks, one death.

use std::collections::BTreeSet;

use qo_core::transition::{Failure, FailureKind, submit};
use qo_core::{
    Action, Command, Jitter, Json, LeaseId, OpId, Payload, Status, Submission, Task, TaskId,
    Timestamp,
};

/// The duration of a lease.
const LEASE_MS: u64 = 30_000;
/// How often time may jump past the end of a lease.
const JUMPS_MAX: u8 = 2;

/// A step of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    Claim { worker: usize, task: usize },
    Complete { worker: usize, task: usize },
    Fail { worker: usize, task: usize },
    Renew { worker: usize, task: usize },
    Release { worker: usize, task: usize },
    ExpireLease { task: usize },
    Cancel { task: usize },
    Replay { task: usize },
    Archive { task: usize },
    Die { worker: usize },
    LeasesRunOut,
}

/// The complete state of the model.
#[derive(Debug, Clone)]
struct ModelState {
    tasks: [Task; 2],
    /// The last lease of each worker on each task, valid or not.
    leases: [[Option<LeaseId>; 2]; 2],
    dead: Option<usize>,
    jumps: u8,
    ops: u128,
}

/// The result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explored {
    /// The number of distinct states.
    pub states: usize,
    /// The number of commands that were tried.
    pub moves: u64,
}

impl ModelState {
    fn new() -> Option<Self> {
        let task = |number| {
            let id = TaskId::from_random(number);
            let mut submission =
                Submission::new(id, "job".parse().ok()?, Payload::Inline(Json::null()));
            submission.max_retries = Some(1);
            submit(submission, OpId::from_random(number), Timestamp::MIN).ok()
        };
        Some(Self {
            tasks: [task(1)?, task(2)?],
            leases: [[None; 2]; 2],
            dead: None,
            jumps: 0,
            ops: 10,
        })
    }

    /// Later than every scheduled time and the end of every expired lease.
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(0).plus_millis(u64::from(self.jumps) * 10 * LEASE_MS)
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for task in 0..2 {
            for worker in (0..2).filter(|worker| self.dead != Some(*worker)) {
                moves.push(Move::Claim { worker, task });
                if self.leases[worker][task].is_some() {
                    moves.extend([
                        Move::Complete { worker, task },
                        Move::Fail { worker, task },
                        Move::Renew { worker, task },
                        Move::Release { worker, task },
                    ]);
                }
            }
            moves.extend([
                Move::ExpireLease { task },
                Move::Cancel { task },
                Move::Replay { task },
                Move::Archive { task },
            ]);
        }
        if self.dead.is_none() {
            moves.extend([Move::Die { worker: 0 }, Move::Die { worker: 1 }]);
        }
        if self.jumps < JUMPS_MAX {
            moves.push(Move::LeasesRunOut);
        }
        moves
    }

    /// Makes a move, and returns a violation if there is one.
    fn make(&mut self, one: Move) -> Result<(), String> {
        let (task, action, presented) = match one {
            Move::Die { worker } => {
                self.dead = Some(worker);
                return Ok(());
            }
            Move::LeasesRunOut => {
                self.jumps += 1;
                return Ok(());
            }
            Move::Claim { worker, task } => {
                self.ops += 1;
                let lease = LeaseId::from_random(self.ops);
                let name = ["one", "two"][worker].parse().map_err(|_| "invalid name")?;
                let action = Action::Claim {
                    worker: name,
                    lease,
                    lease_ms: LEASE_MS,
                };
                self.apply(task, action, None, one)?;
                if self.tasks[task].lease_id == Some(lease) {
                    self.leases[worker][task] = Some(lease);
                }
                return Ok(());
            }
            Move::Complete { worker, task } => {
                let lease = self.leases[worker][task].ok_or("no lease")?;
                let output = None;
                (task, Action::Complete { lease, output }, Some(lease))
            }
            Move::Fail { worker, task } => {
                let lease = self.leases[worker][task].ok_or("no lease")?;
                let failure = Failure {
                    kind: FailureKind::Retryable,
                    error: "no".into(),
                };
                let jitter = Jitter::new(0);
                let action = Action::Fail {
                    lease,
                    failure,
                    jitter,
                };
                (task, action, Some(lease))
            }
            Move::Renew { worker, task } => {
                let lease = self.leases[worker][task].ok_or("no lease")?;
                let lease_ms = LEASE_MS;
                (task, Action::Renew { lease, lease_ms }, Some(lease))
            }
            Move::Release { worker, task } => {
                let lease = self.leases[worker][task].ok_or("no lease")?;
                (task, Action::Release { lease }, Some(lease))
            }
            Move::ExpireLease { task } => {
                let jitter = Jitter::new(0);
                (task, Action::ExpireLease { jitter }, None)
            }
            Move::Cancel { task } => (task, Action::Cancel { reason: None }, None),
            Move::Replay { task } => (task, Action::Replay, None),
            Move::Archive { task } => (task, Action::Archive, None),
        };
        self.apply(task, action, presented, one)
    }

    fn apply(
        &mut self,
        place: usize,
        action: Action,
        presented: Option<LeaseId>,
        one: Move,
    ) -> Result<(), String> {
        self.ops += 1;
        let now = self.now();
        let before = self.tasks[place].clone();
        let op = OpId::from_random(self.ops);
        let result = self.tasks[place].apply(Command { op, action }, now);
        let after = &self.tasks[place];
        if result.is_err() {
            return if *after == before {
                Ok(())
            } else {
                Err(format!("{one:?} was rejected and changed the task"))
            };
        }
        let current = before.status == Status::Running && before.lease_id == presented;
        if presented.is_some() && !current {
            return Err(format!("{one:?} was accepted with a stale lease"));
        }
        if before.status.is_terminal() && !matches!(one, Move::Replay { .. } | Move::Archive { .. })
        {
            return Err(format!("{one:?} changed a task that was {}", before.status));
        }
        let claims = u32::from(matches!(one, Move::Claim { .. }));
        if after.attempt != before.attempt + claims || after.revision != before.revision + 1 {
            return Err(format!("{one:?} miscounted the attempt or the revision"));
        }
        if after.retry_count > after.max_retries {
            return Err(format!("{one:?} retried too often"));
        }
        if (after.status == Status::Running) != after.lease_id.is_some() {
            return Err(format!(
                "{one:?} left a finished task with a lease, or a running one without"
            ));
        }
        if matches!(one, Move::ExpireLease { .. }) && before.lease_expires_at >= Some(now) {
            return Err(format!("{one:?} ended a valid lease"));
        }
        Ok(())
    }

    /// Identifies the state. Ids and times count only by their meaning.
    fn key(&self) -> Vec<u8> {
        let now = self.now();
        let mut key = vec![
            self.jumps,
            self.dead.map_or(9, |worker| u8::from(worker == 1)),
        ];
        for (place, task) in self.tasks.iter().enumerate() {
            key.push(task.status as u8);
            key.push(u8::try_from(task.attempt.min(200)).unwrap_or(200));
            key.push(u8::try_from(task.retry_count).unwrap_or(200));
            key.push(u8::from(task.cancel_requested));
            key.push(u8::from(task.available_at <= now));
            key.push(u8::from(task.is_lease_expired(now)));
            for leases in &self.leases {
                let lease = leases[place];
                key.push(match lease {
                    None => 0,
                    Some(_) if lease == task.lease_id => 1,
                    Some(_) => 2,
                });
            }
        }
        key
    }
}

/// Tries every sequence up to a depth. Returns the first violation with the moves that lead to it.
pub fn explore(depth: usize) -> Result<Explored, String> {
    let begin = ModelState::new().ok_or("cannot create the first state")?;
    let mut seen = BTreeSet::from([begin.key()]);
    let mut front = vec![(begin, Vec::new())];
    let mut moves = 0;
    for _ in 0..depth {
        let mut next_front = Vec::new();
        for (model, path) in front {
            for one in model.moves() {
                moves += 1;
                let mut next = model.clone();
                let mut next_path = path.clone();
                next_path.push(one);
                next.make(one)
                    .map_err(|error| format!("{error}, after {next_path:?}"))?;
                if seen.insert(next.key()) {
                    next_front.push((next, next_path));
                }
            }
        }
        front = next_front;
    }
    Ok(Explored {
        states: seen.len(),
        moves,
    })
}
