//! Registered workers, and what operators ask of them.

use utoipa::ToSchema;

use super::{ActorName, Id, Name, ShardDigit, Time, WorkerAction};

/// A registered worker.
#[derive(Debug, ToSchema)]
#[schema(as = Worker)]
pub struct WorkerRecord {
    /// The worker's id.
    #[schema(value_type = Name)]
    pub worker_id: String,
    /// When it started.
    #[schema(value_type = Time)]
    pub started_at: String,
    /// The time of its last heartbeat.
    #[schema(value_type = Time)]
    pub last_heartbeat: String,
    /// The shards that it claims from.
    #[schema(value_type = Vec<ShardDigit>, required = false)]
    pub shards: Vec<String>,
    /// The queues that it claims from; empty for all.
    #[schema(value_type = Vec<Name>, required = false)]
    pub queues: Vec<String>,
    /// The task types that it claims; empty for all.
    #[schema(value_type = Vec<Name>, required = false)]
    pub types: Vec<String>,
    /// How many tasks it runs concurrently.
    #[schema(required = false)]
    pub slots: u32,
    /// The machine that it runs on.
    pub host: Option<String>,
    /// The CPU time that its process used between its last two heartbeats, in percent of one core.
    pub cpu_percent: Option<u32>,
    /// The memory that its process used at its last heartbeat.
    pub memory_bytes: Option<u64>,
    /// The oldest task that it is running.
    #[schema(value_type = Option<Id>)]
    pub current_task: Option<String>,
    /// All tasks that it is running.
    #[schema(value_type = Vec<Id>, required = false)]
    pub current_tasks: Vec<String>,
    /// The number of tasks that it has completed.
    #[schema(required = false)]
    pub tasks_completed: u64,
    /// The number of its failed attempts.
    #[schema(required = false)]
    pub tasks_failed: u64,
    /// What an operator asks it to do. A heartbeat does not change it.
    pub request: Option<WorkerRequestRecord>,
}

/// What an operator asks a worker to do.
#[derive(Debug, ToSchema)]
#[schema(as = WorkerRequest)]
pub struct WorkerRequestRecord {
    /// What is requested.
    #[schema(value_type = WorkerAction)]
    pub action: String,
    /// When.
    #[schema(value_type = Time)]
    pub at: String,
    /// By whom.
    #[schema(value_type = Option<ActorName>)]
    pub by: Option<String>,
}

/// Registered workers.
#[derive(Debug, ToSchema)]
pub struct WorkersResponse {
    /// The workers.
    pub workers: Vec<WorkerRecord>,
}
