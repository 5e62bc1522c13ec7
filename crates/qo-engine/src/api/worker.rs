//! The record of a registered worker.

use qo_core::extra::Extra;
use qo_core::{Actor, OpId, QueueName, Shard, TaskId, TaskType, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};

/// A worker's record, stored under `workers/`. It is used for display and for sharing work; correctness does not depend on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerInfo {
    /// The worker's id.
    pub worker_id: WorkerId,
    /// When it started.
    pub started_at: Timestamp,
    /// When it last sent a heartbeat.
    pub last_heartbeat: Timestamp,
    /// The shards that it claims from; all shards if empty.
    #[serde(default)]
    pub shards: Vec<Shard>,
    /// The queues that it claims from; all queues if empty.
    #[serde(default)]
    pub queues: Vec<QueueName>,
    /// The task types that it claims; all types if empty.
    #[serde(default)]
    pub types: Vec<TaskType>,
    /// How many tasks it runs concurrently.
    #[serde(default)]
    pub slots: u32,
    /// The host that it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The CPU time that its process used between its last two heartbeats, in percent of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<u32>,
    /// The memory that its process used at its last heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The oldest task that it is running.
    #[serde(default)]
    pub current_task: Option<TaskId>,
    /// All tasks that it is running.
    #[serde(default)]
    pub current_tasks: Vec<TaskId>,
    /// How many tasks it has completed.
    #[serde(default)]
    pub tasks_completed: u64,
    /// How many of its attempts have failed.
    #[serde(default)]
    pub tasks_failed: u64,
    /// What an operator asks it to do. The engine keeps it; a heartbeat does not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<WorkerRequest>,
    /// The operation that wrote this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op_id: Option<OpId>,
    /// Fields of newer versions of qo, kept as they are.
    #[serde(flatten)]
    pub extra: Extra,
}

impl WorkerInfo {
    /// A worker that has just started and claims from all shards, queues and types.
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
            cpu_percent: None,
            memory_bytes: None,
            current_task: None,
            current_tasks: Vec::new(),
            tasks_completed: 0,
            tasks_failed: 0,
            request: None,
            op_id: None,
            extra: Extra::default(),
        }
    }

    /// Whether it sent a heartbeat within the last `threshold_ms`.
    pub fn is_healthy(&self, now: Timestamp, threshold_ms: u64) -> bool {
        self.last_heartbeat.plus_millis(threshold_ms) >= now
    }

    /// Whether it claims tasks of this shard. A record without shards belongs to a worker that claims from all of them.
    pub fn takes_from(&self, shard: Shard) -> bool {
        self.shards.is_empty() || self.shards.contains(&shard)
    }

    /// Whether it claims tasks of this queue and type.
    pub fn serves(&self, queue: &QueueName, task_type: &TaskType) -> bool {
        (self.queues.is_empty() || self.queues.contains(queue))
            && (self.types.is_empty() || self.types.contains(task_type))
    }
}

/// What a worker is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerAction {
    /// Claim no more tasks, and finish those that it runs.
    Quiet,
    /// Claim no more tasks, finish those that it runs, and exit. Tasks that still run at its shutdown deadline are released.
    Stop,
}

impl WorkerAction {
    /// Its name in paths, commands and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Stop => "stop",
        }
    }
}

/// An operator's request to a worker. The worker sees it with its next heartbeat. It ends with the worker: one that starts later under the
/// same name is not asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRequest {
    /// What is requested.
    pub action: WorkerAction,
    /// When.
    pub at: Timestamp,
    /// By whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Actor>,
    /// Fields of newer versions of qo, kept as they are.
    #[serde(flatten)]
    pub extra: Extra,
}

impl WorkerRequest {
    /// A request.
    pub fn new(action: WorkerAction, at: Timestamp, by: Option<Actor>) -> Self {
        Self {
            action,
            at,
            by,
            extra: Extra::default(),
        }
    }
}
