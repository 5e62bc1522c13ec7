//! A wish for work.

use qo_core::{QueueName, Shard, TaskType, WorkerId};

/// A wish for work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Who will do it.
    pub worker: WorkerId,
    /// The queues to take from; all of them, if empty.
    pub queues: Vec<QueueName>,
    /// The types to take; all of them, if empty.
    pub types: Vec<TaskType>,
    /// The shards to take from; all of them, if empty.
    pub shards: Vec<Shard>,
    /// How many tasks at the most.
    pub max: usize,
    /// How long to wait for the first one.
    pub wait_ms: u64,
    /// How long the claims hold without a renewal; the engine's default, if there is no time.
    pub lease_ms: Option<u64>,
}

impl ClaimRequest {
    /// A wish for one task of these types in the default queue, without waiting.
    pub fn new(worker: WorkerId, types: Vec<TaskType>) -> Self {
        Self {
            worker,
            queues: vec![QueueName::default()],
            types,
            shards: Vec::new(),
            max: 1,
            wait_ms: 0,
            lease_ms: None,
        }
    }

    /// Whether a task of this shard is asked for.
    pub fn wants(&self, shard: Shard) -> bool {
        self.shards.is_empty() || self.shards.contains(&shard)
    }
}
