//! The transitions of a running attempt: claim, renew, progress.

use super::{Note, ProgressReport, Rejection};
use crate::extra::Extra;
use crate::id::LeaseId;
use crate::limits::{LEASE_MAX_MS, PROGRESS_MESSAGE_MAX_BYTES, cut_text};
use crate::names::WorkerId;
use crate::task::{Progress, Status, Task};
use crate::time::Timestamp;

impl Task {
    pub(super) fn claim(
        &mut self,
        worker: WorkerId,
        lease: LeaseId,
        lease_ms: u64,
        now: Timestamp,
    ) -> Result<Note, Rejection> {
        if self.status != Status::Pending {
            return Err(self.wrong_status("claim"));
        }
        if let Some(expires_at) = self.pending_until().filter(|_| self.is_expired(now)) {
            return Err(Rejection::Expired { expires_at });
        }
        if self.available_at > now {
            return Err(Rejection::NotDue {
                available_at: self.available_at,
            });
        }
        check_lease_ms(lease_ms)?;
        let attempt = self
            .attempt
            .checked_add(1)
            .ok_or(Rejection::AttemptsUsedUp)?;

        self.status = Status::Running;
        self.attempt = attempt;
        self.worker_id = Some(worker.clone());
        self.lease_id = Some(lease);
        self.started_at = Some(now);
        self.lease_expires_at = Some(now.plus_millis(lease_ms));
        self.progress = None;
        Ok(Note::of(Some(worker), None))
    }

    pub(super) fn renew(
        &mut self,
        lease: LeaseId,
        lease_ms: u64,
        now: Timestamp,
    ) -> Result<Note, Rejection> {
        self.check_lease(lease)?;
        check_lease_ms(lease_ms)?;
        // A renewal never shortens a lease: an older renewal that arrives late must not undo a newer one.
        self.lease_expires_at = self.lease_expires_at.max(Some(now.plus_millis(lease_ms)));
        Ok(Note::Silent)
    }

    pub(super) fn report_progress(
        &mut self,
        lease: LeaseId,
        report: ProgressReport,
        now: Timestamp,
    ) -> Result<Note, Rejection> {
        self.check_lease(lease)?;
        if !(0.0..=100.0).contains(&report.percent) {
            return Err(Rejection::OutOfBounds {
                field: "percent",
                allowed: "a number from 0 to 100",
            });
        }
        self.progress = Some(Box::new(Progress {
            percent: report.percent,
            message: report
                .message
                .map(|text| cut_text(&text, PROGRESS_MESSAGE_MAX_BYTES)),
            at: now,
            extra: Extra::default(),
        }));
        Ok(Note::Silent)
    }

    /// Accepts only the current lease. An attempt with another lease has ended, even if its worker does not know it yet.
    pub(super) fn check_lease(&self, presented: LeaseId) -> Result<(), Rejection> {
        if self.status == Status::Running && self.lease_id == Some(presented) {
            return Ok(());
        }
        Err(Rejection::LeaseLost {
            presented,
            status: self.status,
            attempt: self.attempt,
        })
    }

    pub(super) fn wrong_status(&self, action: &'static str) -> Rejection {
        Rejection::WrongStatus {
            action,
            status: self.status,
        }
    }
}

fn check_lease_ms(lease_ms: u64) -> Result<(), Rejection> {
    if (1..=LEASE_MAX_MS).contains(&lease_ms) {
        return Ok(());
    }
    Err(Rejection::OutOfBounds {
        field: "lease_ms",
        allowed: "1 ms to 30 days",
    })
}
