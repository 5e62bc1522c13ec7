//! Pending tasks that were not claimed in time: they end, or a claim of them fails.

use super::{Note, Rejection};
use crate::task::{Status, Task};
use crate::time::Timestamp;

const EXPIRED: &str = "expired before it was claimed";

impl Task {
    /// Cancels a task that its submitter let expire, and fails one that has waited longer than its queue allows.
    pub(super) fn expire(&mut self, now: Timestamp) -> Result<Note, Rejection> {
        if self.status != Status::Pending {
            return Err(self.wrong_status("expire"));
        }
        if !self.is_expired(now) {
            return Err(Rejection::NotExpired {
                expires_at: self.pending_until(),
            });
        }
        let (status, reason) = match self.max_wait_ms {
            Some(max_wait_ms) if self.expires_at != self.pending_until() => (
                Status::Failed,
                format!(
                    "waited longer than {max_wait_ms} ms, the maximum wait of the queue {}",
                    self.queue
                ),
            ),
            _ => (Status::Cancelled, EXPIRED.to_owned()),
        };
        self.last_error = Some(reason.as_str().into());
        self.end(status, now);
        Ok(Note::of(None, Some(&reason)))
    }

    /// The new revision is all that changes: it makes every claim fail that is about to swap the previous one.
    pub(super) fn fence(&self) -> Result<Note, Rejection> {
        if self.status == Status::Pending {
            Ok(Note::Silent)
        } else {
            Err(self.wrong_status("fence"))
        }
    }
}
