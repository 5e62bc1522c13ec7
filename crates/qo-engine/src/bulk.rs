//! Operations on all tasks that match a filter: their names, the tasks that they select, and the change of each task.
//!
//! The library, the HTTP API and the command take all of this from here.

use std::time::Duration;

use qo_core::{Actor, QueueName, Status, Task, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::api::TaskFilter;
use crate::{EngineError, Operation};

/// An operation on all tasks that match a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkOperation {
    /// Cancels tasks; pending and running ones by default.
    Cancel,
    /// Replays tasks; failed ones by default.
    Replay,
    /// Moves tasks to another queue; pending and failed ones by default. Tasks that are already there, or expired, are skipped.
    Redrive,
    /// Makes tasks due now; pending ones by default. Tasks that are already due or expired are skipped.
    RunNow,
    /// Archives tasks; finished ones by default.
    Archive,
    /// Restores archived tasks.
    Unarchive,
    /// Deletes tasks permanently; finished and archived ones by default.
    Purge,
}

impl BulkOperation {
    /// All operations.
    pub const ALL: [Self; 7] = [
        Self::Cancel,
        Self::Replay,
        Self::Redrive,
        Self::RunNow,
        Self::Archive,
        Self::Unarchive,
        Self::Purge,
    ];

    /// The operation's name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Replay => "replay",
            Self::Redrive => "redrive",
            Self::RunNow => "run_now",
            Self::Archive => "archive",
            Self::Unarchive => "unarchive",
            Self::Purge => "purge",
        }
    }

    /// The statuses that match if the filter names none.
    pub fn default_statuses(self) -> &'static [Status] {
        match self {
            Self::Cancel => &[Status::Pending, Status::Running],
            Self::Replay => &[Status::Failed],
            Self::Redrive => &[Status::Pending, Status::Failed],
            Self::RunNow => &[Status::Pending],
            Self::Archive => &[Status::Completed, Status::Failed, Status::Cancelled],
            Self::Unarchive => &[Status::Archived],
            Self::Purge => &[
                Status::Completed,
                Status::Failed,
                Status::Cancelled,
                Status::Archived,
            ],
        }
    }
}

/// A request for an operation on all tasks that match a filter.
#[derive(Debug, Clone, PartialEq)]
pub struct BulkRequest {
    /// The operation.
    pub operation: BulkOperation,
    /// The tasks that match it, unless `ids` names tasks.
    pub filter: TaskFilter,
    /// These tasks, whether the filter matches them or not. A task whose status does not allow the operation is a failure.
    pub ids: Vec<TaskId>,
    /// Changes at most this number of tasks.
    pub limit: Option<u64>,
    /// The reason of a cancel.
    pub reason: Option<String>,
    /// The queue to which a redrive moves the tasks.
    pub to: Option<QueueName>,
    /// Selects only tasks that finished longer ago than this.
    pub older_than: Option<Duration>,
    /// Who requests it, for the history of each task.
    pub actor: Option<Actor>,
}

impl BulkRequest {
    /// A request for all tasks with the operation's default statuses.
    pub fn new(operation: BulkOperation) -> Self {
        Self {
            operation,
            filter: TaskFilter::default(),
            ids: Vec::new(),
            limit: None,
            reason: None,
            to: None,
            older_than: None,
            actor: None,
        }
        .with_filter(TaskFilter::default())
    }

    /// A request to move all pending and failed tasks of other queues to this one.
    pub fn redrive(to: QueueName) -> Self {
        Self {
            to: Some(to),
            ..Self::new(BulkOperation::Redrive)
        }
    }

    /// Restricts the request to the tasks that match the filter. A filter without statuses gets the operation's default ones.
    #[must_use]
    pub fn with_filter(mut self, filter: TaskFilter) -> Self {
        self.filter = filter;
        if self.filter.statuses.is_empty() {
            self.filter.statuses = self.operation.default_statuses().to_vec();
        }
        self
    }

    /// Whether the operation applies to a task that matches the filter.
    pub fn applies_to(&self, task: &Task, now: Timestamp) -> bool {
        let is_skipped = match self.operation {
            BulkOperation::RunNow => {
                task.status == Status::Pending && (task.available_at <= now || task.is_expired(now))
            }
            BulkOperation::Redrive => self.to.as_ref() == Some(&task.queue) || task.is_expired(now),
            _ => false,
        };
        let is_old = self.older_than.is_none_or(|age| {
            let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            task.completed_at.unwrap_or(task.updated_at) < now.minus_millis(age_ms)
        });
        is_old && !is_skipped
    }

    /// The operation on each task; `None` for a purge, which removes the task.
    pub fn on_task(&self) -> Result<Option<Operation>, EngineError> {
        let operation = match self.operation {
            BulkOperation::Cancel => Operation::Cancel {
                reason: self.reason.clone(),
            },
            BulkOperation::Replay => Operation::Replay,
            BulkOperation::Redrive => {
                let detail = "a redrive must name the queue to which the tasks move";
                let missing = || EngineError::BadRequest(detail.to_owned());
                let to = self.to.clone().ok_or_else(missing)?;
                Operation::Redrive { to }
            }
            BulkOperation::RunNow => Operation::RunNow,
            BulkOperation::Archive => Operation::Archive,
            BulkOperation::Unarchive => Operation::Unarchive,
            BulkOperation::Purge => return Ok(None),
        };
        Ok(Some(operation.by(self.actor.as_ref())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_json_form_and_those_of_the_operations() {
        for operation in BulkOperation::ALL {
            let json = serde_json::to_value(operation).unwrap();
            assert_eq!(json, operation.name());
            let mut request = BulkRequest::new(operation);
            request.to = Some(QueueName::default());
            if let Some(on_task) = request.on_task().unwrap() {
                assert_eq!(on_task.name(), operation.name());
            }
        }
    }

    #[test]
    fn a_redrive_without_a_queue_is_refused() {
        let request = BulkRequest::new(BulkOperation::Redrive);
        assert!(matches!(request.on_task(), Err(EngineError::BadRequest(_))));
    }

    #[test]
    fn a_filter_without_statuses_gets_those_of_the_operation() {
        let request = BulkRequest::new(BulkOperation::Replay);
        assert_eq!(request.filter.statuses, [Status::Failed]);
        let filter = TaskFilter {
            statuses: vec![Status::Cancelled],
            ..TaskFilter::default()
        };
        let request = request.with_filter(filter);
        assert_eq!(request.filter.statuses, [Status::Cancelled]);
    }
}
