//! The outcomes of recent commands, so that repeating one has no further effect.
//!
//! A caller whose response was lost sends the same command again with the same operation id, and gets the original
//! outcome. The memory is bounded: a repeat after tens of thousands of other commands is evaluated against the
//! current state, which still rejects a second submit of an id and a second completion of a lease.

use std::collections::{BTreeMap, VecDeque};

use super::Outcome;
use crate::id::OpId;

/// The number of remembered outcomes.
pub const REQUESTS_REMEMBERED: usize = 65_536;

#[derive(Debug, Clone)]
pub(super) struct RecentRequests {
    limit: usize,
    /// Oldest first.
    order: VecDeque<OpId>,
    outcomes: BTreeMap<OpId, Outcome>,
}

impl RecentRequests {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            order: VecDeque::new(),
            outcomes: BTreeMap::new(),
        }
    }

    pub(super) fn outcome_of(&self, op: OpId) -> Option<&Outcome> {
        self.outcomes.get(&op)
    }

    pub(super) fn remember(&mut self, op: OpId, outcome: &Outcome) {
        if self.limit == 0 {
            return;
        }
        let outcome = outcome.clone();
        if self.outcomes.insert(op, outcome).is_none() {
            self.order.push_back(op);
        }
        if self.order.len() > self.limit
            && let Some(oldest) = self.order.pop_front()
        {
            self.outcomes.remove(&oldest);
        }
    }
}

impl Default for RecentRequests {
    fn default() -> Self {
        Self::new(REQUESTS_REMEMBERED)
    }
}
