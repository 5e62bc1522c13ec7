//! OpenAPI schemas of types that are defined in other crates.
//!
//! The core does not depend on OpenAPI, so the schemas of its names, times and records are defined here. A test compares the
//! schema of a task with serialized tasks.

mod blob;
mod task;
mod value;
mod worker;

use utoipa::ToSchema;

pub use self::blob::{BlobInfoRecord, BlobPageRecord, GcReportRecord, PutBlobRecord};
pub use self::task::{
    AttemptLogRecord, EventRecord, HistoryResponse, LogsResponse, PayloadReference, ProgressRecord,
    RetryPolicyRecord, TaskRecord, WaitReasonRecord,
};
pub use self::value::{
    ActorName, Address, AnyJson, Binary, BulkOperation, EventAction, FailureKind, FailurePolicy,
    Id, Key, KeyHold, Label, Name, OnConflict, Scope, ShardDigit, TaskStatus, Time, Trace,
    WorkerAction,
};
pub use self::worker::{WorkerRecord, WorkerRequestRecord, WorkersResponse};

/// One pause.
#[derive(Debug, ToSchema)]
pub struct Pause {
    /// Since when, if it is known.
    #[schema(value_type = Option<Time>)]
    pub since: Option<String>,
    /// Who paused.
    pub by: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// The code of a problem. Other members carry its facts.
#[derive(Debug, ToSchema)]
pub struct ConditionFacts {
    /// The code.
    pub code: String,
}
