//! A task queue whose only required infrastructure is an object store.
//!
//! [`connect`] opens a queue by URL. With a [`Queue`] a program submits tasks, runs them, or manages them:
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
//! // A worker, usually in another process. A program that does nothing else calls `run_until_signal`.
//! let worker = Worker::builder(queue.clone()).handle::<Email>(send).build()?.spawn();
//!
//! let done = queue.wait(submitted.task.id, Duration::from_secs(30)).await?;
//! assert_eq!(done.status, qo::Status::Completed);
//! worker.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Where to start
//!
//! - [`connect`], [`connect_default`], [`Connect`]: open a queue.
//! - [`Queue`]: every operation on tasks. [`Queue::task`] describes a new task.
//! - [`Worker`] and the module [`worker`]: run tasks with typed handlers.
//! - [`Error`]: one variant per condition; [`Error::kind`] groups them.
//! - [`BulkRequest`], [`BulkReport`]: an operation on all tasks that match a filter, and its result.
//! - [`diff()`]: the fields that differ between two versions of a task.
//! - [`encryption`]: inputs, outputs, errors and logs that only clients with a key can read.
//! - [`Queue::blobs`]: bytes that are stored by content, next to the tasks that refer to them.
//! - [`model`], [`engine`], [`store`], [`blob`], [`direct`], [`election`], [`runtime`]: rarely needed types that appear in this API.
#![cfg_attr(
    feature = "slate",
    doc = "- [`Broker`]: serves a queue in broker mode, or stands by."
)]
#![cfg_attr(
    feature = "test-util",
    doc = "- [`testing`]: a queue in memory with a manual clock, for tests of handlers."
)]
//!
//! # URLs and cargo features
//!
//! | URL | queue | feature | default |
//! | --- | --- | --- | --- |
//! | `memory:` | in the memory of this process | | always |
//! | `sqlite:PATH` | in an SQLite file, shared by the processes of one machine | `sqlite` | yes |
//! | `s3://BUCKET[/PREFIX]` | in S3, or a server with its protocol | `s3` | yes |
//! | `gs://BUCKET[/PREFIX]` | in Google Cloud Storage | `gcs` | no |
//! | `az://CONTAINER[/PREFIX]` | in Azure Blob Storage | `azure` | no |
//! | `http://HOST:PORT` | served by another process, with `qo serve` | `remote` | yes |
//! | `mdns:[NAME]` | served by another process on the local network, with `qo serve --mdns` | `mdns` | no |
//! | `cluster://HOST:PORT,HOST:PORT,...` | served by the leader of these processes | `remote` | yes |
//!
//! Every store takes `?engine=`:
//!
//! | engine | mode | feature |
//! | --- | --- | --- |
//! | `direct` (default) | direct: one object per task, no server | |
//! | `json` | broker: the whole queue in one JSON object | |
//! | `slate` | broker: the queue in SlateDB, served by one process at a time | `slate` |
//!
//! The feature `test-util` adds the module `testing`. A URL whose feature is off gives an error that names the feature.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "slate")]
mod broker;
mod bulk;
mod connect;
mod diff;
pub mod encryption;
mod error;
mod limit;
#[cfg(feature = "mdns")]
mod mdns;
mod named_documents;
mod queue;
mod queues;
#[cfg(feature = "remote")]
mod remote;
pub mod schedule;
mod submit;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
mod wait;
pub mod webhook;
pub mod worker;

