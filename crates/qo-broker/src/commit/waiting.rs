//! Claims that wait for tasks. They are served in the order of their arrival.

use std::collections::VecDeque;
use std::time::Duration;

use qo_core::Timestamp;
use qo_engine::EngineError;

use super::CommitLoop;
use crate::journal::{GroupChanges, Journal};
use crate::message::{ClaimCall, Claimed, Message, QueuedMessage};

/// The claims that wait, the oldest first.
#[derive(Debug, Default)]
pub(super) struct ClaimLine {
    calls: VecDeque<ClaimCall>,
    last_arrival: u64,
}

impl ClaimLine {
    /// Adds a claim: at the end if it is new, at its place if its group is applied again.
    pub(super) fn add(&mut self, mut call: ClaimCall) {
        let arrival = call.request.arrival.unwrap_or_else(|| {
            self.last_arrival += 1;
            self.last_arrival
        });
        call.request.arrival = Some(arrival);
        let place = self
            .calls
            .partition_point(|other| other.request.arrival < Some(arrival));
        self.calls.insert(place, call);
    }

    /// The number of the last claim that arrived.
    pub(super) fn last_arrival(&self) -> u64 {
        self.last_arrival
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// When the first wait ends.
    pub(super) fn first_deadline(&self) -> Option<Duration> {
        self.calls.iter().map(|call| call.request.until).min()
    }

    /// Refuses the claims whose wait has ended, because the store does not respond.
    pub(super) fn refuse_overdue(&mut self, at: Duration, error: &EngineError) {
        for call in std::mem::take(&mut self.calls) {
            if call.request.until > at {
                self.calls.push_back(call);
            } else {
                call.refuse(error);
            }
        }
    }

    /// Refuses all claims.
    pub(super) fn refuse_all(&mut self, error: &EngineError) {
        for call in self.calls.drain(..) {
            call.refuse(error);
        }
    }
}

impl<J: Journal> CommitLoop<J> {
    /// Gives due tasks to waiting claims, and an empty response to claims whose wait is over. Claims with a number above `arrived_before`
    /// have just arrived. Returns whether the journal must confirm that the state is the newest.
    pub(super) fn serve_waiting(
        &mut self,
        now: Timestamp,
        arrived_before: u64,
        changes: &mut GroupChanges,
        members: &mut Vec<QueuedMessage>,
    ) -> bool {
        let is_due = self.next_due.is_some_and(|due| due <= now);
        // Otherwise nothing has become claimable for the claims that were here before.
        let may_serve = self.reloaded || changes.may_be_claimable || is_due;
        self.reloaded = false;
        let at = self.applier.runtime.monotonic();
        let mut confirm = false;
        let mut still_waiting = VecDeque::with_capacity(self.waiting.calls.len());
        for mut call in std::mem::take(&mut self.waiting.calls) {
            if call.is_abandoned() {
                continue;
            }
            let is_new = call.request.arrival > Some(arrived_before);
            let claimed = if may_serve || is_new {
                self.applier.claim(&call.request, now, changes)
            } else {
                Ok(Vec::new())
            };
            let is_empty = claimed.as_ref().is_ok_and(Vec::is_empty);
            if is_empty && call.request.until > at {
                // Another process may have submitted a task for it.
                confirm |= is_new && self.journal.poll_intervals().is_some();
                still_waiting.push_back(call);
                continue;
            }
            let response = if is_empty {
                self.applier.empty_claim_response(&call.request)
            } else {
                claimed
            };
            let says_nothing = response.as_ref().is_ok_and(Vec::is_empty);
            changes.reads_state |= !says_nothing;
            confirm = true;
            call.respond(response.map(Claimed::from));
            members.push(Message::Claim(call).into());
        }
        self.waiting.calls = still_waiting;
        self.next_due = if self.waiting.is_empty() {
            None
        } else {
            self.applier.state.next_due(now)
        };
        confirm
    }
}
