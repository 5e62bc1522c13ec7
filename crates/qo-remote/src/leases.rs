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
use qo_core::transition::{RELEASED, SNOOZED};
use qo_core::{LeaseId, Status, Task};
use qo_store::StoreError;

use crate::wire::Outcome;
use qo_engine::EngineError;

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

/// The lease of an attempt whose end this is; nothing, if the attempt goes on.
pub(super) fn ended_lease(outcome: &Outcome) -> Option<LeaseId> {
    match outcome {
        Outcome::Complete(body) => Some(body.lease_id),
        Outcome::Fail(body) => Some(body.lease_id),
        Outcome::Release(body) => Some(body.lease_id),
        Outcome::Snooze(body) => Some(body.lease_id),
        Outcome::Renew(_) | Outcome::Progress(_) => None,
    }
}

/// What the history says of an end, if it is the one that was told.
pub(super) enum Mark {
    Completed,
    Said(Box<str>),
}

impl Mark {
    /// What an outcome leaves in the history; nothing, if the attempt goes on.
    pub(super) fn of(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Complete(_) => Some(Self::Completed),
            Outcome::Fail(body) => Some(Self::Said(cut_text(&body.error, EVENT_ERROR_MAX_BYTES))),
            Outcome::Release(_) => Some(Self::Said(RELEASED.into())),
            Outcome::Snooze(_) => Some(Self::Said(SNOOZED.into())),
            Outcome::Renew(_) | Outcome::Progress(_) => None,
        }
    }

    /// Whether this attempt of the task ended so.
    pub(super) fn is_of(&self, task: &Task, attempt: u32) -> bool {
        let mut events = task.events.iter().rev();
        let end =
            events.find(|event| event.attempt == attempt && event.from == Some(Status::Running));
        end.is_some_and(|event| match self {
            Self::Completed => event.to == Status::Completed,
            Self::Said(text) => event.error.as_ref() == Some(text),
        })
    }
}
