//! The outcomes of recent commands, so that a repeat of one has no further effect.
//!
//! A caller whose answer was lost sends the same command again, under the same operation id. What it then gets is what it
//! would have got the first time. The memory is bounded: a repeat that comes after tens of thousands of other commands is
//! judged by the state alone, which still refuses a second submit of an id and a second completion of a lease.

use std::collections::{BTreeMap, VecDeque};

use super::Outcome;
use crate::id::OpId;

/// How many outcomes are remembered.
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
