//! Claim requests.

use qo_core::limits::LEASE_MAX_MS;
use qo_core::{QueueName, Rejection, Shard, Task, TaskId, TaskType, Timestamp, WorkerId};

/// A request to claim tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The worker that will run the tasks.
    pub worker: WorkerId,
    /// The queues to claim from; all queues if empty.
    pub queues: Vec<QueueName>,
    /// The task types to claim; all types if empty.
    pub types: Vec<TaskType>,
    /// The shards to claim from; all shards if empty.
    pub shards: Vec<Shard>,
    /// The maximum number of tasks.
    pub max: usize,
    /// How long to wait for the first task.
    pub wait_ms: u64,
    /// The lease duration; the engine's default if absent.
    pub lease_ms: Option<u64>,
    /// Whether to take the tasks that have been due for the longest time, within each priority, even if other processes try the same ones.
    /// Direct mode spreads claims over many tasks otherwise. Brokers and clusters always claim in order.
    pub in_order: bool,
}

impl ClaimRequest {
    /// A request for one task of these types from the default queue, without waiting.
    pub fn new(worker: WorkerId, types: Vec<TaskType>) -> Self {
        Self {
            worker,
            queues: vec![QueueName::default()],
            types,
            shards: Vec::new(),
            max: 1,
            wait_ms: 0,
            lease_ms: None,
            in_order: false,
        }
    }

    /// The lease duration, with the engine's default.
    pub fn checked_lease_ms(&self, default_ms: u64) -> Result<u64, Rejection> {
        let lease_ms = self.lease_ms.unwrap_or(default_ms);
        if (1..=LEASE_MAX_MS).contains(&lease_ms) {
            Ok(lease_ms)
        } else {
            Err(Rejection::OutOfBounds {
                field: "lease_ms",
                allowed: "1 ms to 30 days",
            })
        }
    }

    /// Whether the request includes tasks of this shard.
    pub fn includes(&self, shard: Shard) -> bool {
        self.shards.is_empty() || self.shards.contains(&shard)
    }
}

/// A task that can be claimed. The order is that of claims: the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DueTask {
    /// Its priority; lower numbers come first.
    pub priority: u8,
    /// Since when it is due.
    pub available_at: Timestamp,
    /// Its id.
    pub id: TaskId,
}

impl DueTask {
    /// The place of a task among the due ones.
    pub fn of(task: &Task) -> Self {
        Self {
            priority: task.priority,
            available_at: task.available_at,
            id: task.id,
        }
    }
}
