//! Claims: the most urgent tasks that the pauses and limits allow.

use std::collections::BTreeSet;

use super::limited::Selected;
use super::{Changes, Claim, Claimed, CommandOutcome, QueueState};
use crate::id::{OpId, TaskId};
use crate::limits::CLAIM_MAX_TASKS;
use crate::time::Timestamp;
use crate::transition::{Action, Command};

/// The number of expired tasks that a claim cancels before it leaves the rest to [`super::Request::ExpireLeases`].
const EXPIRED_PER_CLAIM: usize = 1_000;

impl QueueState {
    pub(super) fn claim(
        &mut self,
        claim: Claim,
        op: OpId,
        now: Timestamp,
        changes: &mut Changes,
    ) -> CommandOutcome {
        let mut leases = claim.leases.into_iter().take(CLAIM_MAX_TASKS).peekable();
        let mut claimed = Vec::new();
        let mut expired = 0;
        let mut counting = BTreeSet::new();
        while leases.peek().is_some() && expired < EXPIRED_PER_CLAIM {
            let wanted = leases.size_hint().0;
            let due = self.due(&claim.queues, &claim.types, now, wanted);
            if due.is_empty() {
                break;
            }
            for id in due {
                let Some(&lease) = leases.peek() else { break };
                // The tasks before it may have taken the last slot. The first one always has room.
                if !self.has_room(id, now) {
                    continue;
                }
                let action = if self.task(id).is_some_and(|task| task.is_expired(now)) {
                    expired += 1;
                    Action::Expire
                } else {
                    Action::Claim {
                        worker: claim.worker.clone(),
                        lease,
                        lease_ms: claim.lease_ms,
                    }
                };
                let is_claim = matches!(action, Action::Claim { .. });
                match self.change(id, Command { op, action }, now) {
                    Ok(()) => changes.tasks.push(id),
                    // A due task can be claimed, so only an invalid claim is rejected, and then
                    // as a whole.
                    Err(rejection) => return CommandOutcome::Rejected(rejection),
                }
                if is_claim {
                    leases.next();
                    claimed.push(Claimed { id, lease });
                    if let Some(task) = self.tasks.get(&id) {
                        counting.extend(self.ready.record_start(Selected::of(task), now));
                        self.ready.take_turn(Selected::of(task), task.priority);
                    }
                    if self.ready.takes_turns() && !self.has_room(id, now) {
                        // A limit is full from now on, which may make it the turn of other groups.
                        break;
                    }
                } else if self.task(id).is_some_and(|task| {
                    let of = Selected::of(task);
                    task.ordering_key.is_some()
                        || self.ready.is_limited(of)
                        || self.ready.has_turns(of)
                }) {
                    // The next task of its key, its limits or its group may be more urgent than the rest.
                    break;
                }
            }
        }
        for name in counting {
            self.store_starts(name, changes);
        }
        CommandOutcome::Claimed(claimed)
    }

    /// Whether the limits of a task have room for one more.
    fn has_room(&self, id: TaskId, now: Timestamp) -> bool {
        let task = self.task(id);
        task.is_none_or(|task| self.ready.has_room(Selected::of(task), now))
    }
}
