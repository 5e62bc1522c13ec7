//! Notifies watchers of a group once it is durable.

use std::sync::Arc;
use std::time::Duration;

use qo_core::QueueState;
use qo_core::queue_state::Request;
use qo_core::{Task, TaskId};
use qo_engine::Measurement;
use qo_engine::watch::{Commit, RENEW, TaskChange, Watchers, operation_name};
use qo_store::runtime::Runtime;

use super::journal::GroupChanges;

/// The notification of a group. If the group's write conflicts or fails, it is dropped unsent.
pub(super) struct GroupNotification {
    watchers: Watchers,
    runtime: Arc<dyn Runtime>,
    started: Duration,
    callers: usize,
    tasks: usize,
    changes: Vec<TaskChange>,
    measured: Vec<Measurement>,
}

impl GroupNotification {
    /// Prepares the notification of a group that is about to be written.
    pub(super) fn begin(
        watchers: &Watchers,
        runtime: &Arc<dyn Runtime>,
        callers: usize,
        changes: &mut GroupChanges,
    ) -> Self {
        Self {
            watchers: watchers.clone(),
            runtime: Arc::clone(runtime),
            started: runtime.monotonic(),
            callers,
            tasks: changes.tasks.len() + changes.removed.len(),
            changes: changes.watched.take().unwrap_or_default(),
            measured: changes.measured.take().unwrap_or_default(),
        }
    }

    /// Notifies the watchers, once the group is durable.
    pub(super) fn send(self) {
        // A group that only reads is not a commit.
        if self.tasks == 0 {
            return;
        }
        self.watchers.committed(&Commit {
            callers: self.callers,
            tasks: self.tasks,
            took: self.runtime.monotonic().saturating_sub(self.started),
        });
        for measurement in &self.measured {
            self.watchers.measured(measurement);
        }
        for change in self.changes {
            self.watchers.changed(change);
        }
    }
}

impl GroupChanges {
    /// An empty set of changes. Collects task changes for watchers only if there are any.
    pub(super) fn for_watchers(watchers: &Watchers) -> Self {
        Self {
            watched: watchers.listen().then(Vec::new),
            measured: watchers.measure().then(Vec::new),
            ..Self::default()
        }
    }

    /// Records the tasks that a command changed, to notify watchers of them once they are durable.
    pub(super) fn record_changed(
        &mut self,
        operation: &'static str,
        ids: &[TaskId],
        state: &QueueState,
    ) {
        // Watchers are not notified of lease renewals.
        if operation == RENEW {
            return;
        }
        if let Some(measured) = &mut self.measured {
            let tasks = ids.iter().filter_map(|id| state.task(*id));
            measured.extend(tasks.filter_map(|task| Measurement::of(operation, task)));
        }
        if let Some(watched) = &mut self.watched {
            let tasks = ids.iter().filter_map(|id| state.task(*id));
            watched.extend(tasks.map(|task| TaskChange::new(operation, task)));
        }
    }

    /// Records that a task was removed.
    pub(super) fn record_removed(&mut self, task: &Task) {
        if let Some(watched) = &mut self.watched {
            watched.push(TaskChange::new("purge", task));
        }
    }
}

/// The name of a command in notifications.
pub(super) fn operation_of(request: &Request) -> &'static str {
    match request {
        Request::Submit(_) => "submit",
        Request::Claim(_) => "claim",
        Request::Task { action, .. } => operation_name(action),
        Request::ExpireLeases { .. } => "expire",
        Request::Pause(..) => "pause",
        Request::Resume(_) => "resume",
        Request::Purge(_) => "purge",
        Request::Document(..) => "set",
    }
}
