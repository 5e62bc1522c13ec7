//! The JSON bodies of the HTTP API, shared by the server and the remote engine.
//!
//! Both sides share one definition, so each can read what the other writes. Tasks, events, workers and retry policies have their
//! stored form. Requests have their own types, which reject unknown fields, so a misspelt option is an error and not a default.
//!
//! - [`submit`], [`claim`], [`operation`], [`query`], [`bulk`]: requests and responses.
//! - [`cluster`]: the members of a cluster.
//! - [`token`]: the tokens of a server.
//! - [`activity`]: rates and latencies.
//! - [`blob`], [`job`]: blobs and WASI jobs.
//! - [`schedule`], [`limit`], [`queue_settings`], [`webhook`]: schedules, limits, settings of queues, webhooks. [`settings`]: the documents in
//!   which they are stored.
//! - [`pause`]: pauses of queues and types.
//! - [`payload`]: binary inputs and outputs.
//! - [`waiting`]: why a task waits.
//! - [`problem`]: errors as problem details (RFC 9457), and the one table from errors to status codes.
//! - `schema`: OpenAPI schemas of types that are defined in other crates; built with the feature `openapi`.

pub mod activity;
pub mod blob;
mod bounded;
pub mod bulk;
pub mod claim;
pub mod cluster;
pub mod job;
pub mod limit;
pub mod operation;
pub mod pause;
pub mod payload;
pub mod problem;
pub mod query;
pub mod queue_settings;
pub mod schedule;
#[cfg(feature = "openapi")]
pub mod schema;
pub mod settings;
pub mod submit;
pub mod token;
pub mod waiting;
pub mod webhook;

pub use blob::{BlobDeleted, BlobGcBody, BlobListQuery};
pub use bulk::{
    BulkBody, BulkFailure, BulkFilter, BulkJobResponse, BulkJobsResponse, BulkResponse, BulkState,
};
pub use claim::{ClaimBody, ClaimResponse, HeartbeatResponse};
pub use job::{
    Job, JobClaimBody, JobCompleteBody, JobCreateBody, JobOutcome, JobStatus, JobTickleBody,
};
pub use limit::{LimitBody, LimitUsageResponse, StartLimitBody};
pub use operation::{CancelBody, OperationBody, OutcomeItem, OutcomeResult, RedriveBody};
pub use pause::{PauseBody, PausesResponse};
pub use payload::BytesPayload;
pub use problem::{Condition, Problem};
pub use query::{
    Info, ListQuery, PageResponse, QueueStatsEntry, Sort, SortedAmong, StatsResponse, VersionEntry,
    VersionsQuery, VersionsResponse,
};
pub use queue_settings::QueueSettingsBody;
pub use schedule::{BackfillBody, ScheduleBody, TaskTemplateBody, TriggeredResponse};
pub use settings::{SettingsBody, SettingsEntry, SettingsQuery, SettingsResponse, SettingsWritten};
pub use submit::{DuplicateResponse, RetryPolicyBody, SubmitBody, SubmitResponse, SubmitResult};
pub use token::{TokenBody, TokenInfo};
pub use waiting::WaitsForResponse;
pub use webhook::{WebhookBody, WebhookTestResponse};

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// The id of a request. A client that repeats a request repeats its id. Responses and logs contain it.
pub const REQUEST_ID_HEADER: &str = "x-request-id";
/// The queue's time when the response was made, with millisecond precision.
pub const TIME_HEADER: &str = "qo-time";
/// The idempotency key of a submit, if the body has none.
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";
/// The trace that a submit belongs to.
pub const TRACE_HEADER: &str = "traceparent";

/// The id of the broker that the request is for, from the leader record. Any other process rejects the request.
pub const BROKER_HEADER: &str = "qo-broker";

/// With the value `stale`, a read of a cluster that any node may answer from its own rows. The response has it, too, if it may be old.
pub const READ_HEADER: &str = "qo-read";
/// The value of [`READ_HEADER`].
pub const STALE: &str = "stale";

/// Who requests an operation, for the task's history. A server with tokens adds the name of the token.
pub const ACTOR_HEADER: &str = "qo-actor";

/// The most submits or outcomes in one request.
pub const BATCH_MAX: usize = 1_000;
/// The most task ids in one bulk operation that runs in the background.
pub const BACKGROUND_IDS_MAX: usize = 100_000;
/// The most tasks in one page of a list.
pub const PAGE_MAX: usize = 1_000;
/// The most stored versions of a task in one response.
pub const VERSIONS_MAX: usize = 1_000;
/// The most queues, types or shards in one claim.
pub const NAMES_MAX: usize = 256;
/// The longest request id, in bytes.
pub const REQUEST_ID_MAX_BYTES: usize = 128;
/// The longest reason of a cancel, in bytes.
pub const REASON_MAX_BYTES: usize = 4 * 1024;
