//! The end of an attempt: complete, fail, release, snooze or an expired lease.
//!
//! Every return to pending goes through [`Task::return_to_pending`], where a requested cancel takes effect. Every counted
//! failure goes through [`Task::retry_or_give_up`]. The retries therefore bound the attempts of a task whose worker dies as
//! well as those of a task whose handler fails.

use super::submit::check_payload;
use super::{Failure, FailureKind, Note, Rejection};
use crate::id::LeaseId;
use crate::limits::{DELAY_MAX_MS, ERROR_MAX_BYTES, cut_text};
use crate::payload::Payload;
use crate::retry::Jitter;
use crate::task::{Status, Task};
use crate::time::Timestamp;

const RELEASED: &str = "released by its worker";
const SNOOZED: &str = "snoozed";
const LEASE_EXPIRED: &str = "the lease expired: the worker died, stalled or lost its connection";

impl Task {
    pub(super) fn complete(
        &mut self,
        lease: LeaseId,
        output: Option<Payload>,
        now: Timestamp,
    ) -> Result<Note, Rejection> {
        self.check_lease(lease)?;
        if let Some(output) = &output {
            check_payload("output", output)?;
        }
        let worker = self.worker_id.clone();
        self.set_output(output);
        self.end(Status::Completed, now);
        Ok(Note::of(worker, None))
    }

    pub(super) fn fail(
        &mut self,
        lease: LeaseId,
        failure: &Failure,
        jitter: Jitter,
        now: Timestamp,
    ) -> Result<Note, Rejection> {
        self.check_lease(lease)?;
        let worker = self.worker_id.clone();
        let error = cut_text(&failure.error, ERROR_MAX_BYTES);
        self.last_error = Some(error.clone());
        match failure.kind {
            FailureKind::Retryable | FailureKind::Timeout => self.retry_or_give_up(jitter, now),
            FailureKind::Permanent => self.end(Status::Failed, now),
            FailureKind::Cancelled => self.end(Status::Cancelled, now),
        }
        Ok(Note::Event {
            attempt_worker: worker,
            error: Some(error),
        })
    }

    pub(super) fn release(&mut self, lease: LeaseId, now: Timestamp) -> Result<Note, Rejection> {
        self.check_lease(lease)?;
        let worker = self.worker_id.clone();
        self.return_to_pending(now, now);
        Ok(Note::of(worker, Some(RELEASED)))
    }

    pub(super) fn snooze(
        &mut self,
        lease: LeaseId,
        delay_ms: u64,
        now: Timestamp,
    ) -> Result<Note, Rejection> {
        self.check_lease(lease)?;
        if delay_ms > DELAY_MAX_MS {
            return Err(Rejection::OutOfBounds {
                field: "delay_ms",
                allowed: "at most a year",
            });
        }
        let worker = self.worker_id.clone();
        self.return_to_pending(now.plus_millis(delay_ms), now);
        Ok(Note::of(worker, Some(SNOOZED)))
    }

    pub(super) fn expire_lease(
        &mut self,
        jitter: Jitter,
        now: Timestamp,
    ) -> Result<Note, Rejection> {
        if self.status != Status::Running {
            return Err(self.wrong_status("expire the lease of"));
        }
        if let Some(lease_expires_at) = self
            .lease_expires_at
            .filter(|_| !self.is_lease_expired(now))
        {
            return Err(Rejection::LeaseHolds { lease_expires_at });
        }
        let worker = self.worker_id.clone();
        self.last_error = Some(LEASE_EXPIRED.into());
        self.retry_or_give_up(jitter, now);
        Ok(Note::of(worker, Some(LEASE_EXPIRED)))
    }

    /// Schedules the next attempt, or fails the task if no retries are left.
    fn retry_or_give_up(&mut self, jitter: Jitter, now: Timestamp) {
        if self.retry_count >= self.max_retries {
            self.end(Status::Failed, now);
        } else {
            let wait_ms = self.retry_policy.backoff_ms(self.retry_count, jitter);
            self.retry_count += 1;
            self.return_to_pending(now.plus_millis(wait_ms), now);
        }
    }

    /// Returns the task to pending, or cancels it if a cancel was requested.
    fn return_to_pending(&mut self, available_at: Timestamp, now: Timestamp) {
        if self.cancel_requested {
            self.end(Status::Cancelled, now);
            return;
        }
        self.status = Status::Pending;
        self.set_due(available_at);
        self.worker_id = None;
        self.started_at = None;
        self.progress = None;
        self.drop_lease();
    }

    /// Sets the due time, always later than the previous one. The key of the task's ready entry contains the due time.
    /// Because no key is used twice, a late deletion of an old entry never removes the new one.
    pub(super) fn set_due(&mut self, available_at: Timestamp) {
        self.available_at = available_at.max(self.available_at.plus_millis(1));
    }

    /// Finishes the task with this status.
    pub(super) fn end(&mut self, status: Status, now: Timestamp) {
        self.status = status;
        self.completed_at = Some(now);
        self.cancel_requested = false;
        self.drop_lease();
    }

    fn drop_lease(&mut self) {
        self.lease_id = None;
        self.lease_expires_at = None;
    }
}
