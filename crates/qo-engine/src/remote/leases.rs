//! Which attempt a lease belongs to, for the leases that were handed out here.
//!
//! It answers one question: a complete was sent twice because its first answer was lost, and the second copy finds its lease gone;
//! was it the first copy that completed the task? Only who holds the lease of an attempt can complete it, so that a task which is
//! completed in that very attempt was completed by us.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use qo_core::{LeaseId, Rejection, Status, Task};

use crate::error::EngineError;

/// How many leases are remembered; the oldest are forgotten first.
const LEASES_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Leases {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    attempts: BTreeMap<LeaseId, u32>,
    order: VecDeque<LeaseId>,
}

impl Leases {
    pub(super) fn remember(&self, tasks: &[Task]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for task in tasks {
            let Some(lease) = task.lease_id else { continue };
            if known.attempts.insert(lease, task.attempt).is_none() {
                known.order.push_back(lease);
            }
        }
        while known.order.len() > LEASES_MAX {
            if let Some(oldest) = known.order.pop_front() {
                known.attempts.remove(&oldest);
            }
        }
    }

    pub(super) fn completed_by_own_copy(&self, lease: LeaseId, error: &EngineError) -> bool {
        let EngineError::Rejected(Rejection::LeaseLost {
            status: Status::Completed,
            attempt,
            ..
        }) = error
        else {
            return false;
        };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.attempts.get(&lease) == Some(attempt)
    }
}
