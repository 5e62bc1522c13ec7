//! Telling watchers of a group once it is durable, and not before.

use std::sync::Arc;
use std::time::Duration;

use qo_core::QueueState;
use qo_core::queue_state::Request;
use qo_core::{Task, TaskId};
use qo_engine::watch::{Commit, RENEW, TaskChange, Watchers, operation_name};
use qo_store::runtime::Runtime;

use super::journal::GroupChanges;

/// What will be told of a group. A group whose write was lost or failed drops it, and nothing is told.
pub(super) struct Told {
    watchers: Watchers,
    runtime: Arc<dyn Runtime>,
    began: Duration,
    callers: usize,
    tasks: usize,
    changes: Vec<TaskChange>,
}

impl Told {
    /// Notes a group that is about to be written.
    pub(super) fn begin(
        watchers: &Watchers,
        runtime: &Arc<dyn Runtime>,
        callers: usize,
        changes: &mut GroupChanges,
    ) -> Self {
        Self {
            watchers: watchers.clone(),
            runtime: Arc::clone(runtime),
            began: runtime.monotonic(),
            callers,
            tasks: changes.tasks.len() + changes.removed.len(),
            changes: changes.told.take().unwrap_or_default(),
        }
    }

    /// The group is durable.
    pub(super) fn land(self) {
        // A group that only reads is no commit.
        if self.tasks == 0 {
            return;
        }
        self.watchers.committed(&Commit {
            callers: self.callers,
            tasks: self.tasks,
            took: self.runtime.monotonic().saturating_sub(self.began),
        });
        for change in self.changes {
            self.watchers.changed(change);
        }
    }
}

impl GroupChanges {
    /// Changes that nobody, or somebody, wants to be told of.
    pub(super) fn for_watchers(watchers: &Watchers) -> Self {
        Self {
            told: watchers.listen().then(Vec::new),
            ..Self::default()
        }
    }

    /// Notes what a command did to tasks, to be told once it is durable.
    pub(super) fn note(&mut self, operation: &'static str, ids: &[TaskId], state: &QueueState) {
        // A sign of life is no change that anybody waits for.
        if let Some(told) = &mut self.told
            && operation != RENEW
        {
            let tasks = ids.iter().filter_map(|id| state.task(*id));
            told.extend(tasks.map(|task| TaskChange::new(operation, task)));
        }
    }

    /// Notes that a task was removed.
    pub(super) fn note_removed(&mut self, task: &Task) {
        if let Some(told) = &mut self.told {
            told.push(TaskChange::new("purge", task));
        }
    }
}

/// What a command is called where it is told.
pub(super) fn operation_of(request: &Request) -> &'static str {
    match request {
        Request::Submit(_) => "submit",
        Request::Claim(_) => "claim",
        Request::Task { action, .. } => operation_name(action),
        Request::ExpireLeases { .. } => "expire",
        Request::Pause(_) => "pause",
        Request::Resume(_) => "resume",
        Request::Purge(_) => "purge",
    }
}
