//! The commands of a group by name, for journals that record them.

use qo_core::queue_state::Changes;
use qo_core::{DocumentId, PauseTarget, QueueState, Status, Task, TaskId, WorkerId};

use super::journal::GroupChanges;

/// What a command did, as the log of a cluster records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The command: `submit`, `claim`, `complete`, `expire` and so on.
    pub name: &'static str,
    /// The task or queue that it changed.
    pub outcome: CommandOutcome,
}

/// What a command changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandOutcome {
    /// The task as the command left it.
    Task {
        /// The task.
        id: TaskId,
        /// Its new status.
        status: Status,
        /// Its current attempt.
        attempt: u32,
        /// The worker that holds it.
        worker: Option<WorkerId>,
    },
    /// The task no longer exists.
    Removed(TaskId),
    /// A queue or a type was paused or resumed.
    Pause(PauseTarget),
    /// A document was written or removed.
    Document(DocumentId),
}

impl GroupChanges {
    /// Records what a command changed, if commands are recorded.
    pub(super) fn record_command(
        &mut self,
        name: &'static str,
        changed: &Changes,
        state: &QueueState,
    ) {
        let Some(commands) = &mut self.commands else {
            return;
        };
        let tasks = changed.tasks.iter().filter_map(|id| state.task(*id));
        commands.extend(tasks.map(|task| Command {
            name,
            outcome: outcome_of(task),
        }));
        commands.extend(changed.pauses.iter().map(|target| Command {
            name,
            outcome: CommandOutcome::Pause(target.clone()),
        }));
        commands.extend(changed.documents.iter().map(|id| Command {
            name,
            outcome: CommandOutcome::Document(id.clone()),
        }));
    }

    /// Records that a command removed a task, if commands are recorded.
    pub(super) fn record_removal(&mut self, id: TaskId) {
        if let Some(commands) = &mut self.commands {
            commands.push(Command {
                name: "purge",
                outcome: CommandOutcome::Removed(id),
            });
        }
    }
}

fn outcome_of(task: &Task) -> CommandOutcome {
    CommandOutcome::Task {
        id: task.id,
        status: task.status,
        attempt: task.attempt,
        worker: task.worker_id.clone(),
    }
}
