//! Redrive: a task moves to another queue.
//!
//! | status | what happens |
//! | --- | --- |
//! | pending | it waits in the other queue, with the retries that it has used and the same due time |
//! | failed | it starts over there, as with a replay |
//!
//! The due time grows by a millisecond even if the task only moves: index entries are named by queue and due time, and a task that is moved
//! away and back must not get the key of an entry whose deletion may still be in flight.
//!
//! Its idempotency key stays in the queue of its submit ([`Task::idempotency_queue`]), so a repeated submit still finds the task. A task with an
//! ordering key has its place in the line of its queue, and is not moved.

use super::{Note, Rejection};
use crate::names::QueueName;
use crate::task::{IdempotencyScope, MOVED_READER, Status, Task};
use crate::time::Timestamp;

impl Task {
    pub(super) fn redrive(&mut self, to: QueueName, now: Timestamp) -> Result<Note, Rejection> {
        if !matches!(self.status, Status::Pending | Status::Failed) {
            return Err(self.wrong_status("redrive"));
        }
        if self.ordering_key.is_some() {
            return Err(Rejection::InLine { action: "redrive" });
        }
        // Also if it has failed there: a request that is repeated must not start the task over a second time.
        if self.queue == to {
            return Err(Rejection::AlreadyInQueue { queue: to });
        }
        if let Some(expires_at) = self.pending_until().filter(|_| self.is_expired(now)) {
            return Err(Rejection::Expired { expires_at });
        }
        if self.status == Status::Failed {
            self.start_over(now);
        } else {
            self.set_due(self.available_at);
        }
        let note = format!("moved from queue {} to {to}", self.queue);
        self.move_to(to);
        Ok(Note::of(None, Some(&note)))
    }

    fn move_to(&mut self, to: QueueName) {
        let from = std::mem::replace(&mut self.queue, to);
        let has_key =
            self.idempotency_key.is_some() && self.idempotency_scope != IdempotencyScope::Global;
        if has_key {
            let home = self.idempotency_queue.take().unwrap_or(from);
            self.idempotency_queue = Some(home).filter(|home| *home != self.queue);
            // It is not lowered when the task comes back: nothing says what else may need it.
            self.min_reader = self.min_reader.max(MOVED_READER);
        }
    }
}
