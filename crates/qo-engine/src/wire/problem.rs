//! Errors as problem details (RFC 9457), and the one table from errors to status codes.
//!
//! A problem carries what a person reads (`title`, `detail`) and what a program needs: its `code`, and the facts of the condition as
//! members of their own. From these the remote engine rebuilds the very error that the server's engine gave, so that a program
//! behaves the same on both sides of the wire.

use std::time::Duration;

use qo_core::retry::InvalidRetryPolicy;
use qo_core::{LeaseId, QueueName, Rejection, Status, TaskId, Timestamp};
use qo_store::StoreError;
use serde::{Deserialize, Serialize};

use super::problem_words::known;
use crate::error::EngineError;

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

    /// Whether it says something of this server alone: another one, or the same a little later, can do it, and nothing was begun.
    pub fn is_of_this_server(&self) -> bool {
        matches!(self, Self::Overloaded | Self::Stopping)
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
        error_of(self.condition, self.detail, self.status, place)
    }
}

impl From<&EngineError> for Problem {
    fn from(error: &EngineError) -> Self {
        Self::new(condition_of(error), error.to_string())
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        Self::from(&error)
    }
}

fn condition_of(error: &EngineError) -> Condition {
    match error {
        EngineError::Rejected(rejection) => condition_of_rejection(rejection),
        EngineError::Store(error) => condition_of_store(error),
        EngineError::Unreadable { id, detail } => Condition::Unreadable {
            id: *id,
            reason: detail.clone(),
        },
        EngineError::Contended { id } => Condition::Contended { id: *id },
        EngineError::PayloadTooLarge { field, size, limit } => Condition::PayloadTooLarge {
            field: (*field).to_owned(),
            size: *size,
            limit: *limit,
        },
        EngineError::BadRequest(_) => Condition::BadRequest,
        EngineError::QueuePaused { queues } => Condition::QueuePaused {
            queues: queues.clone(),
        },
        EngineError::NotVersioned => Condition::NotVersioned,
    }
}

fn condition_of_rejection(rejection: &Rejection) -> Condition {
    match rejection {
        Rejection::NotFound { id } => Condition::NotFound { id: *id },
        Rejection::LeaseLost {
            presented,
            status,
            attempt,
        } => Condition::LeaseLost {
            presented: *presented,
            task_status: *status,
            attempt: *attempt,
        },
        Rejection::WrongStatus { action, status } => Condition::WrongStatus {
            action: (*action).to_owned(),
            task_status: *status,
        },
        Rejection::NotDue { available_at } => Condition::NotDue {
            available_at: *available_at,
        },
        Rejection::AlreadyDue { available_at } => Condition::AlreadyDue {
            available_at: *available_at,
        },
        Rejection::Expired { expires_at } => Condition::Expired {
            expires_at: *expires_at,
        },
        Rejection::NotExpired { expires_at } => Condition::NotExpired {
            expires_at: *expires_at,
        },
        Rejection::LeaseHolds { lease_expires_at } => Condition::LeaseHolds {
            lease_expires_at: *lease_expires_at,
        },
        Rejection::CancelAlreadyRequested => Condition::CancelAlreadyRequested,
        Rejection::AttemptsUsedUp => Condition::AttemptsUsedUp,
        Rejection::PayloadTooLarge { field, size, limit } => Condition::RecordTooLarge {
            field: (*field).to_owned(),
            size: *size,
            limit: *limit,
        },
        Rejection::OutOfBounds { field, allowed } => Condition::OutOfBounds {
            field: (*field).to_owned(),
            allowed: (*allowed).to_owned(),
        },
        Rejection::RetryPolicy(rule) => Condition::BadRetryPolicy {
            rule: match rule {
                InvalidRetryPolicy::IntervalTooLong => RetryRule::IntervalTooLong,
                InvalidRetryPolicy::InitialAboveMax => RetryRule::InitialAboveMax,
                InvalidRetryPolicy::Multiplier => RetryRule::Multiplier,
                InvalidRetryPolicy::Jitter => RetryRule::Jitter,
            },
        },
    }
}

fn condition_of_store(error: &StoreError) -> Condition {
    match error.clone() {
        StoreError::NotFound { key } => Condition::StoreNotFound { key },
        StoreError::Conflict { key } => Condition::StoreConflict { key },
        StoreError::AlreadyExists { key } => Condition::StoreExists { key },
        StoreError::Throttled {
            key,
            detail,
            attempts,
        } => Condition::StoreThrottled {
            key,
            reason: detail,
            attempts,
        },
        StoreError::Unavailable {
            key,
            detail,
            attempts,
            elapsed,
            in_doubt,
        } => Condition::StoreUnavailable {
            key,
            reason: detail,
            attempts,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            in_doubt,
        },
        StoreError::Denied { key, detail } => Condition::StoreDenied {
            key,
            reason: detail,
        },
        StoreError::Unsupported { operation, detail } => Condition::StoreUnsupported {
            operation: operation.to_owned(),
            reason: detail,
        },
        StoreError::Corrupt { key, detail } => Condition::StoreCorrupt {
            key,
            reason: detail,
        },
    }
}

