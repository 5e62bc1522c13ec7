//! How many tasks there are, per queue and status.

use std::collections::BTreeMap;

use crate::names::QueueName;
use crate::task::Status;

/// How many tasks there are per status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatusCounts([u64; Status::ALL.len()]);

impl StatusCounts {
    /// How many tasks have this status.
    pub fn of(&self, status: Status) -> u64 {
        self.0[status as usize]
    }

    /// How many tasks there are.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// How many tasks there are, per queue and status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    queues: BTreeMap<QueueName, StatusCounts>,
}

impl Counters {
    /// The counts of one queue.
    pub fn queue(&self, queue: &QueueName) -> StatusCounts {
        self.queues.get(queue).copied().unwrap_or_default()
    }

    /// The counts of each queue that has tasks.
    pub fn queues(&self) -> impl Iterator<Item = (&QueueName, &StatusCounts)> {
        self.queues.iter()
    }

    /// The counts of all queues together.
    pub fn total(&self) -> StatusCounts {
        let mut total = StatusCounts::default();
        for counts in self.queues.values() {
            for (sum, count) in total.0.iter_mut().zip(counts.0) {
                *sum += count;
            }
        }
        total
    }

    pub(super) fn add(&mut self, queue: &QueueName, status: Status) {
        // Looking first spares a clone of the name for every change of a queue that is known.
        let counts = match self.queues.get_mut(queue) {
            Some(counts) => counts,
            None => self.queues.entry(queue.clone()).or_default(),
        };
        counts.0[status as usize] += 1;
    }

    pub(super) fn subtract(&mut self, queue: &QueueName, status: Status) {
        if let Some(counts) = self.queues.get_mut(queue) {
            counts.0[status as usize] -= 1;
            if counts.total() == 0 {
                self.queues.remove(queue);
            }
        }
    }
}
