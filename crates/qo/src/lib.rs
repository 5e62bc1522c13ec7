//! A task queue whose only required infrastructure is an object store.
//!
//! [`connect`] opens a queue by the URL of its store: `memory:`, `sqlite:PATH`, `s3://BUCKET`, `gs://BUCKET` or
//! `az://CONTAINER`; `http://HOST:PORT` is a queue behind another process's HTTP API. Whoever has a [`Queue`] submits tasks, looks after them, or does them:
//!
//! ```
//! use qo::{Context, TaskError, TaskInput, Worker};
//! use std::time::Duration;
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Email { to: String }
//!
//! impl TaskInput for Email {
//!     const TYPE: &'static str = "send_email";
//! }
//!
//! async fn send(email: Email, context: Context) -> Result<String, TaskError> {
//!     Ok(format!("sent to {} by attempt {}", email.to, context.attempt()))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let queue = qo::connect("memory:").await?;
//! let submitted = queue
//!     .task_of(&Email { to: "ada@example.org".into() })?
//!     .priority(1)
//!     .retries(5)
//!     .idempotency_key("welcome/ada")
//!     .submit()
//!     .await?;
//!
//! // Elsewhere, a worker. A program that does nothing else calls `run_until_signal`.
//! let worker = Worker::builder(queue.clone()).handle::<Email>(send).build()?.spawn();
//!
//! let done = queue.wait(submitted.task.id, Duration::from_secs(30)).await?;
//! assert_eq!(done.status, qo::Status::Completed);
//! worker.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`connect`], [`connect_default`], [`Connect`]: from a URL to a queue.
//! - [`Broker`]: a process that serves a queue in broker mode to others, or stands by to do so.
//! - [`Queue`]: everything that can be done with it. [`TaskBuilder`] is how a task is described.
//! - [`Worker`], in [`worker`]: does tasks with typed handlers; [`testing`] has a clock that is moved by hand.
//! - [`BulkReport`]: what came of an operation on all tasks that match a filter.
//! - [`diff()`]: what changed between two states of a task.
//! - [`Error`]: one variant per condition, and [`Error::kind`] for programs that only need the sort.

mod broker;
mod bulk;
mod connect;
mod diff;
mod error;
mod queue;
mod remote;
mod submit;
pub mod testing;
mod wait;
pub mod worker;

pub use broker::{Broker, BrokerHandle};
pub use bulk::BulkReport;
pub use connect::{Connect, connect, connect_default};
pub use diff::{FieldChange, VersionStep, diff};
pub use error::{Error, ErrorKind};
pub use queue::Queue;
pub use remote::names_servers;
pub use submit::TaskBuilder;
pub use worker::{
    Context, DrainReport, Hook, Outcome, StopReason, TaskError, TaskHandler, TaskInput, Worker,
    WorkerBuilder, WorkerHandle, WorkerReport,
};

pub use qo_broker::BrokerEngine;
pub use qo_broker::{BrokerConfig, JsonConfig, SlateConfig};
pub use qo_core::task::{Event, EventAction, IdempotencyScope};
pub use qo_core::transition::{Failure, FailureKind, ProgressReport};
pub use qo_core::{
    IdempotencyKey, Json, LeaseId, QueueName, Rejection, RetryPolicy, Shard, Status, Tag, Task,
    TaskId, TaskType, Timestamp, TraceParent, WorkerId,
};
pub use qo_direct::DirectEngine;
pub use qo_direct::{
    DirectConfig, DoctorOptions, DoctorReport, IndexMode, InitOptions, InitReport, Maintenance,
    MaintenanceConfig, MaintenanceHandle, doctor, init,
};
pub use qo_engine::api::{
    ClaimRequest, IdempotencyRequest, QueueStats, Stats, SubmitRequest, Submitted, TaskFilter,
    TaskPage, VersionedTask, When, WorkerInfo,
};
pub use qo_engine::{Engine, EngineError, Operation};
pub use qo_store::probe::ProbeOptions;
pub use qo_store::{OpenOptions, StoreError};

/// Locks a mutex whose data is never left half-changed, so that another thread's panic does not matter.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
