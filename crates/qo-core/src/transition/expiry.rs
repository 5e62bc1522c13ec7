//! The expiry of a pending task.

use super::{Note, Rejection};
use crate::task::{Status, Task};
use crate::time::Timestamp;

const REASON: &str = "expired before it was claimed";

impl Task {
    pub(super) fn expire(&mut self, now: Timestamp) -> Result<Note, Rejection> {
        if self.status != Status::Pending {
            return Err(self.wrong_status("expire"));
        }
        if !self.is_expired(now) {
            return Err(Rejection::NotExpired {
                expires_at: self.expires_at,
            });
        }
        self.last_error = Some(REASON.into());
        self.end(Status::Cancelled, now);
        Ok(Note::of(None, Some(REASON)))
    }
}
