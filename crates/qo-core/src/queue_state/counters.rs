//! Task counts per queue, status and type.

use std::collections::BTreeMap;

use crate::names::{QueueName, TaskType};
use crate::task::Status;

/// Task counts per status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatusCounts([u64; Status::ALL.len()]);

impl StatusCounts {
    /// The number of tasks with this status.
    pub fn of(&self, status: Status) -> u64 {
        self.0[status as usize]
    }

    /// The number of tasks.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Task counts per queue, status and type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    queues: BTreeMap<QueueName, QueueCounts>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct QueueCounts {
    statuses: StatusCounts,
    types: BTreeMap<TaskType, StatusCounts>,
}

impl Counters {
    /// The counts of one queue.
    pub fn queue(&self, queue: &QueueName) -> StatusCounts {
        self.queues
            .get(queue)
            .map(|counts| counts.statuses)
            .unwrap_or_default()
    }

    /// The counts of each queue that has tasks.
    pub fn queues(&self) -> impl Iterator<Item = (&QueueName, &StatusCounts)> {
        self.queues
            .iter()
            .map(|(queue, counts)| (queue, &counts.statuses))
    }

    /// The counts of each type in a queue.
    pub fn types(&self, queue: &QueueName) -> impl Iterator<Item = (&TaskType, &StatusCounts)> {
        self.queues
            .get(queue)
            .into_iter()
            .flat_map(|counts| &counts.types)
    }

    /// The counts of all queues.
    pub fn total(&self) -> StatusCounts {
        let mut total = StatusCounts::default();
        for counts in self.queues.values() {
            for (sum, count) in total.0.iter_mut().zip(counts.statuses.0) {
                *sum += count;
            }
        }
        total
    }

    /// The shared copies of these names, so that a million tasks of one queue share its name.
    pub(super) fn shared_names(
        &self,
        queue: &QueueName,
        task_type: &TaskType,
    ) -> (QueueName, TaskType) {
        match self.queues.get_key_value(queue) {
            None => (queue.clone(), task_type.clone()),
            Some((queue, counts)) => {
                let known = counts.types.get_key_value(task_type);
                (
                    queue.clone(),
                    known.map_or(task_type, |(known, _)| known).clone(),
                )
            }
        }
    }

    pub(super) fn add(&mut self, queue: &QueueName, task_type: &TaskType, status: Status) {
        // Looking up first avoids cloning the name of a known queue on every change.
        let counts = match self.queues.get_mut(queue) {
            Some(counts) => counts,
            None => self.queues.entry(queue.clone()).or_default(),
        };
        counts.statuses.0[status as usize] += 1;
        let of_type = match counts.types.get_mut(task_type) {
            Some(of_type) => of_type,
            None => counts.types.entry(task_type.clone()).or_default(),
        };
        of_type.0[status as usize] += 1;
    }

    pub(super) fn subtract(&mut self, queue: &QueueName, task_type: &TaskType, status: Status) {
        let Some(counts) = self.queues.get_mut(queue) else {
            return;
        };
        counts.statuses.0[status as usize] -= 1;
        if let Some(of_type) = counts.types.get_mut(task_type) {
            of_type.0[status as usize] -= 1;
            if of_type.total() == 0 {
                counts.types.remove(task_type);
            }
        }
        if counts.statuses.total() == 0 {
            self.queues.remove(queue);
        }
    }
}
