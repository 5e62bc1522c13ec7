//! Keeps the indexes in step with the tasks.

use std::sync::Arc;

use super::QueueState;
use super::limited::Selected;
use super::lines::HeadChange;
use super::position::IndexPosition;
use crate::id::TaskId;
use crate::names::{FairnessGroup, LimitKey, QueueName, TaskType};
use crate::task::{OrderingLine, Status, Task};

/// The names under which the indexes know a task.
pub(super) struct IndexNames {
    queue: QueueName,
    task_type: TaskType,
    line: Option<OrderingLine>,
    limit_key: Option<LimitKey>,
    fairness_group: Option<FairnessGroup>,
}

impl<'a> Selected<'a> {
    pub(super) fn of(task: &'a Task) -> Self {
        Self {
            queue: &task.queue,
            task_type: &task.task_type,
            limit_key: task.limit_key.as_ref(),
            fairness_group: task.fairness_group.as_ref(),
        }
    }
}

impl IndexNames {
    pub(super) fn of(task: &Task) -> Self {
        Self {
            queue: task.queue.clone(),
            task_type: task.task_type.clone(),
            line: task.ordering_line(),
            limit_key: task.limit_key.clone(),
            fairness_group: task.fairness_group.clone(),
        }
    }

    /// The names of the task while it was in this queue. A task in a line does not move.
    pub(super) fn in_queue(&self, queue: QueueName) -> Self {
        Self {
            queue,
            task_type: self.task_type.clone(),
            line: None,
            limit_key: self.limit_key.clone(),
            fairness_group: self.fairness_group.clone(),
        }
    }

    fn selected(&self) -> Selected<'_> {
        Selected {
            queue: &self.queue,
            task_type: &self.task_type,
            limit_key: self.limit_key.as_ref(),
            fairness_group: self.fairness_group.as_ref(),
        }
    }
}

impl QueueState {
    pub(super) fn insert(&mut self, mut task: Task) {
        (task.queue, task.task_type) = self.counters.shared_names(&task.queue, &task.task_type);
        if let Some(key) = task.scoped_key() {
            self.keys.insert(key, task.id);
        }
        let (id, names) = (task.id, IndexNames::of(&task));
        let position = IndexPosition::of(&task);
        self.created.insert((task.created_at, id));
        self.tasks.insert(id, Arc::new(task));
        self.move_in_indexes(&names, id, None, Some(position));
    }

    pub(super) fn remove(&mut self, id: TaskId) -> Option<Arc<Task>> {
        let task = self.tasks.remove(&id)?;
        self.created.remove(&(task.created_at, id));
        self.move_in_indexes(
            &IndexNames::of(&task),
            id,
            Some(IndexPosition::of(&task)),
            None,
        );
        // The key may belong to a later task after its validity ended.
        if let Some(key) = task.scoped_key()
            && self.keys.get(&key) == Some(&id)
        {
            self.keys.remove(&key);
        }
        Some(task)
    }

    /// Moves a task from one position in the indexes to another, and the tasks that this makes the head of their line, or no longer the
    /// head.
    pub(super) fn move_in_indexes(
        &mut self,
        names: &IndexNames,
        id: TaskId,
        before: Option<IndexPosition>,
        after: Option<IndexPosition>,
    ) {
        let was_ready = before.and_then(|before| before.ready);
        if let (Some(position), true) = (was_ready, self.is_served(names, id)) {
            self.ready.remove(names.selected(), position);
        }
        if let Some(line) = &names.line {
            let place = |position: Option<IndexPosition>| position.and_then(|known| known.place);
            let (old, new) = (place(before), place(after));
            if old != new {
                let left = old.map(|place| self.lines.remove(line, place));
                let joined = new.map(|place| self.lines.insert(line.clone(), place, id));
                for change in left.into_iter().chain(joined) {
                    self.serve_head(change, id);
                }
            }
        }
        let is_ready = after.and_then(|after| after.ready);
        if let (Some(position), true) = (is_ready, self.is_served(names, id)) {
            self.ready.insert(names.selected(), position, id);
        }
        if let Some(before) = before {
            self.remove_from_indexes(names, id, before);
        }
        if let Some(after) = after {
            self.add_to_indexes(names, id, after);
        }
    }

