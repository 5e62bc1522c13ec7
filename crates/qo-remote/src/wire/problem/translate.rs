//! Converts an error of an engine to a problem.

use qo_core::Rejection;
use qo_core::retry::InvalidRetryPolicy;
use qo_engine::EngineError;
use qo_store::StoreError;

use super::{Condition, Problem, RetryRule};

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
        EngineError::QueuePaused { queues, types } => Condition::QueuePaused {
            queues: queues.clone(),
            types: types.clone(),
        },
        EngineError::NotVersioned => Condition::NotVersioned,
        EngineError::NotLeader => Condition::NotLeader { leader: None },
        EngineError::ObjectFull { size, limit } => Condition::ObjectFull {
            size: *size,
            limit: *limit,
        },
        EngineError::DocumentConflict { id } => Condition::SettingsConflict {
            kind: id.kind,
            name: id.name.clone(),
        },
        EngineError::WorkerNotFound { worker } => Condition::WorkerNotFound {
            worker: worker.clone(),
        },
        EngineError::Overloaded { .. } => Condition::Overloaded,
        EngineError::Closed => Condition::Closed,
        // An error that this version does not know.
        _ => Condition::Internal,
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
        Rejection::StopsLine { action } => Condition::StopsLine {
            action: (*action).to_owned(),
        },
        Rejection::InLine { action } => Condition::InLine {
            action: (*action).to_owned(),
        },
        Rejection::AlreadyInQueue { queue } => Condition::AlreadyInQueue {
            queue: queue.clone(),
        },
        Rejection::QueueFull { queue, limit } => Condition::QueueFull {
            queue: queue.clone(),
            limit: *limit,
        },
        Rejection::LineFull { limit } => Condition::LineFull { limit: *limit },
        Rejection::RetryPolicy(rule) => Condition::BadRetryPolicy {
            rule: match rule {
                InvalidRetryPolicy::IntervalTooLong => RetryRule::IntervalTooLong,
                InvalidRetryPolicy::InitialAboveMax => RetryRule::InitialAboveMax,
                InvalidRetryPolicy::Multiplier => RetryRule::Multiplier,
                InvalidRetryPolicy::Jitter => RetryRule::Jitter,
                _ => return Condition::BadRequest,
            },
        },
        // A rejection that this version does not know.
        _ => Condition::Internal,
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
        // An error that this version does not know: it is unknown whether a write was applied.
        other => Condition::StoreUnavailable {
            key: String::new(),
            reason: other.to_string(),
            attempts: 1,
            elapsed_ms: 0,
            in_doubt: true,
        },
    }
}
