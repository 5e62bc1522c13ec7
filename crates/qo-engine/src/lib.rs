//! The interface that every mode of qo implements, and the code that the modes share.
//!
//! - [`Engine`]: the trait that every mode implements.
//! - [`Operation`]: an operation on one task.
//! - [`BulkRequest`]: an operation on all tasks that match a filter.
//! - [`api`]: the other request and response types.
//! - [`EngineError`]: why an operation failed.
//! - [`ForwardingEngine`]: an engine that forwards its calls to another engine.
//! - [`PartitionedEngine`]: a queue that is divided over several engines.
//! - [`watch`]: notifications of durable changes.
//! - [`environment`]: settings from environment variables.
//! - [`payload`]: where inputs and outputs are stored.
//! - [`worker_records`]: the registered workers of a queue.
//! - `conformance`: the test suite that every engine must pass, behind the feature of the same name.

pub mod api;
mod bulk;
#[cfg(feature = "conformance")]
pub mod conformance;
mod engine;
pub mod environment;
mod error;
mod forward;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod measurement;
mod operation;
mod partitioned;
pub mod payload;
pub mod search;
pub mod sorted;
pub mod watch;
pub mod worker_records;

pub use bulk::{BulkOperation, BulkRequest};
pub use engine::Engine;
pub use error::EngineError;
pub use forward::{ChangeCall, EngineCall, ForwardingEngine, ReadCall};
pub use measurement::{End, Measurement, MeasurementKind};
pub use operation::Operation;
pub use partitioned::{PARTITIONS_MAX, PartitionedEngine};
