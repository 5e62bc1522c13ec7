//! Finds out whether this client itself ended an attempt.
//!
//! A result of an attempt is sent once. If its response is lost, it is sent again: by this engine or, after an error with an unknown
//! outcome, by the caller. The second request finds the lease gone, as if another worker had taken the task. The task's history
//! shows who ended the attempt: only the holder of the lease can complete, fail, release or snooze it. Otherwise an attempt can
//! only end because its lease expires. So if the history shows the same end for the attempt of this lease, this client ended it.
//!
//! Only leases that this client claimed are known. This check applies only if an outcome is unknown: a caller that sends a result
//! twice without a reason gets the error that the lease is lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use qo_core::limits::{EVENT_ERROR_MAX_BYTES, cut_text};
use qo_core::task::EventAction;
use qo_core::{LeaseId, Status, Task};
use qo_engine::{EngineError, Operation};
use qo_store::StoreError;

/// The most leases in the cache. The oldest are dropped first.
const LEASES_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Leases {
    cache: Mutex<LeaseCache>,
}

#[derive(Debug, Default)]
struct LeaseCache {
    attempts: BTreeMap<LeaseId, Attempt>,
    order: VecDeque<LeaseId>,
}

#[derive(Debug, Clone, Copy)]
struct Attempt {
    number: u32,
    /// Its result was sent, and the outcome is unknown.
    in_doubt: bool,
}

impl Leases {
    pub(super) fn remember(&self, tasks: &[Task]) {
        let mut cache = self.lock();
        for task in tasks {
            let Some(lease) = task.lease_id else { continue };
            let attempt = Attempt {
                number: task.attempt,
                in_doubt: false,
            };
            if cache.attempts.insert(lease, attempt).is_none() {
                cache.order.push_back(lease);
            }
        }
        while cache.order.len() > LEASES_MAX {
            if let Some(oldest) = cache.order.pop_front() {
                cache.attempts.remove(&oldest);
            }
        }
    }

    /// Records an error after a result was sent. The error may leave the outcome unknown.
    pub(super) fn record_error(&self, lease: LeaseId, error: &EngineError) {
        let in_doubt = matches!(
            error,
            EngineError::Store(StoreError::Unavailable { in_doubt: true, .. })
        );
        if in_doubt && let Some(attempt) = self.lock().attempts.get_mut(&lease) {
            attempt.in_doubt = true;
        }
    }

    /// The attempt of a lease whose result may have been applied already.
    pub(super) fn attempt_in_doubt(&self, lease: LeaseId, repeated: bool) -> Option<u32> {
        let attempt = self.lock().attempts.get(&lease).copied()?;
        (repeated || attempt.in_doubt).then_some(attempt.number)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LeaseCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The history event of the end of an attempt.
pub(super) struct EndEvent {
    action: EventAction,
    error: Option<Box<str>>,
}

impl EndEvent {
    /// The event of an operation that ends an attempt, and the lease of that attempt.
    pub(super) fn of(operation: &Operation) -> Option<(LeaseId, Self)> {
        let (action, error) = match operation {
            Operation::Logged { operation, .. } => return Self::of(operation),
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

    /// Whether this attempt of the task ended with this event.
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

    /// A handler's error may have any text, such as the text that old versions wrote for a release.
    #[test]
    fn a_failure_with_the_text_of_a_release_is_not_a_release() {
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
