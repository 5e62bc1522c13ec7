//! Errors as problem details (RFC 9457), and the one table from errors to status codes.
//!
//! A problem carries what a person reads (`title`, `detail`) and what a program needs: its `code`, and the facts of the condition as
//! members of their own. From these the remote engine rebuilds the very error that the server's engine gave, so that a program
//! behaves the same on both sides of the wire.

mod rebuild;
mod translate;
mod words;

use qo_core::{LeaseId, QueueName, Status, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use qo_engine::EngineError;

#[cfg(feature = "openapi")]
use super::schema;

/// The media type of a problem.
pub const PROBLEM_TYPE: &str = "application/problem+json";

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Names the condition: `urn:qo:problem:` and its code.
    #[serde(rename = "type")]
    pub uri: String,
    /// The condition in a few words, the same every time.
    pub title: String,
    /// The status code of the answer.
    #[cfg_attr(feature = "openapi", schema(minimum = 400, maximum = 599))]
    pub status: u16,
    /// What happened this time, why, and what to do.
    pub detail: String,
    /// The request that it answers; the same as in the header and in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The condition, with its facts.
    #[serde(flatten)]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::ConditionFacts))]
    pub condition: Condition,
}

/// A condition, by its code, with its facts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "they are the fields of the errors that they stand for"
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
    QueuePaused {
        queues: Vec<QueueName>,
    },
    NotVersioned,
    /// `leader` is where the one is that leads, if that is known.
    NotLeader {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        leader: Option<String>,
    },
    QueueFull {
        size: u64,
        limit: u64,
    },
    Closed,
    /// No token, or one that is unknown, revoked or out of date.
    Unauthorized,
    /// A token that does not allow this.
    Forbidden,
    /// A request that a browser sends on behalf of another site.
    CrossSite,
    /// No such route.
    NoRoute,
    /// The route is there, but not for this method.
    NoMethod,
    /// The body is not JSON of the right form.
    BadBody,
    /// The body has another media type than JSON.
    BadMediaType,
    /// The body is larger than the server takes.
    BodyTooLarge {
        limit: u64,
    },
    /// The body did not come in time.
    BodyTimeout,
    /// The server has too much to do.
    Overloaded,
    /// The server is stopping; another one, or the same a little later, can be asked.
    Stopping,
    /// The request was meant for another broker than this process.
    Misdirected,
    /// Something broke that should not.
    Internal,
    /// What a later version says.
    #[serde(other)]
    Unknown,
}

/// The rule that a retry policy breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "they are the variants of the error that they stand for"
)]
pub enum RetryRule {
    IntervalTooLong,
    InitialAboveMax,
    Multiplier,
    Jitter,
}

impl Condition {
    /// The code, the status and the title: the one table.
    fn row(&self) -> (&'static str, u16, &'static str) {
        match self {
            Self::NotFound { .. } => ("not_found", 404, "There is no such task"),
            Self::LeaseLost { .. } => ("lease_lost", 409, "The lease is lost"),
            Self::WrongStatus { .. } => {
                ("wrong_status", 409, "The task's status does not allow this")
            }
            Self::NotDue { .. } => ("not_due", 409, "The task is not due yet"),
            Self::AlreadyDue { .. } => ("already_due", 409, "The task is due already"),
            Self::Expired { .. } => ("expired", 409, "The task has expired"),
            Self::NotExpired { .. } => ("not_expired", 409, "The task has not expired"),
            Self::LeaseHolds { .. } => ("lease_holds", 409, "The lease still holds"),
            Self::CancelAlreadyRequested => (
                "cancel_already_requested",
                409,
                "A cancel was already requested",
            ),
            Self::AttemptsUsedUp => ("attempts_used_up", 409, "The task was claimed too often"),
            Self::RecordTooLarge { .. } => (
                "record_too_large",
                413,
                "The payload does not fit into a record",
            ),
            Self::OutOfBounds { .. } => ("out_of_bounds", 422, "A value is out of bounds"),
            Self::BadRetryPolicy { .. } => {
                ("bad_retry_policy", 422, "The retry policy makes no sense")
            }
            Self::StoreNotFound { .. } => ("store_not_found", 500, "The store lacks an object"),
            Self::StoreConflict { .. } => {
                ("store_conflict", 409, "Somebody else changed the object")
            }
            Self::StoreExists { .. } => ("store_exists", 409, "The object is already there"),
            Self::StoreThrottled { .. } => {
                ("store_throttled", 503, "The store is throttling requests")
            }
            Self::StoreUnavailable { .. } => ("store_unavailable", 503, "The store is unavailable"),
            Self::StoreDenied { .. } => ("store_denied", 502, "The store refused access"),
            Self::StoreUnsupported { .. } => ("store_unsupported", 501, "The store cannot do this"),
            Self::StoreCorrupt { .. } => ("store_corrupt", 500, "What is stored is damaged"),
            Self::Unreadable { .. } => ("unreadable", 500, "The task's record cannot be read"),
            Self::Contended { .. } => ("contended", 409, "The task is being changed by others"),
            Self::PayloadTooLarge { .. } => ("payload_too_large", 413, "The payload is too large"),
            Self::BadRequest => ("bad_request", 400, "The request makes no sense"),
            Self::QueuePaused { .. } => ("queue_paused", 409, "The queue is paused"),
            Self::NotLeader { .. } => ("not_leader", 503, "Another process serves this queue"),
            Self::QueueFull { .. } => ("queue_full", 507, "The queue is full"),
            Self::Closed => ("closed", 503, "The queue was closed"),
            Self::NotVersioned => ("not_versioned", 409, "No versions are kept"),
            Self::Unauthorized => ("unauthorized", 401, "A valid token is needed"),
            Self::Forbidden => ("forbidden", 403, "The token does not allow this"),
            Self::CrossSite => ("cross_site", 403, "Requests from other sites are refused"),
            Self::NoRoute => ("no_route", 404, "There is no such route"),
            Self::NoMethod => ("no_method", 405, "The route does not take this method"),
            Self::BadBody => ("bad_body", 400, "The body cannot be read"),
            Self::BadMediaType => ("bad_media_type", 415, "The body must be JSON"),
            Self::BodyTooLarge { .. } => ("body_too_large", 413, "The body is too large"),
            Self::BodyTimeout => ("body_timeout", 408, "The body did not come in time"),
            Self::Overloaded => ("overloaded", 503, "The server has too much to do"),
            Self::Stopping => ("stopping", 503, "The server is stopping"),
            Self::Misdirected => ("misdirected", 421, "Another broker was meant"),
            Self::Internal => ("internal", 500, "Something broke in the server"),
            Self::Unknown => ("unknown", 500, "An error that this version does not know"),
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

    /// Whether what was asked may have been begun, or even done, although this is the answer.
    pub fn may_have_begun(&self) -> bool {
        // A server can lose its leadership between the deed and the answer.
        !matches!(self, Self::Overloaded | Self::Stopping | Self::Misdirected)
    }

    /// Whether it says something of this server alone: another one, or the same a little later, can do it.
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
    /// A problem of this condition, with what happened this time.
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

    /// The error that the server's engine gave, as far as it can be told; `place` is the server.
    pub fn into_error(self, place: &str) -> EngineError {
        let detail = if self.detail.trim().is_empty() {
            format!(
                "the server refused it with {} and did not say why",
                self.status
            )
        } else {
            self.detail
        };
        rebuild::error_of(self.condition, detail, self.status, place)
    }
}

#[cfg(test)]
mod tests;
