//! What a worker says of itself.

use qo_core::extra::Extra;
use qo_core::{QueueName, Shard, TaskId, TaskType, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};

/// A worker's record, stored under `workers/`. Nothing correct rests on it: it is there to be looked at, and to spread work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerInfo {
    /// Its name.
    pub worker_id: WorkerId,
    /// When it started.
    pub started_at: Timestamp,
    /// When it last said that it is alive.
    pub last_heartbeat: Timestamp,
    /// The parts of the store that it takes from.
    #[serde(default)]
    pub shards: Vec<Shard>,
    /// The queues that it takes from; all of them, if empty.
    #[serde(default)]
    pub queues: Vec<QueueName>,
    /// The types that it takes; all of them, if empty.
    #[serde(default)]
    pub types: Vec<TaskType>,
    /// How many tasks it runs at once.
    #[serde(default)]
    pub slots: u32,
    /// The machine that it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The oldest task that it is running.
    #[serde(default)]
    pub current_task: Option<TaskId>,
    /// All tasks that it is running.
    #[serde(default)]
    pub current_tasks: Vec<TaskId>,
    /// How many tasks it has completed.
    #[serde(default)]
    pub tasks_completed: u64,
    /// How many attempts of it have failed.
    #[serde(default)]
    pub tasks_failed: u64,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

impl WorkerInfo {
    /// A worker that has just started and takes everything.
    pub fn new(worker_id: WorkerId, now: Timestamp) -> Self {
        Self {
            worker_id,
            started_at: now,
            last_heartbeat: now,
            shards: Shard::all().collect(),
            queues: Vec::new(),
            types: Vec::new(),
            slots: 1,
            host: None,
            current_task: None,
            current_tasks: Vec::new(),
            tasks_completed: 0,
            tasks_failed: 0,
            extra: Extra::default(),
        }
    }

    /// Whether it was heard of within the last `threshold_ms`.
    pub fn is_healthy(&self, now: Timestamp, threshold_ms: u64) -> bool {
        self.last_heartbeat.plus_millis(threshold_ms) >= now
    }

    /// Whether it takes tasks of this shard. A record that names none is of a worker that takes from all.
    pub fn takes_from(&self, shard: Shard) -> bool {
        self.shards.is_empty() || self.shards.contains(&shard)
    }

    /// Whether it takes tasks of this queue and type.
    pub fn serves(&self, queue: &QueueName, task_type: &TaskType) -> bool {
        (self.queues.is_empty() || self.queues.contains(queue))
            && (self.types.is_empty() || self.types.contains(task_type))
    }
}