    /// Whether no other task must run before this one.
    fn is_served(&self, names: &IndexNames, id: TaskId) -> bool {
        let line = names.line.as_ref();
        line.is_none_or(|line| self.lines.head(line) == Some(id))
    }

    /// Makes the new head of a line ready, and the previous one not. The task that is being moved is not touched.
    fn serve_head(&mut self, change: HeadChange, moved: TaskId) {
        let others = |id: Option<TaskId>| id.filter(|id| *id != moved);
        if let Some(task) = others(change.displaced).and_then(|id| self.tasks.get(&id))
            && let Some(position) = IndexPosition::of(task).ready
        {
            self.ready.remove(Selected::of(task), position);
        }
        if let Some(task) = others(change.new).and_then(|id| self.tasks.get(&id))
            && let Some(position) = IndexPosition::of(task).ready
        {
            self.ready.insert(Selected::of(task), position, task.id);
        }
    }

    fn add_to_indexes(&mut self, names: &IndexNames, id: TaskId, position: IndexPosition) {
        self.counters
            .add(&names.queue, &names.task_type, position.status);
        if position.status == Status::Running {
            self.ready.take_slots(names.selected());
        }
        self.leases.extend(position.lease.map(|at| (at, id)));
        self.expiries.extend(position.expiry.map(|at| (at, id)));
        self.ended.extend(position.ended.map(|at| (at, id)));
    }

    fn remove_from_indexes(&mut self, names: &IndexNames, id: TaskId, position: IndexPosition) {
        self.counters
            .subtract(&names.queue, &names.task_type, position.status);
        if position.status == Status::Running {
            self.ready.return_slots(names.selected());
        }
        if let Some(at) = position.lease {
            self.leases.remove(&(at, id));
        }
        if let Some(at) = position.expiry {
            self.expiries.remove(&(at, id));
        }
        if let Some(at) = position.ended {
            self.ended.remove(&(at, id));
        }
    }

    /// Sorts all tasks into the groups of the current limits.
    pub(super) fn regroup(&mut self) {
        let mut ready = self.ready.emptied();
        for task in self.tasks.values() {
            let position = IndexPosition::of(task);
            if let Some(position) = position.ready
                && self.is_served(&IndexNames::of(task), task.id)
            {
                ready.insert(Selected::of(task), position, task.id);
            }
            if position.status == Status::Running {
                ready.take_slots(Selected::of(task));
            }
        }
        self.ready = ready;
    }

    /// Checks every index against the tasks. Slow; for tests.
    pub fn check_consistency(&self) -> Result<(), String> {
        let mut rebuilt = Self {
            ready: self.ready.emptied(),
            ..Self::new()
        };
        for task in self.tasks.values() {
            let (names, position) = (IndexNames::of(task), IndexPosition::of(task));
            rebuilt.created.insert((task.created_at, task.id));
            rebuilt.tasks.insert(task.id, Arc::clone(task));
            rebuilt.move_in_indexes(&names, task.id, None, Some(position));
        }
        // On the way, the last group of a class may have left for a moment.
        rebuilt.ready = self.ready.emptied();
        rebuilt.regroup();
        let same = [
            (self.ready == rebuilt.ready, "ready"),
            (self.lines == rebuilt.lines, "lines"),
            (self.leases == rebuilt.leases, "leases"),
            (self.expiries == rebuilt.expiries, "expiries"),
            (self.ended == rebuilt.ended, "ended"),
            (self.created == rebuilt.created, "created"),
            (self.counters == rebuilt.counters, "counters"),
        ];
        if let Some((_, name)) = same.iter().find(|(same, _)| !same) {
            return Err(format!("the index {name} does not match the tasks"));
        }
        for (key, id) in &self.keys {
            if self.task(*id).and_then(Task::scoped_key).as_ref() != Some(key) {
                return Err(format!(
                    "the idempotency key {key:?} names a task that does not hold it"
                ));
            }
        }
        Ok(())
    }
}
