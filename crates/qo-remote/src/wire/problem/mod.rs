//! Errors as problem details (RFC 9457), and the table from errors to status codes.
//!
//! A problem contains texts for people (`title`, `detail`) and data for programs: its `code`, and the facts of the condition as
//! separate members. From these the remote engine rebuilds the error of the server's engine, so that a program behaves the same on
//! both sides of the wire.

mod blob;
mod rebuild;
mod static_texts;
mod translate;

use qo_core::{
    BlobAddress, DocumentKind, DocumentName, LeaseId, OpId, QueueName, Status, TaskId, TaskType,
    Timestamp, WorkerId,
};
use serde::{Deserialize, Serialize};

use qo_blob::BlobError;
use qo_engine::EngineError;

#[cfg(feature = "openapi")]
use super::schema;

/// The media type of a problem.
pub const PROBLEM_TYPE: &str = "application/problem+json";

/// The reason why a request failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// The URI of the condition: `urn:qo:problem:` and its code.
    #[serde(rename = "type")]
    pub uri: String,
    /// A short title, the same for all problems of this condition.
    pub title: String,
    /// The status code of the response.
    #[cfg_attr(feature = "openapi", schema(minimum = 400, maximum = 599))]
    pub status: u16,
    /// What happened, why, and what to do.
    pub detail: String,
    /// The id of the request, as in the header and in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The condition with its facts.
    #[serde(flatten)]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::ConditionFacts))]
    pub condition: Condition,
}

/// A condition with its facts, identified by its code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "the fields are those of the corresponding errors"
)]
pub enum Condition {
    NotFound {
        id: TaskId,
    },
    LeaseLost {
        presented: LeaseId,
        task_status: Status,
        attempt: u32,
    },
    WrongStatus {
        action: String,
        task_status: Status,
    },
    NotDue {
        available_at: Timestamp,
    },
    AlreadyDue {
        available_at: Timestamp,
    },
    Expired {
        expires_at: Timestamp,
    },
    NotExpired {
        expires_at: Option<Timestamp>,
    },
    LeaseHolds {
        lease_expires_at: Timestamp,
    },
    CancelAlreadyRequested,
    AttemptsUsedUp,
    RecordTooLarge {
        field: String,
        size: u64,
        limit: u64,
    },
    OutOfBounds {
        field: String,
        allowed: String,
    },
    BadRetryPolicy {
        rule: RetryRule,
    },
    /// The task has failed and stops its ordering key.
    StopsLine {
        action: String,
    },
    /// The task has an ordering key, so it stays in its queue.
    InLine {
        action: String,
    },
    /// The task is in this queue already.
    AlreadyInQueue {
        queue: QueueName,
    },
    /// Too many tasks with this ordering key wait.
    LineFull {
        limit: u64,
    },
    /// As many tasks wait in the queue as its settings allow.
    QueueFull {
        queue: QueueName,
        limit: u64,
    },
    StoreNotFound {
        key: String,
    },
    StoreConflict {
        key: String,
    },
    StoreExists {
        key: String,
    },
    StoreThrottled {
        key: String,
        reason: String,
        attempts: u32,
    },
    StoreUnavailable {
        key: String,
        reason: String,
        attempts: u32,
        elapsed_ms: u64,
        in_doubt: bool,
    },
    StoreDenied {
        key: String,
        reason: String,
    },
    StoreUnsupported {
        operation: String,
        reason: String,
    },
    StoreCorrupt {
        key: String,
        reason: String,
    },
    Unreadable {
        id: TaskId,
        reason: String,
    },
    Contended {
        id: TaskId,
    },
    PayloadTooLarge {
        field: String,
        size: u64,
        limit: u64,
    },
    BadRequest,
    BulkNotFound {
        id: OpId,
    },
    WorkerNotFound {
        worker: WorkerId,
    },
    QueuePaused {
        queues: Vec<QueueName>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        types: Vec<TaskType>,
    },
    NotVersioned,
    /// `leader` is the address of the leader, if it is known.
    NotLeader {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        leader: Option<String>,
    },
    ObjectFull {
        size: u64,
        limit: u64,
    },
    /// There is no such schedule.
    ScheduleNotFound {
        name: String,
    },
    /// There is no such limit.
    LimitNotFound {
        name: String,
    },
    /// There is no such webhook.
    WebhookNotFound {
        name: String,
    },
    /// Somebody else changed the document.
    SettingsConflict {
        kind: DocumentKind,
        name: DocumentName,
    },
    Closed,
    /// There is no token, or it is unknown, revoked or expired.
    Unauthorized,
    /// The token lacks the required scope.
    Forbidden,
    /// A browser sent the request on behalf of another site.
    CrossSite,
    /// No such route.
    NoRoute,
    /// The server is not a node of a cluster.
    NoCluster,
    /// The server stores no tokens.
    NoTokens,
    /// No token has this id.
    TokenNotFound {
        id: String,
    },
    /// The route does not support this method.
    NoMethod,
    /// The body is not valid JSON for this route.
    BadBody,
    /// The media type of the body is not JSON.
    BadMediaType,
    /// The body is larger than the server accepts.
    BodyTooLarge {
        limit: u64,
    },
    /// The body did not arrive in time.
    BodyTimeout,
    /// The request's line and headers are larger than the server accepts.
    HeadTooLarge {
        limit: u64,
    },
    /// The server is overloaded.
    Overloaded,
    /// The server is stopping. Another server, or the same one a little later, can serve the request.
    Stopping,
    /// The request is for another broker than this process.
    Misdirected,
    /// No blob has this address.
    BlobNotFound {
        address: BlobAddress,
    },
    /// The request refers to a blob that is not stored.
    MissingBlob {
        address: BlobAddress,
    },
    /// The uploaded bytes do not have the address in the path.
    BlobMismatch {
        expected: BlobAddress,
        actual: BlobAddress,
    },
    /// The stored bytes do not have their address.
    BlobDamaged {
        address: BlobAddress,
        reason: String,
    },
    /// The blob is larger than the server accepts.
    BlobTooLarge {
        limit: u64,
    },
    /// The requested range does not lie within the blob.
    BadRange {
        address: BlobAddress,
        start: u64,
        end: u64,
        size: u64,
    },
    /// The queue of this server stores no blobs.
    NoBlobs,
    /// No such job.
    JobNotFound,
    /// The job exists, but no runner has it.
    JobNotActive {
        job_status: String,
    },
    /// An internal error of the server.
    Internal,
    /// A condition of a later version.
    #[serde(other)]
    Unknown,
}