fn error_of(condition: Condition, detail: String, status: u16, place: &str) -> EngineError {
    match rejection_of(&condition) {
        Some(rejection) => return EngineError::Rejected(rejection),
        None => {
            if let Some(error) = store_error_of(&condition) {
                return EngineError::Store(error);
            }
        }
    }
    let place = place.to_owned();
    match condition {
        Condition::Unreadable { id, reason } => EngineError::Unreadable { id, detail: reason },
        Condition::Contended { id } => EngineError::Contended { id },
        Condition::PayloadTooLarge { field, size, limit } => match known(&field) {
            Some(field) => EngineError::PayloadTooLarge { field, size, limit },
            None => EngineError::BadRequest(detail),
        },
        Condition::QueuePaused { queues } => EngineError::QueuePaused { queues },
        Condition::NotVersioned => EngineError::NotVersioned,
        Condition::Unauthorized | Condition::Forbidden | Condition::CrossSite => {
            EngineError::Store(StoreError::Denied { key: place, detail })
        }
        Condition::Overloaded | Condition::Stopping => {
            EngineError::Store(StoreError::Unavailable {
                key: place,
                detail,
                attempts: 1,
                elapsed: Duration::ZERO,
                in_doubt: false,
            })
        }
        Condition::NoRoute | Condition::NoMethod => EngineError::Store(StoreError::Unsupported {
            operation: "this request",
            detail: format!("{place}: {detail}; is the server of another version?"),
        }),
        Condition::Internal | Condition::Unknown if status >= 500 => {
            EngineError::Store(StoreError::Unavailable {
                key: place,
                detail,
                attempts: 1,
                elapsed: Duration::ZERO,
                in_doubt: true,
            })
        }
        // What is left is the caller's mistake.
        _ => EngineError::BadRequest(detail),
    }
}

fn rejection_of(condition: &Condition) -> Option<Rejection> {
    Some(match condition {
        Condition::NotFound { id } => Rejection::NotFound { id: *id },
        Condition::LeaseLost {
            presented,
            task_status,
            attempt,
        } => Rejection::LeaseLost {
            presented: *presented,
            status: *task_status,
            attempt: *attempt,
        },
        Condition::WrongStatus {
            action,
            task_status,
        } => Rejection::WrongStatus {
            action: known(action)?,
            status: *task_status,
        },
        Condition::NotDue { available_at } => Rejection::NotDue {
            available_at: *available_at,
        },
        Condition::AlreadyDue { available_at } => Rejection::AlreadyDue {
            available_at: *available_at,
        },
        Condition::Expired { expires_at } => Rejection::Expired {
            expires_at: *expires_at,
        },
        Condition::NotExpired { expires_at } => Rejection::NotExpired {
            expires_at: *expires_at,
        },
        Condition::LeaseHolds { lease_expires_at } => Rejection::LeaseHolds {
            lease_expires_at: *lease_expires_at,
        },
        Condition::CancelAlreadyRequested => Rejection::CancelAlreadyRequested,
        Condition::AttemptsUsedUp => Rejection::AttemptsUsedUp,
        Condition::RecordTooLarge { field, size, limit } => Rejection::PayloadTooLarge {
            field: known(field)?,
            size: *size,
            limit: *limit,
        },
        Condition::OutOfBounds { field, allowed } => Rejection::OutOfBounds {
            field: known(field)?,
            allowed: known(allowed)?,
        },
        Condition::BadRetryPolicy { rule } => Rejection::RetryPolicy(match rule {
            RetryRule::IntervalTooLong => InvalidRetryPolicy::IntervalTooLong,
            RetryRule::InitialAboveMax => InvalidRetryPolicy::InitialAboveMax,
            RetryRule::Multiplier => InvalidRetryPolicy::Multiplier,
            RetryRule::Jitter => InvalidRetryPolicy::Jitter,
        }),
        _ => return None,
    })
}

fn store_error_of(condition: &Condition) -> Option<StoreError> {
    Some(match condition.clone() {
        Condition::StoreNotFound { key } => StoreError::NotFound { key },
        Condition::StoreConflict { key } => StoreError::Conflict { key },
        Condition::StoreExists { key } => StoreError::AlreadyExists { key },
        Condition::StoreThrottled {
            key,
            reason,
            attempts,
        } => StoreError::Throttled {
            key,
            detail: reason,
            attempts,
        },
        Condition::StoreUnavailable {
            key,
            reason,
            attempts,
            elapsed_ms,
            in_doubt,
        } => StoreError::Unavailable {
            key,
            detail: reason,
            attempts,
            elapsed: Duration::from_millis(elapsed_ms),
            in_doubt,
        },
        Condition::StoreDenied { key, reason } => StoreError::Denied {
            key,
            detail: reason,
        },
        Condition::StoreUnsupported { operation, reason } => StoreError::Unsupported {
            operation: known(&operation).unwrap_or("this operation"),
            detail: reason,
        },
        Condition::StoreCorrupt { key, reason } => StoreError::Corrupt {
            key,
            detail: reason,
        },
        _ => return None,
    })
}

#[cfg(test)]
#[path = "problem_tests.rs"]
mod tests;
