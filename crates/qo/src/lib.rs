//! A task queue whose only required infrastructure is an object store.
//!
//! [`connect`] opens a queue by the URL of its store: `memory:`, `sqlite:PATH`, `s3://BUCKET`, `gs://BUCKET` or
//! `az://CONTAINER`. Whoever has a [`Queue`] submits tasks, looks after them, or does them:
//!
//! ```
//! use qo::ClaimRequest;
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let queue = qo::connect("memory:").await?;
//! let submitted = queue
//!     .task("send_email", &serde_json::json!({ "to": "ada@example.org" }))?
//!     .priority(1)
//!     .retries(5)
//!     .idempotency_key("welcome/ada")
//!     .submit()
//!     .await?;
//!
//! // Elsewhere, a worker.
//! let wish = ClaimRequest::new("worker-1".parse()?, vec!["send_email".parse()?]);
//! for task in queue.claim(&wish).await? {
//!     let lease = task.lease_id.ok_or("a claimed task has a lease")?;
//!     let input: serde_json::Value = queue.input(&task).await?.to_value()?;
//!     assert_eq!(input["to"], "ada@example.org");
//!     queue.complete(task.id, lease, Some(qo::Json::from_value(&"sent")?)).await?;
//! }
//!
//! let done = queue.wait(submitted.task.id, Duration::from_secs(5)).await?;
//! assert_eq!(done.status, qo::Status::Completed);
//! queue.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! - [`connect`], [`connect_default`], [`Connect`]: from a URL to a queue.
//! - [`Queue`]: everything that can be done with it. [`TaskBuilder`] is how a task is described.
//! - [`BulkReport`]: what came of an operation on all tasks that match a filter.
//! - [`diff()`]: what changed between two states of a task.
//! - [`Error`]: one variant per condition, and [`Error::kind`] for programs that only need the sort.

mod bulk;
mod connect;
mod diff;
mod error;
mod queue;
mod submit;
mod wait;

pub use bulk::BulkReport;
pub use connect::{Connect, connect, connect_default};
pub use diff::{FieldChange, VersionStep, diff};
pub use error::{Error, ErrorKind};
pub use queue::Queue;
pub use submit::TaskBuilder;

pub use qo_core::task::{Event, IdempotencyScope};
pub use qo_core::transition::{Failure, FailureKind, ProgressReport};
pub use qo_core::{
    IdempotencyKey, Json, LeaseId, QueueName, Rejection, RetryPolicy, Shard, Status, Tag, Task,
    TaskId, TaskType, Timestamp, WorkerId,
};
pub use qo_engine::api::{
    ClaimRequest, IdempotencyRequest, QueueStats, Stats, SubmitRequest, Submitted, TaskFilter,
    TaskPage, VersionedTask, When, WorkerInfo,
};
pub use qo_engine::objects::{
    DoctorOptions, DoctorReport, IndexMode, InitOptions, InitReport, Maintenance,
    MaintenanceConfig, MaintenanceHandle, ObjectsConfig, doctor, init,
};
pub use qo_engine::state::{JsonConfig, SlateConfig, StateConfig};
pub use qo_engine::{Engine, EngineError, ObjectsEngine, StateEngine};
pub use qo_store::probe::ProbeOptions;
pub use qo_store::{OpenOptions, StoreError};