/// The rule that a retry policy violates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "the variants are those of the corresponding error"
)]
pub enum RetryRule {
    IntervalTooLong,
    InitialAboveMax,
    Multiplier,
    Jitter,
}

impl Condition {
    /// The code, the status and the title.
    #[expect(clippy::too_many_lines, reason = "it is a table")]
    fn row(&self) -> (&'static str, u16, &'static str) {
        match self {
            Self::NotFound { .. } => ("not_found", 404, "Task not found"),
            Self::LeaseLost { .. } => ("lease_lost", 409, "The lease was lost"),
            Self::WrongStatus { .. } => {
                ("wrong_status", 409, "The task's status does not allow this")
            }
            Self::NotDue { .. } => ("not_due", 409, "The task is not due yet"),
            Self::AlreadyDue { .. } => ("already_due", 409, "The task is already due"),
            Self::Expired { .. } => ("expired", 409, "The task has expired"),
            Self::NotExpired { .. } => ("not_expired", 409, "The task has not expired"),
            Self::LeaseHolds { .. } => ("lease_holds", 409, "The lease is still valid"),
            Self::CancelAlreadyRequested => (
                "cancel_already_requested",
                409,
                "A cancel was already requested",
            ),
            Self::AttemptsUsedUp => (
                "attempts_used_up",
                409,
                "The task was claimed too many times",
            ),
            Self::RecordTooLarge { .. } => (
                "record_too_large",
                413,
                "The payload does not fit into a record",
            ),
            Self::OutOfBounds { .. } => ("out_of_bounds", 422, "A value is out of bounds"),
            Self::BadRetryPolicy { .. } => ("bad_retry_policy", 422, "The retry policy is invalid"),
            Self::StopsLine { .. } => ("stops_line", 409, "The task stops its ordering key"),
            Self::InLine { .. } => ("in_line", 409, "The task has an ordering key"),
            Self::AlreadyInQueue { .. } => {
                ("already_in_queue", 409, "The task is already in this queue")
            }
            Self::LineFull { .. } => (
                "line_full",
                429,
                "Too many tasks with this ordering key wait",
            ),
            Self::QueueFull { .. } => ("queue_full", 429, "The queue is full"),
            Self::StoreNotFound { .. } => {
                ("store_not_found", 500, "An object is missing in the store")
            }
            Self::StoreConflict { .. } => {
                ("store_conflict", 409, "Another process changed the object")
            }
            Self::StoreExists { .. } => ("store_exists", 409, "The object already exists"),
            Self::StoreThrottled { .. } => {
                ("store_throttled", 503, "The store is throttling requests")
            }
            Self::StoreUnavailable { .. } => ("store_unavailable", 503, "The store is unavailable"),
            Self::StoreDenied { .. } => ("store_denied", 502, "The store denied access"),
            Self::StoreUnsupported { .. } => (
                "store_unsupported",
                501,
                "The store does not support this operation",
            ),
            Self::StoreCorrupt { .. } => ("store_corrupt", 500, "Stored data is damaged"),
            Self::Unreadable { .. } => ("unreadable", 500, "The task's record cannot be read"),
            Self::Contended { .. } => ("contended", 409, "Other processes keep changing the task"),
            Self::PayloadTooLarge { .. } => ("payload_too_large", 413, "The payload is too large"),
            Self::BadRequest => ("bad_request", 400, "The request is invalid"),
            Self::BulkNotFound { .. } => ("bulk_not_found", 404, "Bulk operation not found"),
            Self::WorkerNotFound { .. } => ("worker_not_found", 404, "Worker not found"),
            Self::QueuePaused { .. } => ("queue_paused", 409, "The queue or type is paused"),
            Self::NotLeader { .. } => ("not_leader", 503, "Another process serves this queue"),
            Self::ObjectFull { .. } => ("object_full", 507, "The queue's object is full"),
            Self::ScheduleNotFound { .. } => ("schedule_not_found", 404, "Schedule not found"),
            Self::LimitNotFound { .. } => ("limit_not_found", 404, "Limit not found"),
            Self::WebhookNotFound { .. } => ("webhook_not_found", 404, "Webhook not found"),
            Self::SettingsConflict { .. } => (
                "settings_conflict",
                409,
                "The settings have changed since they were read",
            ),
            Self::Closed => ("closed", 503, "The queue was closed"),
            Self::NotVersioned => ("not_versioned", 409, "The store keeps no versions"),
            Self::Unauthorized => ("unauthorized", 401, "A valid token is required"),
            Self::Forbidden => ("forbidden", 403, "The token does not allow this"),
            Self::CrossSite => ("cross_site", 403, "Requests from other sites are rejected"),
            Self::NoRoute => ("no_route", 404, "Route not found"),
            Self::NoCluster => ("no_cluster", 404, "Not a node of a cluster"),
            Self::TokenNotFound { .. } => ("token_not_found", 404, "Token not found"),
            Self::NoTokens => ("no_tokens", 404, "The server stores no tokens"),
            Self::NoMethod => ("no_method", 405, "The route does not support this method"),
            Self::BadBody => ("bad_body", 400, "The body cannot be read"),
            Self::BadMediaType => ("bad_media_type", 415, "The body must be JSON"),
            Self::BodyTooLarge { .. } => ("body_too_large", 413, "The body is too large"),
            Self::HeadTooLarge { .. } => ("head_too_large", 431, "The head is too large"),
            Self::BodyTimeout => ("body_timeout", 408, "The body did not arrive in time"),
            Self::Overloaded => ("overloaded", 503, "The server is overloaded"),
            Self::Stopping => ("stopping", 503, "The server is stopping"),
            Self::Misdirected => ("misdirected", 421, "The request is for another broker"),
            Self::BlobNotFound { .. } => ("blob_not_found", 404, "Blob not found"),
            Self::MissingBlob { .. } => {
                ("missing_blob", 422, "The request refers to a missing blob")
            }
            Self::BlobMismatch { .. } => {
                ("blob_mismatch", 422, "The bytes do not have this address")
            }
            Self::BlobDamaged { .. } => ("blob_damaged", 500, "The stored blob is damaged"),
            Self::BlobTooLarge { .. } => ("blob_too_large", 413, "The blob is too large"),
            Self::BadRange { .. } => ("bad_range", 416, "The range is not within the blob"),
            Self::NoBlobs => ("no_blobs", 501, "This queue stores no blobs"),
            Self::JobNotFound => ("job_not_found", 404, "Job not found"),
            Self::JobNotActive { .. } => ("job_not_active", 400, "The job is not active"),
            Self::Internal => ("internal", 500, "Internal server error"),
            Self::Unknown => ("unknown", 500, "This version does not know this error"),
        }
    }

