//! Converts a problem back to the error of an engine.

use std::time::Duration;

use qo_core::retry::InvalidRetryPolicy;
use qo_core::{DocumentId, Rejection};
use qo_engine::EngineError;
use qo_store::StoreError;

use super::static_texts::static_text;
use super::{Condition, RetryRule};

/// The error of a condition, as far as it can be rebuilt. `server` is the server's URL.
pub(super) fn error_of(
    condition: Condition,
    detail: String,
    status: u16,
    server: &str,
) -> EngineError {
    match rejection_of(&condition) {
        Some(rejection) => return EngineError::Rejected(rejection),
        None => {
            if let Some(error) = store_error_of(&condition) {
                return EngineError::Store(error);
            }
        }
    }
    let server = server.to_owned();
    match condition {
        Condition::Unreadable { id, reason } => EngineError::Unreadable { id, detail: reason },
        Condition::Contended { id } => EngineError::Contended { id },
        Condition::PayloadTooLarge { field, size, limit } => match static_text(&field) {
            Some(field) => EngineError::PayloadTooLarge { field, size, limit },
            None => EngineError::BadRequest(detail),
        },
        Condition::QueuePaused { queues, types } => EngineError::QueuePaused { queues, types },
        Condition::NotVersioned => EngineError::NotVersioned,
        Condition::NotLeader { .. } => EngineError::NotLeader,
        Condition::ObjectFull { size, limit } => EngineError::ObjectFull { size, limit },
        Condition::SettingsConflict { kind, name } => EngineError::DocumentConflict {
            id: DocumentId { kind, name },
        },
        Condition::WorkerNotFound { worker } => EngineError::WorkerNotFound { worker },
        Condition::Closed => EngineError::Closed,
        Condition::Unauthorized | Condition::Forbidden | Condition::CrossSite => {
            EngineError::Store(StoreError::Denied {
                key: server,
                detail,
            })
        }
        Condition::Overloaded | Condition::Stopping | Condition::Misdirected => {
            EngineError::Store(StoreError::Unavailable {
                key: server,
                detail,
                attempts: 1,
                elapsed: Duration::ZERO,
                in_doubt: false,
            })
        }
        Condition::NoRoute | Condition::NoCluster | Condition::NoTokens | Condition::NoMethod => {
            EngineError::Store(StoreError::Unsupported {
                operation: "this request",
                detail: format!("{server}: {detail}; does the server run another version of qo?"),
            })
        }
        Condition::TokenNotFound { id } => EngineError::Store(StoreError::NotFound {
            key: format!("token {id}"),
        }),
        Condition::Internal | Condition::Unknown if status >= 500 => {
            EngineError::Store(StoreError::Unavailable {
                key: server,
                detail,
                attempts: 1,
                elapsed: Duration::ZERO,
                in_doubt: true,
            })
        }
        // All other conditions are errors of the caller.
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
            action: static_text(action)?,
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
            field: static_text(field)?,
            size: *size,
            limit: *limit,
        },
        Condition::OutOfBounds { field, allowed } => Rejection::OutOfBounds {
            field: static_text(field)?,
            allowed: static_text(allowed)?,
        },
        Condition::StopsLine { action } => Rejection::StopsLine {
            action: static_text(action)?,
        },
        Condition::InLine { action } => Rejection::InLine {
            action: static_text(action)?,
        },
        Condition::AlreadyInQueue { queue } => Rejection::AlreadyInQueue {
            queue: queue.clone(),
        },
        Condition::QueueFull { queue, limit } => Rejection::QueueFull {
            queue: queue.clone(),
            limit: *limit,
        },
        Condition::LineFull { limit } => Rejection::LineFull { limit: *limit },
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
            operation: static_text(&operation).unwrap_or("this operation"),
            detail: reason,
        },
        Condition::StoreCorrupt { key, reason } => StoreError::Corrupt {
            key,
            detail: reason,
        },
        _ => return None,
    })
}
