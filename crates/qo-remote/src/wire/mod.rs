//! The JSON forms of the HTTP API, shared by the server that speaks them and the remote engine that does too.
//!
//! One definition on both sides means that what one writes the other reads. Tasks, events, workers and retry policies travel in
//! their stored form; what is asked has forms of its own here, with unknown fields refused, so that a misspelt option is an
//! error and not a default.
//!
//! - [`submit`], [`claim`], [`operation`], [`query`], [`bulk`]: what is asked, and what is answered.
//! - [`payload`]: inputs and outputs that are bytes, not JSON.
//! - [`problem`]: errors as problem details (RFC 9457), and the one table from errors to status codes.
//! - `schema`: what the OpenAPI document says of types that are defined elsewhere; built with the feature `openapi`.

pub mod bulk;
pub mod claim;
pub mod operation;
pub mod payload;
pub mod problem;
pub mod query;
#[cfg(feature = "openapi")]
pub mod schema;
pub mod submit;

pub use bulk::{BulkAnswer, BulkBody, BulkFailure, BulkFilter, BulkOperation};
pub use claim::{ClaimAnswer, ClaimBody};
pub use operation::{CancelBody, OperationBody, OutcomeAnswer, OutcomeItem};
pub use payload::BytesPayload;
pub use problem::{Condition, Problem};
pub use query::{
    Info, ListQuery, PageAnswer, QueueStatsAnswer, StatsAnswer, VersionAnswer, VersionsAnswer,
    VersionsQuery,
};
pub use submit::{RetryPolicyBody, SubmitAnswer, SubmitBody, SubmittedAnswer};

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Names a request. A client that repeats a request repeats its name; every answer carries it, and so do the logs.
pub const REQUEST_ID_HEADER: &str = "x-request-id";
/// The queue's time when the answer was made, to the millisecond.
pub const TIME_HEADER: &str = "qo-time";
/// Makes two submits the same, where the body names no key of its own.
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";
/// The trace that a submit is a part of.
pub const TRACE_HEADER: &str = "traceparent";

/// Names the broker that is meant, by the id in the record of who leads. Any other process refuses.
pub const BROKER_HEADER: &str = "qo-broker";

/// How many submits or outcomes one request can carry.
pub const BATCH_MAX: usize = 1_000;
/// How many tasks one page of a list can hold.
pub const PAGE_MAX: usize = 1_000;
/// How many stored versions of a task can be asked for.
pub const VERSIONS_MAX: usize = 1_000;
/// How many queues or types one claim can name.
pub const NAMES_MAX: usize = 256;
/// The longest name of a request, in bytes.
pub const REQUEST_ID_MAX_BYTES: usize = 128;
/// The longest reason of a cancel, in bytes.
pub const REASON_MAX_BYTES: usize = 4 * 1024;