    /// The code.
    pub fn code(&self) -> &'static str {
        self.row().0
    }

    /// The status code.
    pub fn status(&self) -> u16 {
        self.row().1
    }

    /// Whether the server may have started or even completed the request before it sent this problem.
    pub fn may_have_begun(&self) -> bool {
        // A server can lose its leadership between the change and the response.
        !matches!(self, Self::Overloaded | Self::Stopping | Self::Misdirected)
    }

    /// Whether the condition is specific to this server: another server, or the same one a little later, can serve the request.
    pub fn is_of_this_server(&self) -> bool {
        matches!(
            self,
            Self::Overloaded
                | Self::Stopping
                | Self::Misdirected
                | Self::NotLeader { .. }
                | Self::Closed
        )
    }
}

impl Problem {
    /// A problem of this condition with a detail.
    pub fn new(condition: Condition, detail: impl Into<String>) -> Self {
        let (code, status, title) = condition.row();
        Self {
            uri: format!("urn:qo:problem:{code}"),
            title: title.to_owned(),
            status,
            detail: detail.into(),
            request_id: None,
            condition,
        }
    }

    /// Rebuilds the error of the server's engine as far as possible. `server` is the server's URL.
    pub fn into_error(self, server: &str) -> EngineError {
        let detail = if self.detail.trim().is_empty() {
            format!("the server responded with {} and no details", self.status)
        } else {
            self.detail
        };
        rebuild::error_of(self.condition, detail, self.status, server)
    }

    /// Rebuilds the error of an operation on a blob. `server` is the server's URL.
    pub fn into_blob_error(self, server: &str) -> BlobError {
        match blob::error_of(&self.condition) {
            Some(error) => error,
            None => self.into_error(server).into(),
        }
    }
}

#[cfg(test)]
mod tests;