#[cfg(feature = "slate")]
pub use broker::{Broker, BrokerHandle};
pub use bulk::BulkReport;
pub use connect::{Connect, connect, connect_default, names_servers};
pub use diff::{FieldChange, VersionStep, diff};
pub use error::{Error, ErrorKind};
pub use limit::{LimitInfo, Limits};
#[cfg(feature = "mdns")]
pub use mdns::ServerSearchError;
pub use queue::Queue;
pub use queues::{QueueInfo, Queues};
pub use schedule::{ScheduleDriver, ScheduleInfo, ScheduleSpec, Schedules, TaskTemplate};
pub use submit::TaskBuilder;
pub use webhook::{Webhook, WebhookEvent, WebhookInfo, Webhooks};
#[doc(hidden)]
pub use worker::host_name;
pub use worker::{
    AttemptOutcome, BatchFunction, Context, DrainReport, Hook, Idleness, StopReason, TaskError,
    TaskHandler, TaskInput, Worker, WorkerBuilder, WorkerHandle, WorkerReport, WorkerRequests,
};

#[doc(inline)]
pub use qo_blob::{
    BlobAddress, BlobError, BlobInfo, BlobPage, BlobStore, BlobStoreExt, BlobStream, PutBlob,
    ReadBlob,
};
#[cfg(feature = "slate")]
#[doc(inline)]
pub use qo_broker::SlateConfig;
#[doc(inline)]
pub use qo_broker::{BrokerConfig, BrokerEngine, JsonConfig};
#[doc(inline)]
pub use qo_core::task::{
    AttemptLog, Event, EventAction, IdempotencyScope, KeyHold, OnConflict, OnFailure, OrderingRule,
    Uniqueness,
};
#[doc(inline)]
pub use qo_core::transition::{Failure, FailureKind, ProgressReport};
#[doc(inline)]
pub use qo_core::{
    Actor, FairnessGroup, GROUP_WEIGHT_MAX, IdempotencyKey, Json, LeaseId, Limit, LimitKey,
    LimitUsage, OrderingKey, Pause, PauseNote, PauseTarget, Pauses, Payload, QueueName,
    QueueSettings, Rejection, RetryPolicy, Shard, StartLimit, Status, Tag, Task, TaskId, TaskType,
    Timestamp, TraceParent, WorkerId,
};
#[doc(inline)]
pub use qo_direct::{
    DirectConfig, DirectEngine, DoctorOptions, DoctorReport, IndexMode, InitOptions, InitReport,
    Maintenance, MaintenanceConfig, MaintenanceHandle, doctor, init,
};
#[doc(inline)]
pub use qo_engine::api::{
    ClaimRequest, IdempotencyRequest, QueueStats, SearchText, Stats, SubmitRequest, Submitted,
    TaskFilter, TaskOrder, TaskPage, TaskQuery, VersionedTask, WaitReason, When, WorkerAction,
    WorkerInfo, WorkerRequest,
};
#[doc(inline)]
pub use qo_engine::search::{InvalidTaskSearch, Search, TaskSearch};
#[doc(inline)]
pub use qo_engine::{BulkOperation, BulkRequest, Engine, EngineError, Operation};
#[doc(inline)]
pub use qo_store::probe::ProbeOptions;
#[doc(inline)]
pub use qo_store::{OpenOptions, StoreError};

/// Tasks, transitions and names: the crate `qo-core`.
pub mod model {
    pub use qo_core::*;
}

/// The trait that every mode implements, with its requests and events: the crate `qo-engine`.
pub mod engine {
    pub use qo_engine::*;
}

/// Stores, their clients, bucket administration and the probe: the crate `qo-store`, and the `object_store` that it uses.
pub mod store {
    pub use object_store;
    pub use qo_store::*;
}

/// Blobs by content, their garbage collection, and the stored form of WASI jobs: the crate `qo-blob`.
pub mod blob {
    pub use qo_blob::*;
}

/// Direct mode, its maintenance, `init` and `doctor`: the crate `qo-direct`.
pub mod direct {
    pub use qo_direct::*;
}

#[cfg(feature = "remote")]
#[doc(inline)]
pub use qo_remote::InvalidServer;
#[doc(no_inline)]
pub use {
    async_trait::async_trait, qo_broker::election, qo_store::runtime,
    tokio_util::sync::CancellationToken,
};

/// Compiles and runs the program of the README as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Locks a mutex and ignores poisoning: no critical section here can panic half-way through a change.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
