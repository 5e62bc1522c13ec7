//! Every change that a task can undergo.
//!
//! ```text
//!                 snooze, release, fail (retries left), expire lease (retries left)
//!               ┌───────────────────────────────────────────────────────────────┐
//!               ▼                                                               │
//!  submit ──► pending ──────────────── claim ───────────────────────────────► running
//!               │ ▲                                                             │
//!   cancel,     │ │                      complete ──► completed ──┐              │
//!   expire      │ │   fail (no retries left, permanent) ► failed ─┼──────────────┤
//!               ▼ │                                               │              │
//!           cancelled ◄── any way back to pending once a cancel was requested ◄──┘
//!               │ │                                               │
//!               │ └─── replay (if finished), redrive (if failed) ◄┤
//!               └──────► archived ◄────────── archive ────────────┘
//!                        (unarchive restores the previous status)
//! ```
//!
//! [`Task::apply`] validates first and changes afterwards, so a [`Rejection`] leaves the task unchanged to the byte.
//! `docs/reference/state-machine.md` has the table of all transitions. A test keeps it current.

mod amend;
mod command;
mod expiry;
mod operator;
mod outcome;
mod redrive;
mod rejection;
mod running;
mod submit;

pub use command::{Action, Command, Failure, FailureKind, ProgressReport};
pub use rejection::Rejection;
pub use submit::{Idempotency, Submission, submit};

use crate::limits::{EVENT_ERROR_MAX_BYTES, cut_text};
use crate::task::{Event, Task};
use crate::time::Timestamp;

impl Task {
    /// Applies the command, or rejects it and changes nothing.
    pub fn apply(&mut self, command: Command, now: Timestamp) -> Result<(), Rejection> {
        let Command { op, action } = command;
        let (action, by) = action.split();
        let (action, log) = action.split_log();
        let from = self.status;
        let event_action = action.event_action(from);
        let note = match action {
            Action::Claim {
                worker,
                lease,
                lease_ms,
            } => self.claim(worker, lease, lease_ms, now),
            Action::Renew { lease, lease_ms } => self.renew(lease, lease_ms, now),
            Action::Progress { lease, report } => self.report_progress(lease, report, now),
            Action::Complete { lease, output } => self.complete(lease, output, now),
            Action::Fail {
                lease,
                failure,
                jitter,
            } => self.fail(lease, &failure, jitter, now),
            Action::Release { lease } => self.release(lease, now),
            Action::Snooze { lease, delay_ms } => self.snooze(lease, delay_ms, now),
            Action::ExpireLease { jitter } => self.expire_lease(jitter, now),
            Action::Expire => self.expire(now),
            Action::Cancel { reason } => self.cancel(reason.as_deref(), now),
            Action::RunNow => self.run_now(now),
            Action::Amend {
                input,
                available_at,
            } => self.amend(input, available_at),
            Action::Fence => self.fence(),
            Action::Replay => self.replay(now),
            Action::Redrive { to } => self.redrive(to, now),
            Action::Archive => self.archive(),
            Action::Unarchive => self.unarchive(),
            // Splitting removes the authors and the logs.
            Action::By { action, .. } | Action::Logged { action, .. } => {
                let action = *action;
                return self.apply(Command { op, action }, now);
            }
        }?;
        self.revision += 1;
        self.op_id = Some(op);
        // A clock that is behind must not make the history run backwards.
        self.updated_at = self.updated_at.max(now);
        if let Some(log) = log {
            self.push_log(&log);
        }
        if let Note::Event {
            attempt_worker,
            error,
        } = note
        {
            self.events_dropped += self.events.push(Event {
                at: self.updated_at,
                action: Some(event_action),
                from: Some(from),
                to: self.status,
                attempt: self.attempt,
                worker: attempt_worker,
                error: error.map(|text| cut_text(&text, EVENT_ERROR_MAX_BYTES)),
                op_id: Some(op),
                by: by.map(Box::new),
                extra: crate::extra::Extra::default(),
            });
        }
        Ok(())
    }
}

/// The history entry of a change.
enum Note {
    /// None: renewals, progress reports and fences would displace important events.
    Silent,
    /// An event.
    Event {
        attempt_worker: Option<crate::names::WorkerId>,
        error: Option<Box<str>>,
    },
}

impl Note {
    fn of(worker: Option<crate::names::WorkerId>, error: Option<&str>) -> Self {
        Self::Event {
            attempt_worker: worker,
            error: error.map(Into::into),
        }
    }

    fn plain() -> Self {
        Self::of(None, None)
    }
}
