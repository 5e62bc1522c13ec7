//! The lines of ordering keys: only the head of a line can be claimed.
//!
//! A task is in the line of its key from its submit until it is settled ([`Task::is_settled`](crate::Task::is_settled)), at a place that never
//! changes. Places come from the same counter as sequence numbers, and a task that joins again after a replay gets a new one. The lines
//! therefore follow from the tasks alone, whatever the order in which these are loaded.

use std::collections::BTreeMap;

use crate::id::TaskId;
use crate::task::OrderingLine;

/// The tasks of each line, by place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Lines {
    lines: BTreeMap<OrderingLine, BTreeMap<u64, TaskId>>,
}

/// A change of the head of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct HeadChange {
    /// The task that is no longer the head, if it is still in the line.
    pub(super) displaced: Option<TaskId>,
    /// The task that is now the head, if it was not before.
    pub(super) new: Option<TaskId>,
}

impl Lines {
    /// Adds a task.
    pub(super) fn insert(&mut self, line: OrderingLine, place: u64, id: TaskId) -> HeadChange {
        let tasks = self.lines.entry(line).or_default();
        let before = tasks.first_key_value().map(|(place, id)| (*place, *id));
        tasks.insert(place, id);
        match before {
            Some((first, _)) if first < place => HeadChange::default(),
            before => HeadChange {
                displaced: before.map(|(_, id)| id),
                new: Some(id),
            },
        }
    }

    /// Removes a task, and its line if that becomes empty.
    pub(super) fn remove(&mut self, line: &OrderingLine, place: u64) -> HeadChange {
        let Some(tasks) = self.lines.get_mut(line) else {
            return HeadChange::default();
        };
        let was_head = tasks.first_key_value().map(|(first, _)| *first) == Some(place);
        tasks.remove(&place);
        let next = tasks.first_key_value().map(|(_, id)| *id);
        if tasks.is_empty() {
            self.lines.remove(line);
        }
        HeadChange {
            displaced: None,
            new: next.filter(|_| was_head),
        }
    }

    /// The head of a line.
    pub(super) fn head(&self, line: &OrderingLine) -> Option<TaskId> {
        let tasks = self.lines.get(line)?;
        tasks.first_key_value().map(|(_, id)| *id)
    }

    /// The number of tasks before a place, counted up to `limit`.
    pub(super) fn ahead(&self, line: &OrderingLine, place: u64, limit: usize) -> usize {
        let tasks = self.lines.get(line);
        tasks.map_or(0, |tasks| tasks.range(..place).take(limit).count())
    }
}
