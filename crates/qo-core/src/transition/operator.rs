//! Transitions that operators request: cancel, run now, replay, archive, unarchive.

use super::{Note, Rejection};
use crate::limits::{ERROR_MAX_BYTES, cut_text};
use crate::task::{Status, Task};
use crate::time::Timestamp;

const MADE_DUE: &str = "made due at once";

impl Task {
    /// Makes a scheduled task due now, whether it waits for a delay, a retry or a snooze.
    ///
    /// This is the only change that moves a due time back. The new due time is now. No earlier entry of the task has it in its
    /// key unless clocks jump, so deleting the old entry does not remove the new one.
    pub(super) fn run_now(&mut self, now: Timestamp) -> Result<Note, Rejection> {
        if self.status != Status::Pending {
            return Err(self.wrong_status("run now"));
        }
        if let Some(expires_at) = self.pending_until().filter(|_| self.is_expired(now)) {
            return Err(Rejection::Expired { expires_at });
        }
        if self.available_at <= now {
            return Err(Rejection::AlreadyDue {
                available_at: self.available_at,
            });
        }
        self.available_at = now;
        Ok(Note::of(None, Some(MADE_DUE)))
    }

    pub(super) fn cancel(
        &mut self,
        reason: Option<&str>,
        now: Timestamp,
    ) -> Result<Note, Rejection> {
        let reason = cut_text(reason.unwrap_or("cancelled"), ERROR_MAX_BYTES);
        match self.status {
            Status::Pending => {
                self.last_error = Some(reason.clone());
                self.end(Status::Cancelled, now);
                Ok(Note::of(None, Some(&reason)))
            }
            // Only the worker can stop a running attempt. It learns of the request at its next renewal. If the worker is dead, the
            // request takes effect when the lease expires.
            Status::Running if self.cancel_requested => Err(Rejection::CancelAlreadyRequested),
            Status::Running => {
                self.cancel_requested = true;
                self.last_error = Some(reason.clone());
                Ok(Note::of(self.worker_id.clone(), Some(&reason)))
            }
            // It has failed already, and its error is worth keeping. Nobody waits for it any more.
            Status::Failed if self.stops_line() => {
                self.end(Status::Cancelled, now);
                Ok(Note::of(None, Some(&reason)))
            }
            _ => Err(self.wrong_status("cancel")),
        }
    }

    pub(super) fn replay(&mut self, now: Timestamp) -> Result<Note, Rejection> {
        if !matches!(
            self.status,
            Status::Completed | Status::Failed | Status::Cancelled
        ) {
            return Err(self.wrong_status("replay"));
        }
        // A task that stops its line is still at the head of it. Any other joins the line again.
        if self.ordering_key.is_some() && !self.stops_line() {
            self.ordering_turn += 1;
        }
        self.start_over(now);
        Ok(Note::plain())
    }

    /// Makes a finished task pending again, as if it had not run.
    pub(super) fn start_over(&mut self, now: Timestamp) {
        self.status = Status::Pending;
        self.set_due(now);
        self.retry_count = 0;
        self.completed_at = None;
        self.started_at = None;
        self.worker_id = None;
        self.progress = None;
        // A replayed task no longer expires: its operator wants it to run.
        self.expires_at = None;
        self.max_wait_ms = None;
        self.set_output(None);
        // The attempt number stays: it is the fencing token, which must never be issued twice.
    }

    pub(super) fn archive(&mut self) -> Result<Note, Rejection> {
        if !matches!(
            self.status,
            Status::Completed | Status::Failed | Status::Cancelled
        ) {
            return Err(self.wrong_status("archive"));
        }
        if self.stops_line() {
            return Err(Rejection::StopsLine { action: "archive" });
        }
        self.status = Status::Archived;
        Ok(Note::plain())
    }

    pub(super) fn unarchive(&mut self) -> Result<Note, Rejection> {
        if self.status != Status::Archived {
            return Err(self.wrong_status("unarchive"));
        }
        self.status = self.status_before_archive();
        Ok(Note::plain())
    }

    /// The task's status before it was archived. The event of the archive is the newest one, so it is never dropped. A record
    /// without events counts as failed, because a failed task can be replayed.
    fn status_before_archive(&self) -> Status {
        self.events
            .iter()
            .rev()
            .find(|event| event.to == Status::Archived)
            .and_then(|event| event.from)
            .filter(|from| matches!(from, Status::Completed | Status::Failed | Status::Cancelled))
            .unwrap_or(Status::Failed)
    }
}
