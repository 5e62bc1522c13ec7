//! Submits: a new task, or a change of the one that holds the key.

use super::{Changes, CommandOutcome, QueueState};
use crate::id::{OpId, TaskId};
use crate::task::{Status, Task};
use crate::time::Timestamp;
use crate::transition::{Action, Command, Rejection, Submission, submit};

impl QueueState {
    pub(super) fn submit(
        &mut self,
        mut submission: Submission,
        op: OpId,
        now: Timestamp,
        changes: &mut Changes,
    ) -> CommandOutcome {
        if let Some(first) = self.same_submit(&submission, now) {
            return self.submit_again(first, &submission, op, now, changes);
        }
        let id = submission.id;
        if let Some(settings) = self.settings.get(&submission.queue) {
            settings.complete(&mut submission);
        }
        match self.new_task(submission, op, now) {
            Err(rejection) => CommandOutcome::Rejected(rejection),
            Ok(mut task) => {
                self.last_sequence += 1;
                task.sequence = self.last_sequence;
                self.insert(task);
                changes.tasks.push(id);
                CommandOutcome::Submitted {
                    id,
                    duplicate: false,
                }
            }
        }
    }

    /// A submit that finds a task with its id, or that holds its key: changes the task, if it asks for that.
    fn submit_again(
        &mut self,
        first: TaskId,
        submission: &Submission,
        op: OpId,
        now: Timestamp,
        changes: &mut Changes,
    ) -> CommandOutcome {
        let holder = self.task(first);
        let amendment = match holder.map(|holder| submission.amendment(holder, now)) {
            Some(Err(rejection)) => return CommandOutcome::Rejected(rejection),
            Some(Ok(amendment)) => amendment,
            None => None,
        };
        if let Some(action) = amendment {
            let has_input = matches!(&action, Action::Amend { input: Some(_), .. });
            if let Err(rejection) = self.change(first, Command { op, action }, now) {
                return CommandOutcome::Rejected(rejection);
            }
            changes.tasks.push(first);
            changes.inputs.extend(has_input.then_some(first));
        }
        CommandOutcome::Submitted {
            id: first,
            duplicate: true,
        }
    }

    /// The task of a submission, if it is valid and the queue has room for it.
    fn new_task(
        &self,
        submission: Submission,
        op: OpId,
        now: Timestamp,
    ) -> Result<Task, Rejection> {
        let is_exempt = submission.is_exempt;
        let task = submit(submission, op, now)?;
        if let Some(settings) = self.settings.get(&task.queue).filter(|_| !is_exempt) {
            let waiting = self.counters.queue(&task.queue).of(Status::Pending);
            settings.admit(&task.queue, waiting)?;
        }
        Ok(task)
    }

    /// The existing task that a submission would duplicate: the one with its id, or the holder of its key.
    fn same_submit(&self, submission: &Submission, now: Timestamp) -> Option<TaskId> {
        if self.tasks.contains_key(&submission.id) {
            return Some(submission.id);
        }
        let holder = *self.keys.get(&submission.scoped_key()?)?;
        self.task(holder)?.key_holds(now).then_some(holder)
    }
}
