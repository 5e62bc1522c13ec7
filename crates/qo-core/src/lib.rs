//! The rules of qo: tasks, transitions, queue state and keys.
//!
//! Everything in this crate is a pure function of its arguments: no I/O, no tokio, no clock and no randomness.
//! Engines pass in time, identifiers and jitter as values, and make the results durable.
//!
//! - [`task`]: the task record and its stored form.
//! - [`transition`]: every change of a task, and the reasons for rejecting one.
//! - [`queue_state`]: all live tasks in memory with their indexes, for engines that hold the queue in memory.
//! - [`document`]: small named documents next to the tasks, such as schedules.
//! - [`QueueSettings`]: defaults and bounds of a queue.
//! - [`schedule`]: when schedules submit tasks.
//! - [`limit`]: how many tasks may run at once, and start within a time window.
//! - [`webhook`]: who is notified when tasks end.
//! - [`pause`]: queues and types that claims skip.
//! - [`keys`]: the keys of a task's objects in a bucket.
//! - [`Route`]: the partition of a task.
//! - [`blob`], [`names`], [`id`], [`time`], [`trace`], [`json`], [`payload`], [`retry`], [`limits`]: the building blocks.

pub mod blob;
pub mod document;
pub mod extra;
pub mod id;
pub mod json;
pub mod keys;
pub mod limit;
pub mod limits;
#[doc(hidden)]
pub mod mix;
#[doc(hidden)]
pub mod names;
pub mod pause;
pub mod payload;
mod queue_settings;
pub mod queue_state;
pub mod retry;
mod route;
pub mod schedule;
pub mod task;
mod text;
pub mod time;
pub mod trace;
pub mod transition;
pub mod webhook;

pub use blob::BlobAddress;
pub use document::{DocumentId, DocumentKind, StoredDocument};
pub use id::{LeaseId, OpId, Shard, TaskId};
pub use json::Json;
pub use limit::{Limit, LimitRules, LimitUsage, StartLimit};
pub use names::{
    Actor, DocumentName, FairnessGroup, IdempotencyKey, LimitKey, OrderingKey, QueueName, Tag,
    TaskType, WorkerId,
};
pub use pause::{Pause, PauseNote, PauseTarget, Pauses};
pub use payload::{Payload, PayloadRef, Sha256};
pub use queue_settings::{
    GROUP_WEIGHT_MAX, GROUP_WEIGHTS_MAX, InvalidQueueSettings, QueueSettings,
    RETENTION_MAX_SECONDS, WAITING_MAX,
};
pub use queue_state::QueueState;
pub use retry::{Jitter, RetryPolicy};
pub use route::Route;
pub use task::{Status, Task};
pub use time::Timestamp;
pub use trace::TraceParent;
pub use transition::{Action, Command, Rejection, Submission};
pub use webhook::{Webhook, WebhookEvent, WebhookRules, WebhookSecret};
