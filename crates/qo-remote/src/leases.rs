//! Whether it was our own word that ended an attempt.
//!
//! The end of an attempt is told once. If its answer is lost, it is told again, by this engine or, after an error that leaves it in doubt, by
//! the caller; and the second time the lease is gone, which looks as if somebody else had taken the task away. Who really ended the
//! attempt stands in the task's history: only who holds the lease of an attempt can complete it, fail it, release it or put it
//! off, and beside that it can only end because its lease ran out. So if the history shows the very end that was told, for the very attempt
//! of the lease, it was us.
//!
//! Leases are known here if they were handed out here. Without a reason for doubt nothing of this counts: a caller who tells an end twice
//! is told that the lease is lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use qo_core::limits::{EVENT_ERROR_MAX_BYTES, cut_text};
use qo_core::task::EventAction;
use qo_core::{LeaseId, Status, Task};
use qo_engine::{EngineError, Operation};
use qo_store::StoreError;

/// How many leases are remembered; the oldest are forgotten first.
const LEASES_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Leases {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    attempts: BTreeMap<LeaseId, Attempt>,
    order: VecDeque<LeaseId>,
}

#[derive(Debug, Clone, Copy)]
struct Attempt {
    number: u32,
    /// Its end was told, and what came of that is not known.
    in_doubt: bool,
}

impl Leases {
    pub(super) fn remember(&self, tasks: &[Task]) {
        let mut known = self.lock();
        for task in tasks {
            let Some(lease) = task.lease_id else { continue };
            let attempt = Attempt {
                number: task.attempt,
                in_doubt: false,
            };
            if known.attempts.insert(lease, attempt).is_none() {
                known.order.push_back(lease);
            }
        }
        while known.order.len() > LEASES_MAX {
            if let Some(oldest) = known.order.pop_front() {
                known.attempts.remove(&oldest);
            }
        }
    }

    /// Learns what came of telling an end: an error may leave it in doubt.
    pub(super) fn heard(&self, lease: LeaseId, error: &EngineError) {
        let in_doubt = matches!(
            error,
            EngineError::Store(StoreError::Unavailable { in_doubt: true, .. })
        );
        if in_doubt && let Some(attempt) = self.lock().attempts.get_mut(&lease) {
            attempt.in_doubt = true;
        }
    }

    /// The attempt of a lease whose end may have been told before.
    pub(super) fn told_before(&self, lease: LeaseId, repeated: bool) -> Option<u32> {
        let attempt = self.lock().attempts.get(&lease).copied()?;
        (repeated || attempt.in_doubt).then_some(attempt.number)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The event that the end of an attempt leaves in the history.
pub(super) struct EndEvent {
    action: EventAction,
    error: Option<Box<str>>,
}

impl EndEvent {
    /// The event of an operation that ends an attempt, and the lease of that attempt.
    pub(super) fn of(operation: &Operation) -> Option<(LeaseId, Self)> {
        let (action, error) = match operation {
            Operation::Complete { .. } => (EventAction::Completed, None),
            Operation::Fail { failure, .. } => {
                let error = cut_text(&failure.error, EVENT_ERROR_MAX_BYTES);
                (EventAction::Failed, Some(error))
            }
            Operation::Release { .. } => (EventAction::Released, None),
            Operation::Snooze { .. } => (EventAction::Snoozed, None),
            _ => return None,
        };
        Some((operation.lease()?, Self { action, error }))
    }

    /// Whether this attempt of the task ended so.
    pub(super) fn is_end_of(&self, task: &Task, attempt: u32) -> bool {
        let mut events = task.events.iter().rev();
        let end = events.find(|event| {
            event.attempt == attempt
                && event.from == Some(Status::Running)
                && event.action != Some(EventAction::CancelRequested)
        });
        end.is_some_and(|event| {
            event.action == Some(self.action) && (self.error.is_none() || event.error == self.error)
        })
    }
}

#[cfg(test)]
mod tests {
    use qo_core::transition::{Failure, FailureKind};
    use qo_core::{Action, Command, Jitter, Json, OpId, Payload, Submission, TaskId, Timestamp};

    use super::*;

    /// A task whose attempt 1 ended by this action.
    fn ended_by(action: Action) -> Task {
        let id = TaskId::from_random(1);
        let input = Payload::Inline(Json::null());
        let submission = Submission::new(id, "t".parse().unwrap(), input);
        let at = Timestamp::from_millis(1_000);
        let mut task = qo_core::transition::submit(submission, OpId::from_random(1), at).unwrap();
        let claim = Action::Claim {
            worker: "w".parse().unwrap(),
            lease: LeaseId::from_random(7),
            lease_ms: 1_000,
        };
        for action in [claim, action] {
            let op = OpId::from_random(2);
            task.apply(Command { op, action }, at).unwrap();
        }
        task
    }

    /// A handler's error may say anything, also what a release used to leave in the history.
    #[test]
    fn an_error_in_the_words_of_a_release_is_no_release() {
        let lease = LeaseId::from_random(7);
        let failed = ended_by(Action::Fail {
            lease,
            failure: Failure {
                kind: FailureKind::Retryable,
                error: "released by its worker".into(),
            },
            jitter: Jitter::new(0),
        });
        let released = ended_by(Action::Release { lease });
        let (_, release) = EndEvent::of(&Operation::Release { lease }).unwrap();
        assert!(release.is_end_of(&released, 1));
        assert!(!release.is_end_of(&failed, 1));
        assert!(!release.is_end_of(&released, 2));
    }
}
