//! The change of a task that waits for its first attempt, by a submit that finds its idempotency key held.

use super::submit::check_payload;
use super::{Action, Note, Rejection, Submission};
use crate::payload::Payload;
use crate::task::{OnConflict, Task};
use crate::time::Timestamp;

const REPLACED: &str = "its input was replaced by another submit with its key";
const POSTPONED: &str = "it was postponed by another submit with its key";
const BOTH: &str = "its input was replaced and it was postponed by another submit with its key";

impl Submission {
    /// The change of the task that holds the key of this submission, if the submission asks for one and the task has not started.
    ///
    /// A repeated change has no effect: the same input, and no later due time. So a caller that does not know whether a change was made can
    /// submit again.
    pub fn amendment(&self, holder: &Task, now: Timestamp) -> Result<Option<Action>, Rejection> {
        let on_conflict = self.uniqueness.on_conflict;
        let is_same = holder.id == self.id;
        // The key of a moved task holds in the queue of its submit, whose submitters may have no say in the other one.
        let is_moved = holder.idempotency_queue.is_some();
        if on_conflict == OnConflict::Keep || is_same || is_moved || !holder.has_not_started() {
            return Ok(None);
        }
        self.validate(now)?;
        let input = on_conflict
            .replaces()
            .then(|| self.input.clone())
            .filter(|input| *input != holder.input());
        let due = self.available_at.unwrap_or(now);
        let available_at = Some(due).filter(|due| {
            on_conflict.postpones() && *due > holder.available_at && !holder.is_expired(now)
        });
        let changes = input.is_some() || available_at.is_some();
        Ok(changes.then_some(Action::Amend {
            input,
            available_at,
        }))
    }
}

impl Task {
    /// A due time only grows, so that no key of an index entry is used twice.
    pub(super) fn amend(
        &mut self,
        input: Option<Payload>,
        available_at: Option<Timestamp>,
    ) -> Result<Note, Rejection> {
        if !self.has_not_started() {
            return Err(self.wrong_status("amend"));
        }
        if let Some(input) = &input {
            check_payload("input", input)?;
        }
        let reason = match (&input, available_at) {
            (Some(_), Some(_)) => BOTH,
            (Some(_), None) => REPLACED,
            _ => POSTPONED,
        };
        if let Some(input) = input {
            self.set_input(input);
        }
        if let Some(due) = available_at {
            self.available_at = self.available_at.max(due);
        }
        Ok(Note::of(None, Some(reason)))
    }
}
